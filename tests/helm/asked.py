"""Values that a rendering must follow."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.helm.rendering import Object, pods_in
from tests.helm.words import WORKLOADS, component_of, differing

VALUES = {"learner": "learner", "actor": "actors", "redis": "redis", "dashboard": "dashboard", "serve": "serve"}
"""Component -> the values that place its Pods."""
RAY_GROUPS = ("head", "learner", "actors")
OF_EACH_NODE = ("env", "envFrom", "volumes", "volumeMounts")
"""Values of all nodes of a Ray cluster."""


def not_followed(objects: Sequence[Object], values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values that a rendering does not follow."""
    for each in objects:
        if each["kind"] in WORKLOADS:
            for number, (metadata, pod) in enumerate(pods_in(each)):
                component = component_of(metadata)
                path = ("ray", RAY_GROUPS[number]) if each["kind"] == "RayJob" else (VALUES.get(component, ""),)
                asked = dict(_value(values, *path) or {})
                if each["kind"] == "RayJob":
                    asked |= {name: _value(values, "ray", name) for name in OF_EACH_NODE}
                yield from _asked_of_pod(component, metadata, pod, asked)
                yield from differing(component, pod, {"imagePullSecrets": _value(values, "images", "pullSecrets")})
        yield from _asked_of_object(each, values)
    if _value(values, "networkPolicy", "enabled") is not False:
        yield from _asked_of_network([each for each in objects if each["kind"] == "NetworkPolicy"], values)


def _value(values: Mapping[str, Any], *path: str) -> Any:
    at: Any = values
    for name in path:
        at = (at or {}).get(name)
    return at


def _asked_of_object(found: Object, values: Mapping[str, Any]) -> Iterator[str]:
    kind, spec = found["kind"], found.get("spec") or {}
    if kind == "RayJob":
        yield from differing("RayJob", spec, {"activeDeadlineSeconds": _value(values, "ray", "activeDeadlineSeconds")})
        wanted = {"kueue.x-k8s.io/queue-name": _value(values, "ray", "queueName")}
        yield from differing("RayJob", found["metadata"]["labels"], wanted)
    if kind == "Ingress":
        yield from differing("Ingress", spec, {"ingressClassName": _value(values, "dashboard", "ingress", "className")})
    if kind == "ScaledObject":
        wanted = {"authenticationRef": {"name": _value(values, "autoscaling", "authenticationRef")}}
        yield from differing("trigger", spec["triggers"][0], wanted)


def _asked_of_network(policies: Sequence[Object], values: Mapping[str, Any]) -> Iterator[str]:
    text = str([policy["spec"] for policy in policies])
    for name, side in (("dns", ""), ("dashboardFrom", ""), ("serveFrom", ""), ("redisTo", ""), ("extraEgress", "to")):
        for peer in _value(values, "networkPolicy", name) or ():
            if str(peer[side][0] if side else peer) not in text:
                yield f"networkPolicy.{name} has no effect"
    for port in _value(values, "networkPolicy", "dnsPorts") or (53,):
        if f"'port': {port}" not in text:
            yield f"networkPolicy.dnsPorts: {port} has no effect"
    roles = {"ray-head", "ray-worker"} if _value(values, "mode") == "ray" else {"learner", "actor"}
    roles |= {"serve"} if _value(values, "serve", "enabled") else set()
    for policy in (each for each in policies if each["metadata"]["name"].endswith("-extra")):
        if [set(each["values"]) for each in policy["spec"]["podSelector"]["matchExpressions"]] != [roles]:
            yield "networkPolicy.extraEgress is for other roles"


def _asked_of_pod(component: str, metadata: Object, pod: Object, asked: Mapping[str, Any]) -> Iterator[str]:
    container = pod["containers"][0]
    tolerations = list(asked.get("tolerations") or ())
    if asked.get("gpus"):
        tolerations.append({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"})
        if (container.get("resources") or {}).get("limits", {}).get("nvidia.com/gpu") != str(asked["gpus"]):
            yield f"{component} has other GPUs"
    found = {name: pod.get(name) or None for name in ("tolerations", "nodeSelector", "priorityClassName", "affinity")}
    wanted = {name: asked.get(name) or None for name in found} | {"tolerations": tolerations or None}
    yield from differing(component, found, wanted)
    for name in ("env", "volumes", "volumeMounts"):
        entries = (pod if name == "volumes" else container).get(name) or ()
        if any(entry not in entries for entry in asked.get(name) or ()):
            yield f"{component} lacks some of {name}"
    if (container.get("envFrom") or None) != (asked.get("envFrom") or None):
        yield f"{component} has other variables"
    for kind, given in (("labels", asked.get("podLabels")), ("annotations", asked.get("podAnnotations"))):
        if not (given or {}).items() <= (metadata.get(kind) or {}).items():
            yield f"{component} lacks some of its {kind}"
