"""From a job to a release of the Helm chart: its name and its values."""

import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distrl.apps.config.kubernetes import at
from distrl.apps.jobs.kubernetes_checks import check_config, pod_bounds
from distrl.apps.jobs.kubernetes_commands import CHART, ClusterNamespace, namespace_of
from distrl.apps.jobs.record import CONFIG_FILE, Job
from distrl.config.document import parse_mapping
from distrl.environments.extras import extras_of
from distrl.errors import ConfigError
from distrl.memory_backend.access import user_name
from distrl.memory_backend.keys import with_namespace
from distrl.memory_backend.redis_address import parse_address, with_user
from distrl.roles.plan import cores_beside_actors, role_needs

LONGEST_NAME = 30
"""Longest name that the chart takes for its objects, to which it appends the part of the run."""
IN_ENVIRONMENTS_IMAGE = {"atari", "box2d", "image", "mujoco"}
"""Extras for environments that distrl/actor lacks, and that distrl/actor-environments and the learner's images have."""


@dataclass(frozen=True)
class Release:
    """The release of the chart that a job becomes.

    Attributes:
        name: First part of the names of its objects.
        values: Values of the chart, with the secrets of the configuration.
        secret: Name of the Secret that distrl makes for it; None: it names one that exists.
    """

    place: ClusterNamespace
    name: str
    values: dict[str, Any]
    secret: str | None


def release_of(job: Job, *, secrets: bool = True) -> Release:
    """Return the release of a job; without `secrets`, those of its configuration are masked.

    Raises:
        ConfigError: The job cannot run on Kubernetes, or there is no such context.
    """
    check_config(job.config)
    settings = job.config.kubernetes
    name = object_name(job.run_id)
    existing = at(settings.values, "secret.existing")
    own = {"fullnameOverride": name, "secret": {"existing": existing or name}}
    values = merged(own, _derived(job, secrets=secrets), settings.values)
    return Release(_place(job), name, values, None if existing else name)


def _place(job: Job) -> ClusterNamespace:
    name = job.config.kubernetes.namespace
    try:
        return namespace_of(job.address, name)
    except ConfigError:
        if job.dry and job.address is None:
            return ClusterNamespace("", name or "default")
        raise


def object_name(run_id: str) -> str:
    """Return the name of a run's objects: the run id, or, where it is too long, its beginning and a checksum."""
    if len(run_id) <= LONGEST_NAME:
        return run_id
    return f"{run_id[: LONGEST_NAME - 9].rstrip('-')}-{hashlib.sha256(run_id.encode()).hexdigest()[:8]}"


def run_dir_of(run_id: str) -> str:
    """Return the path of a run's directory in the learner's Pod."""
    return f"/runs/{run_id}"


def merged(*trees: Mapping[str, Any]) -> dict[str, Any]:
    """Return trees merged key by key; the last one wins."""
    result: dict[str, Any] = {}
    for tree in trees:
        for key, value in tree.items():
            known = result.get(key)
            if isinstance(known, Mapping) and isinstance(value, Mapping):
                value = merged(known, value)
            result[key] = value
    return result


def _derived(job: Job, *, secrets: bool) -> dict[str, Any]:
    """Return the values that follow from the configuration."""
    config = job.config
    settings = config.kubernetes
    per_pod = settings.per_pod
    needs = role_needs(config)
    in_learner = cores_beside_actors(config)
    follows = bool(at(settings.values, "autoscaling.enabled", False))
    values: dict[str, Any] = {
        "run": {"config": _run_config(job, follows=follows, secrets=secrets)},
        "learner": {"gpus": needs[0].gpus, "resources": _cores(in_learner, 2 * in_learner)},
        "actors": {
            "replicas": config.actors.count // per_pod,
            "perPod": per_pod,
            "resources": {
                "requests": {"cpu": str(per_pod), "memory": f"{per_pod}Gi"},
                "limits": {"cpu": str(per_pod + 1), "memory": f"{2 * per_pod}Gi"},
            },
        },
    }
    if extras_of(config.environment) & IN_ENVIRONMENTS_IMAGE:
        values["images"] = {"actor": {"repository": "distrl/actor-environments"}}
    if config.memory.url is not None:
        values["redis"] = {"mode": "external", "external": _redis_urls(config.memory.url, config.memory.namespace)}
    if end_s := config.end_s:  # the end waits so much longer, and needs Redis for a data store
        values["learner"]["terminationGracePeriodSeconds"] = _default("learner.terminationGracePeriodSeconds") + end_s
        if config.memory.url is None:
            grace_s = _default("redis.terminationGracePeriodSeconds") + end_s
            values["redis"] = {"terminationGracePeriodSeconds": grace_s}
    if config.launch.wait_s:
        values["learner"]["waitSeconds"] = math.ceil(config.launch.wait_s)
    if follows:
        least, most = pod_bounds(config)
        values["autoscaling"] = {"minReplicas": least, "maxReplicas": most}
    return values


def _default(path: str) -> Any:
    """Return the chart's default for a dotted path of its values."""
    return at(chart_values(), path)


@functools.cache
def chart_values() -> dict[str, Any]:
    """Return the chart's default values."""
    path = CHART / "values.yaml"
    return parse_mapping(path.read_text(encoding="utf-8"), str(path))


def _redis_urls(url: str, namespace: str) -> dict[str, str]:
    """Return the URLs for learner, actors and dashboard, with a user for each; only the learner's configuration names
    the namespace, so the other URLs do."""
    user = parse_address(url).user

    def of(role: str) -> str:
        return with_namespace(url if user is None else with_user(url, user_name(namespace, role)), namespace)

    return {"url": url, "actorUrl": of("actor"), "dashboardUrl": of("operator")}


def _run_config(job: Job, *, follows: bool, secrets: bool) -> dict[str, Any]:
    """Return the configuration without the settings that the chart makes of its values."""
    tree = parse_mapping(job.config_text(secrets=secrets), CONFIG_FILE)
    tree.pop("kubernetes", None)
    taken = {"actors": ["count"], "memory": ["url"], "launch": ["start_actors", "launcher", "wait_s"]}
    if job.config.device == "gpu":
        taken["learner"] = ["device"]
    for section, keys in taken.items():
        for key in keys:
            tree.get(section, {}).pop(key, None)
    if follows:
        tree = merged(tree, {"actors": {"autoscale": {"enabled": True}}})
    return {section: value for section, value in tree.items() if value != {}}


def _cores(requested: int, limit: int) -> dict[str, Any]:
    return {"requests": {"cpu": str(requested)}, "limits": {"cpu": str(limit)}}
