"""The room that the nodes of a Kubernetes cluster have for Pods."""

import re
from collections.abc import Sequence

from distrl.errors import ConfigError
from distrl.jobs.kubernetes_commands import Namespace, Object, read
from distrl.launch.ray_cluster import Node

_GPU = "nvidia.com/gpu"
_UNITS = {"m": 1e-3, "": 1.0, "k": 1e3}
_QUANTITY = re.compile(r"([0-9.]+)(m|k|)", re.ASCII)


def nodes_of(place: Namespace) -> list[Node] | None:
    """Return the nodes that take Pods; None where this user may not see them."""
    try:
        found = read(place, "/api/v1/nodes")
    except ConfigError as error:
        if "(Forbidden)" not in str(error):
            raise
        return None
    items = [] if found is None else found["items"]
    return [_node(item) for item in items if not item.get("spec", {}).get("unschedulable")]


def cpus(quantity: str) -> float:
    """Return the cores of a quantity of Kubernetes, such as "3920m"; 0 for one that counts no cores."""
    found = _QUANTITY.fullmatch(quantity)
    return float(found[1]) * _UNITS[found[2]] if found else 0.0


def _node(item: Object) -> Node:
    has = item["status"].get("allocatable", {})
    return Node(cpus(has.get("cpu", "0")), float(has.get(_GPU, 0)), item["metadata"]["name"], {})


def words_of(nodes: Sequence[Node]) -> str:
    """Return what nodes have, in words."""
    gpus = sum(node.gpus for node in nodes)
    where = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    return f"{sum(node.cpus for node in nodes):g} CPU{f', {gpus:g} GPU' if gpus else ''} on {where}"
