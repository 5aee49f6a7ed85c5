"""KubernetesConfig: values for the chart that `distrl submit --on kubernetes` installs."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from distrl.config.section import Section

_OWN = {
    "actors.replicas": "actors.count and actors.perPod set it",
    "dashboard.enabled": "distrl stop and distrl autoscale send their requests from the dashboard's Pod",
    "fullnameOverride": "--run-id names the objects",
    "learner.gpus": "set learner.device: gpu, and learner.replicas for several GPUs",
    "mode": "the job is made of Pods; for a Ray cluster use --on ray",
    "nameOverride": "--run-id names the objects",
    "redis.external.url": "set memory.url",
    "redis.mode": "it is external with memory.url, and else own",
    "run": "the job's configuration is in its place",
}
"""Values of the chart that distrl sets itself, each with the reason."""


class KubernetesConfig(Section):
    """Jobs of `distrl submit --on kubernetes`. Nothing else reads it: `distrl train` trains on its own machine."""

    namespace: str | None = Field(None, pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    """The namespace of the job; null: that of the context."""
    values: dict[str, Any] = Field(default_factory=dict)
    """Values of the Helm chart, like `images: {registry: registry.example.com}` or `learner: {nodeSelector: {pool:
    gpu}}`. They are merged key by key with those that follow from the rest of the configuration, and win."""

    @field_validator("values")
    @classmethod
    def _can_be_set(cls, values: dict[str, Any]) -> dict[str, Any]:
        for path, why in _OWN.items():
            if _is_given(values, path):
                raise ValueError(f"{path} is not yours to set: {why}; leave it out")
        if _is_given(values, "secret.existing") and not at(values, "secret.existing"):
            raise ValueError("secret.existing must be the name of a Secret; leave it out for one of the job's own")
        per_pod = at(values, "actors.perPod", 1)
        if isinstance(per_pod, bool) or not isinstance(per_pod, int) or per_pod < 1:
            raise ValueError(f"actors.perPod: {per_pod!r} must be a whole number, at least 1")
        return values

    @property
    def per_pod(self) -> int:
        """Number of actors in each Pod."""
        return int(at(self.values, "actors.perPod", 1))


def _is_given(tree: Mapping[str, Any], path: str) -> bool:
    """Whether a tree has a value at a dotted path, or takes away what is there: helm drops defaults for null."""
    node: Any = tree
    for key in path.split("."):
        if not isinstance(node, Mapping):
            return True
        if key not in node:
            return False
        node = node[key]
    return True


def at(tree: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """Return the value at a dotted path of a tree; the default where there is none."""
    node: Any = tree
    for key in path.split("."):
        if not isinstance(node, Mapping) or key not in node:
            return default
        node = node[key]
    return node
