"""The Pods of a release and what they request, as its manifests have them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from distrl.apps.jobs.kubernetes_commands import COMPONENT, Object

GPU = "nvidia.com/gpu"
_UNITS = {"m": 1e-3, "": 1.0, "k": 1e3}
_QUANTITY = re.compile(r"([0-9.]+(?:[eE][0-9]+)?)([A-Za-z]*)", re.ASCII)
_MAKERS = ("Job", "Deployment", "StatefulSet")
_HOOK = "helm.sh/hook"


@dataclass(frozen=True)
class Pods:
    """The Pods of one component of a release, all alike. Each requests `cpus` cores and `gpus` GPUs."""

    component: str
    count: int
    image: str
    cpus: float
    gpus: int


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


def quantity(text: object) -> float:
    """Return the number of a quantity of cores or GPUs, such as "3920m"; 0 for what is none."""
    found = _QUANTITY.fullmatch(str(text))
    return float(found[1]) * _UNITS.get(found[2], 0.0) if found else 0.0


def _pods(maker: Object, least: int) -> Pods:
    containers = maker["spec"]["template"]["spec"]["containers"]
    return Pods(
        component=maker["metadata"]["labels"][COMPONENT],
        count=int(maker["spec"].get("replicas", least)) if maker["kind"] != "Job" else 1,
        image=containers[0]["image"],
        cpus=sum(_request(each, "cpu") for each in containers),
        gpus=int(sum(_request(each, GPU) for each in containers)),
    )


def _request(container: Object, name: str) -> float:
    """Return the request of a container; a limit without a request is one, too."""
    resources: Mapping[str, Mapping[str, object]] = container.get("resources", {})
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return quantity(asked.get(name, 0))
