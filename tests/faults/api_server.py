"""The few addresses of the Kubernetes API that the chart's hook uses, with the rights that its Role gives."""

import base64
import json
import secrets
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Object = dict[str, Any]
Objects = dict[tuple[str, str], Object]
VERBS = {"GET": "get", "POST": "create", "PATCH": "patch"}


class ApiServer:
    """Serves the Secrets of one namespace by TLS to a service account, as RoleBindings allow.

    Args:
        account: Name of the service account to which the token belongs.

    Attributes:
        requests: (verb, name, status) of each.
        token: Of the service account.
    """

    def __init__(
        self,
        address: tuple[str, int],
        certificate: tuple[Path, Path],
        objects: Objects,
        namespace: str,
        *,
        account: str,
    ) -> None:
        self.requests: list[tuple[str, str, int]] = []
        self.account, self.token = account, secrets.token_hex()
        path, server = f"/api/v1/namespaces/{namespace}/secrets", self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
                is_known = self.headers.get("Authorization") == f"Bearer {server.token}"
                name = self.path.removeprefix(path).strip("/")
                status, answer = 401, {}
                if is_known and self.path.startswith(path):
                    status, answer = server._do(VERBS[self.command], name, body, self.headers["Content-Type"])
                server.requests.append((VERBS[self.command], name, status))
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = _answer  # noqa: N815 (the library's names)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._objects = objects
        self._server = ThreadingHTTPServer(address, Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _do(self, verb: str, name: str, body: Any, kind: str) -> tuple[int, Object]:
        if not self._may(verb, name):
            return 403, {"message": f"{self.account} cannot {verb} secret {name}"}
        found = self._objects.get(("Secret", name))
        if verb == "create":
            name = body["metadata"]["name"]
            if ("Secret", name) in self._objects:
                return 409, {}
            self._objects["Secret", name] = found = {"apiVersion": "v1", "kind": "Secret", **body}
            return 201, found
        if found is None:
            return 404, {}
        if verb == "patch":
            if kind != "application/merge-patch+json":
                return 415, {}
            for value in body["data"].values():
                base64.b64decode(value, validate=True)
            found["data"] = {**found.get("data", {}), **body["data"]}
        return 200, found

    def _may(self, verb: str, name: str) -> bool:
        """Return whether some Role gives the right to the account."""
        bindings = [found for (kind, _), found in self._objects.items() if kind == "RoleBinding"]
        roles = [b["roleRef"]["name"] for b in bindings if any(s["name"] == self.account for s in b["subjects"])]
        return any(
            "secrets" in rule["resources"]
            and verb in rule["verbs"]
            and (name in rule["resourceNames"] if "resourceNames" in rule else True)
            for role in roles
            for rule in self._objects["Role", role]["rules"]
        )
