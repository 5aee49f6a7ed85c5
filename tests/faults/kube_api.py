"""A small Kubernetes API for the real helm and kubectl: it stores what they send, and answers as an API server does.

It checks nothing and runs nothing: tests play scheduler and kubelet, by `put`. Requests that it does not know are
answered with 404 and noted in `unknown`.
"""

import base64
import hashlib
import json
import re
import struct
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

Object = dict[str, Any]
KINDS: dict[str, dict[str, str]] = {  # group and version -> plural -> kind
    "v1": {
        "namespaces": "Namespace",
        "secrets": "Secret",
        "configmaps": "ConfigMap",
        "services": "Service",
        "serviceaccounts": "ServiceAccount",
        "persistentvolumeclaims": "PersistentVolumeClaim",
        "pods": "Pod",
        "events": "Event",
    },
    "apps/v1": {"deployments": "Deployment", "statefulsets": "StatefulSet", "replicasets": "ReplicaSet"},
    "batch/v1": {"jobs": "Job"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
    "keda.sh/v1alpha1": {"scaledobjects": "ScaledObject"},
}
_OF_CLUSTER = ("namespaces",)
_PATH = re.compile(
    r"/(?:api|apis)/(?P<group>[^/]+/v1(?:alpha1)?|v1)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?"
    r"(?:/(?P<part>scale|log|exec|status))?"
)
_PROTOBUF = b"k8s\x00"
_SOCKET_KEY = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_SOCKET_PROTOCOL = "v5.channel.k8s.io"

Key = tuple[str, str, str]
"""Plural, namespace, name."""


@dataclass
class KubeApi:
    """The API, until it is closed.

    Attributes:
        logs: Name of a Pod -> lines "TIME text".
        forbidden: Pairs of method and plural that are refused.
        executed: (Pod, command) of each `exec`.
        execute: Takes Pod and command; returns exit code and standard error.
        requests: (method, path) of each request.
    """

    port: int
    objects: dict[Key, Object] = field(default_factory=dict)
    logs: dict[str, list[str]] = field(default_factory=dict)
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    executed: list[tuple[str, list[str]]] = field(default_factory=list)
    execute: Callable[[str, list[str]], tuple[int, str]] = lambda pod, command: (0, "")
    requests: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        api = self

        class Handler(_Handler):
            served = api

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.put("namespaces", {"metadata": {"name": "team"}})

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()

    def write_config(self, path: Path, *, namespace: str = "team", context: str = "lab") -> None:
        """Write a kubeconfig whose current context is this API."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": context,
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": context, "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        }
        path.write_text(yaml.safe_dump(config))

    def put(self, plural: str, content: Object, namespace: str = "") -> Object:
        """Store an object."""
        group, kind = next((group, kinds[plural]) for group, kinds in KINDS.items() if plural in kinds)
        content = {"apiVersion": group, "kind": kind, **content}
        meta = content["metadata"] = {"uid": str(uuid.uuid4()), **content["metadata"]}
        meta |= {"resourceVersion": "1", "creationTimestamp": meta.get("creationTimestamp", "2026-11-25T10:00:00Z")}
        if plural not in _OF_CLUSTER:
            meta["namespace"] = namespace
        self.objects[plural, namespace, meta["name"]] = content
        return content

    def names(self, plural: str) -> list[str]:
        """Return the names of all objects of a kind."""
        return sorted(name for kind, _, name in self.objects if kind == plural)

    def one(self, plural: str, component: str) -> Object:
        """Return the only object of a kind and a component."""
        label = "app.kubernetes.io/component"
        (found,) = (
            item for (kind, *_), item in self.objects.items()
            if kind == plural and item["metadata"].get("labels", {}).get(label) == component
        )  # fmt: skip
        return found


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    served: KubeApi
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        body = self._body()
        self.served.requests.append((method, self.path))
        if (found := _discovered(path)) is not None:
            return self._answer(200, found)
        match = _PATH.fullmatch(path)
        if match is None or match["plural"] not in KINDS.get(match["group"], {}):
            self.served.unknown.append(f"{method} {self.path}")
            return self._refuse(404, "NotFound", "the server could not find the requested resource")
        plural = match["plural"]
        if (method, plural) in self.served.forbidden:
            text = f'{plural} is forbidden: User "ada" cannot {method.lower()} resource "{plural}"'
            return self._refuse(403, "Forbidden", text)
        key = (plural, "" if plural in _OF_CLUSTER else match["namespace"] or "", match["name"] or "")
        if match["part"] == "exec":
            return self._execute(key[2], query["command"])
        if match["part"] == "log":
            return self._answer_text("".join(f"{line}\n" for line in _since(self.served.logs.get(key[2], []), query)))
        if method == "POST":
            return self._create(key, _decoded(body))
        if not match["name"]:
            return self._list(match["group"], key, query)
        if method == "PATCH" and "apply" in self.headers["Content-Type"]:
            return self._create(key, yaml.safe_load(body), again=True)
        return self._change(method, key, body, as_scale=match["part"] == "scale")

    def _change(self, method: str, key: Key, body: bytes, *, as_scale: bool) -> None:
        """Answer with an object, after its change or deletion."""
        stored = self.served.objects.get(key)
        if stored is None:
            return self._refuse(404, "NotFound", f'{key[0]} "{key[2]}" not found')
        if method == "DELETE":
            del self.served.objects[key]
        elif method != "GET":
            _merge(stored, _decoded(body))
        return self._answer(200, _scale_of(stored) if as_scale else stored)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _create(self, key: Key, content: Object, *, again: bool = False) -> None:
        plural, namespace, _ = key
        if namespace and ("namespaces", "", namespace) not in self.served.objects:
            return self._refuse(404, "NotFound", f'namespaces "{namespace}" not found')
        there = (plural, namespace, content["metadata"]["name"]) in self.served.objects
        if there and not again:
            name = content["metadata"]["name"]
            return self._refuse(409, "AlreadyExists", f'{plural} "{name}" already exists')
        return self._answer(200 if there else 201, self.served.put(plural, content, namespace))

    def _list(self, group: str, key: Key, query: dict[str, list[str]]) -> None:
        plural, namespace, _ = key
        labels = query.get("labelSelector", [""])[0]
        fields = query.get("fieldSelector", [""])[0]
        items = [
            item
            for (kind, where, _), item in [*self.served.objects.items()]
            if (kind, where) == (plural, namespace) and _matches(item, labels, fields)
        ]
        kind = f"{KINDS[group][plural]}List"
        return self._answer(
            200, {"kind": kind, "apiVersion": group, "metadata": {"resourceVersion": "1"}, "items": items}
        )

    def _execute(self, pod: str, command: Sequence[str]) -> None:
        """Answer over a WebSocket, in the protocol of remote commands: its first byte is the channel."""
        self.served.executed.append((pod, [*command]))
        code, error = self.served.execute(pod, [*command])
        accept = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + _SOCKET_KEY).encode()).digest())
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept.decode())
        self.send_header("Sec-WebSocket-Protocol", _SOCKET_PROTOCOL)
        self.end_headers()
        status: Object = {"metadata": {}, "status": "Success"}
        if code:
            causes = [{"reason": "ExitCode", "message": str(code)}]
            status = {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
            status["message"] = f"command terminated with non-zero exit code: exit status {code}"
        for channel, text in ((2, error.encode()), (3, json.dumps(status).encode())):
            if text:
                self.wfile.write(_frame(0x2, bytes([channel]) + text))
        self.wfile.write(_frame(0x8, struct.pack(">H", 1000)))
        self.close_connection = True

    def _refuse(self, code: int, reason: str, message: str) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
        return self._answer(code, {**status, "reason": reason, "message": message})

    def _answer(self, code: int, content: Object) -> None:
        return self._answer_text(json.dumps(content), code, "application/json")

    def _answer_text(self, text: str, code: int = 200, kind: str = "text/plain") -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _discovered(path: str) -> Object | None:
    """Return what the API says of itself at a path."""
    if path == "/version":
        return {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [
            {"name": group.partition("/")[0], "versions": [version], "preferredVersion": version}
            for group in KINDS
            if "/" in group
            for version in [{"groupVersion": group, "version": group.partition("/")[2]}]
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if path.startswith("/openapi/v3"):
        return _openapi(path.removeprefix("/openapi/v3").strip("/"))
    group = path.removeprefix("/apis/").removeprefix("/api/")
    if group not in KINDS:
        return None
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    resources = [
        {
            "name": plural,
            "singularName": kind.lower(),
            "namespaced": plural not in _OF_CLUSTER,
            "kind": kind,
            "verbs": verbs,
        }
        for plural, kind in KINDS[group].items()
    ]
    if group == "apps/v1":
        scale = {"name": "deployments/scale", "singularName": "", "namespaced": True, "kind": "Scale"}
        resources.append({**scale, "group": "autoscaling", "version": "v1", "verbs": ["get", "patch", "update"]})
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources}


def _openapi(path: str) -> Object:
    """Return the index of the API's description, or that of a group: it says only that the server checks fields."""
    places = {("apis/" if "/" in group else "api/") + group: group for group in KINDS}
    if path not in places:
        return {"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}?hash=0"} for place in places}}
    name, _, version = places[path].rpartition("/")
    patch = {"parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]}
    described = {}
    for plural, kind in KINDS[places[path]].items():
        told = {"group": name, "version": version, "kind": kind}
        described[f"/{path}/{plural}/{{name}}"] = {"patch": {**patch, "x-kubernetes-group-version-kind": told}}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.34.0"}, "paths": described}


def _matches(item: Object, labels: str, fields: str) -> bool:
    """Whether an object matches selectors: `a=b`, and for labels `a in (b,c)`."""
    found = item["metadata"].get("labels", {})
    for name, several, one in re.findall(r"([\w./-]+)(?: in \(([^)]*)\)|=([^,]*))", labels):
        if found.get(name) not in (several.split(",") if several else [one]):
            return False
    for path, value in re.findall(r"([\w.]+)=([^,]*)", fields):
        node: Any = item
        for key in path.split("."):
            node = node.get(key, {})
        if node != value:
            return False
    return True


def _since(lines: Sequence[str], query: dict[str, list[str]]) -> list[str]:
    since = query.get("sinceTime", [""])[0]
    return [line for line in lines if line >= since.removesuffix("Z")]


def _decoded(body: bytes) -> Object:
    """Return an object that was sent as JSON, or a Secret in the protobuf in which helm sends those."""
    if not body.startswith(_PROTOBUF):
        return dict(json.loads(body))
    secret = _fields(_fields(body.removeprefix(_PROTOBUF))[2][0])
    meta = _fields(secret[1][0])
    pairs = [_fields(pair) for pair in secret.get(2, ())]
    labels = [_fields(pair) for pair in meta.get(11, ())]
    return {
        "metadata": {
            "name": meta[1][0].decode(),
            "labels": {pair[1][0].decode(): pair[2][0].decode() for pair in labels},
        },
        "type": secret[3][0].decode(),
        "data": {pair[1][0].decode(): base64.b64encode(pair[2][0]).decode() for pair in pairs},
    }


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """Return number -> values of the fields of a protobuf message that are bytes; numbers are left out."""
    found: dict[int, list[bytes]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        result = shift = 0
        while True:
            part = message[at]
            at, result, shift = at + 1, result | (part & 0x7F) << shift, shift + 7
            if part < 0x80:
                return result

    while at < len(message):
        key = number()
        if key & 7 == 2:
            size = number()
            found.setdefault(key >> 3, []).append(message[at : at + size])
            at += size
        else:
            number()
    return found


def _scale_of(item: Object) -> Object:
    replicas, meta = item["spec"].get("replicas", 1), item["metadata"]
    told = {"name": meta["name"], "namespace": meta["namespace"], "resourceVersion": "1"}
    status = {"replicas": replicas}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": told,
        "spec": {"replicas": replicas},
        "status": status,
    }


def _merge(stored: Object, change: Object) -> None:
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(stored.get(key), dict):
            _merge(stored[key], value)
        else:
            stored[key] = value


def _frame(kind: int, payload: bytes) -> bytes:
    """Return a last frame of a WebSocket, from the server, which masks nothing."""
    size = len(payload)
    length = bytes([size]) if size < 126 else bytes([126]) + struct.pack(">H", size)
    return bytes([0x80 | kind]) + length + payload
