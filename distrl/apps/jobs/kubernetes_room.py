"""The room that a cluster has for the Pods of a release, by their requests and places in its manifests."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from distrl.apps.jobs.kubernetes_commands import COMPONENT, Namespace, Object, read
from distrl.errors import ConfigError

GPU = "nvidia.com/gpu"
_UNITS = {"m": 1e-3, "": 1.0, **{letter: 1e3**power for power, letter in enumerate("kMGTP", 1)}}
_UNITS |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTP", 1)}
_QUANTITY = re.compile(r"([0-9.]+(?:[eE][0-9]+)?)([A-Za-z]*)", re.ASCII)
_MAKERS = ("Job", "Deployment", "StatefulSet")
_HOOK = "helm.sh/hook"
_KEEP_AWAY = ("NoSchedule", "NoExecute")
"""Effects of taints that keep Pods off a node."""
_OWN_TAINTS = "node.kubernetes.io/"
"""Prefix of taints that Kubernetes itself sets and removes, such as not-ready and memory-pressure: they pass."""
_BY_HAND = ("node.kubernetes.io/unschedulable", "node.kubernetes.io/out-of-service")
"""Taints with this prefix that a person sets and removes."""
_ALWAYS_NAMED = ("cpu", "memory", GPU)
"""Resources that are named whether or not a Pod requests them."""
_NOT_COMPARED = ("ephemeral-storage",)


@dataclass(frozen=True)
class Pods:
    """The Pods of one component of a release, all alike.

    Attributes:
        requests: What one Pod requests: name of a resource -> amount, such as cpu in cores, memory in bytes, pods: 1.
        selector: Labels of the nodes on which they run.
    """

    component: str
    count: int
    image: str
    requests: Mapping[str, float]
    selector: Mapping[str, str]
    tolerations: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class PodNode:
    """A node that takes Pods. `has` is what it has for them, as `Pods.requests` name it."""

    has: Mapping[str, float]
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, Any]]

    def takes(self, pods: Pods) -> bool:
        """Whether the node selector and the tolerations of Pods let them run here."""
        if any(self.labels.get(name) != value for name, value in pods.selector.items()):
            return False
        return all(any(_tolerates(each, taint) for each in pods.tolerations) for taint in self.taints if _stays(taint))

    def fits(self, pods: Pods) -> int:
        """Return how many of these Pods fit on the node when it is empty."""
        parts = (self.has.get(name, 0.0) / amount for name, amount in pods.requests.items() if amount)
        return math.floor(min(parts, default=0.0) + 1e-9)


def pods_in(manifests: str) -> list[Pods]:
    """Return the Pods of a rendered chart that run at the same time, the learner's first."""
    objects = [found for found in yaml.safe_load_all(manifests) if found]
    least = {
        found["spec"]["scaleTargetRef"]["name"]: found["spec"].get("minReplicaCount", 0)
        for found in objects
        if found["kind"] == "ScaledObject"
    }
    made = (
        each for each in objects if each["kind"] in _MAKERS and _HOOK not in each["metadata"].get("annotations", {})
    )
    pods = [_pods(maker, least.get(maker["metadata"]["name"], 1)) for maker in made]
    return sorted(pods, key=lambda each: each.component != "learner")


def nodes_of(place: Namespace) -> list[PodNode] | None:
    """Return the nodes that take Pods; None where this user may not see them."""
    try:
        found = read(place, "/api/v1/nodes")
    except ConfigError as error:
        if "(Forbidden)" not in str(error):
            raise
        return None
    items = [] if found is None else found["items"]
    return [_node(item) for item in items if not item.get("spec", {}).get("unschedulable")]


def shortage(all_pods: Sequence[Pods], nodes: Sequence[PodNode]) -> str | None:
    """Return what the nodes lack, with numbers, if they could not run all Pods even when idle; None if they could.

    Affinity is not considered.
    """
    for pods in (pods for pods in all_pods if pods.count):
        places = [node for node in nodes if node.takes(pods)]
        where = f"of {_nodes(nodes)}, its node selector and tolerations allow {len(places)}"
        room = sum(node.fits(pods) for node in places)
        if room >= pods.count:
            continue
        each = f"a Pod of {pods.component} requests {words_of(pods.requests)}"
        if not room:
            largest = max(places, key=lambda node: [node.has.get(name, 0.0) for name in (GPU, "cpu")], default=None)
            has = "" if largest is None else f", the largest with {words_of(_compared(largest.has, [pods]))}"
            return f"{each}; {where}{has}"
        return f"{each}, and there are {pods.count}; {where}, with room for {room}"
    used = [node for node in nodes if any(node.takes(pods) for pods in all_pods)]
    total, there = requests_of(all_pods), sum_of(node.has for node in used)
    short = {name: amount for name, amount in total.items() if amount > there.get(name, 0.0) + 1e-9}
    if not short:
        return None
    parts = ", ".join(f"{pods.component} {pods.count} × ({words_of(pods.requests)})" for pods in all_pods)
    has = words_of({name: there.get(name, 0.0) for name in short})
    return f"all Pods request {words_of(short)} ({parts}); {_nodes(used)} with {has} may run them"


def requests_of(all_pods: Sequence[Pods]) -> dict[str, float]:
    """Return what all Pods request together."""
    return sum_of({name: pods.count * amount for name, amount in pods.requests.items()} for pods in all_pods)


def room_words(all_pods: Sequence[Pods], nodes: Sequence[PodNode]) -> str:
    """Return in words what the nodes have on which the Pods may run."""
    used = [node for node in nodes if any(node.takes(pods) for pods in all_pods)]
    return f"{words_of(_compared(sum_of(node.has for node in used), all_pods))} on {_nodes(used)}"


def quantity(text: object) -> float:
    """Return the number of a quantity of Kubernetes, such as "3920m" or "4Gi"; 0 for what is none."""
    found = _QUANTITY.fullmatch(str(text))
    return float(found[1]) * _UNITS.get(found[2], 0.0) if found else 0.0


def words_of(amounts: Mapping[str, float]) -> str:
    """Return amounts of resources in words; the number of Pods only where there is nothing else."""
    parts = [f"{amounts['cpu']:g} CPU"] if "cpu" in amounts else []
    if "memory" in amounts:
        parts.append(f"{amounts['memory'] / 2**30:.3g} GiB")
    if amounts.get(GPU):
        parts.append(f"{amounts[GPU]:g} GPU")
    named = ("cpu", "memory", GPU, "pods")
    parts += [f"{amount:g} {name}" for name, amount in amounts.items() if name not in named and amount]
    return ", ".join(parts) or f"{amounts.get('pods', 0.0):g} Pods"


def sum_of(amounts: "Iterator[Mapping[str, float]]") -> dict[str, float]:
    """Return the sum of each resource."""
    total: dict[str, float] = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _pods(maker: Object, least: int) -> Pods:
    spec = maker["spec"]["template"]["spec"]
    requests = sum_of(_requests(container.get("resources", {})) for container in spec["containers"])
    return Pods(
        component=maker["metadata"]["labels"][COMPONENT],
        count=int(maker["spec"].get("replicas", least)) if maker["kind"] != "Job" else 1,
        image=spec["containers"][0]["image"],
        requests={**requests, "pods": 1.0},
        selector=spec.get("nodeSelector") or {},
        tolerations=spec.get("tolerations") or [],
    )


def _requests(resources: Object) -> dict[str, float]:
    """Return the requests of a container; a limit without a request is one, too."""
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantity(text) for name, text in asked.items() if name not in _NOT_COMPARED}


def _node(item: Object) -> PodNode:
    has = {name: quantity(text) for name, text in item["status"].get("allocatable", {}).items()}
    kept = {
        name: amount for name, amount in has.items() if name not in _NOT_COMPARED and not name.startswith("hugepages")
    }
    return PodNode(kept, item["metadata"].get("labels", {}), item.get("spec", {}).get("taints", []))


def _compared(has: Mapping[str, float], all_pods: Sequence[Pods]) -> dict[str, float]:
    """Return what nodes have of the resources that Pods request, and of those that are always named."""
    requested = {"pods", *_ALWAYS_NAMED, *(name for pods in all_pods for name in pods.requests)}
    return {name: amount for name, amount in has.items() if name in requested}


def _stays(taint: Mapping[str, Any]) -> bool:
    """Whether a taint keeps Pods off its node until a person takes it away."""
    key = str(taint["key"])
    return taint.get("effect") in _KEEP_AWAY and (key in _BY_HAND or not key.startswith(_OWN_TAINTS))


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return (toleration.get("key"), toleration.get("value", "")) == (taint["key"], taint.get("value", ""))


def _nodes(nodes: Sequence[PodNode]) -> str:
    return "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
