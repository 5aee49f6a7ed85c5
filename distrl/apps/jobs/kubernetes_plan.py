"""The plan of a job on Kubernetes: manifests, room on the nodes, missing protections, and notes."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from distrl.apps.config.kubernetes import at
from distrl.apps.jobs.kubernetes_checks import notes_on_store
from distrl.apps.jobs.kubernetes_commands import Namespace, read, rendered
from distrl.apps.jobs.kubernetes_room import GPU, PodNode, Pods, nodes_of, pods_in, room_words, shortage
from distrl.apps.jobs.kubernetes_values import (
    IN_ENVIRONMENTS_IMAGE,
    Release,
    chart_values,
    merged,
    release_of,
    run_dir_of,
)
from distrl.apps.jobs.protection import unprotected
from distrl.apps.jobs.record import Job
from distrl.apps.jobs.target import NoAnswerError, Plan
from distrl.config.secrets import masked
from distrl.environments.extras import extras_of
from distrl.errors import ConfigError
from distrl.roles.plan import RoleNeed

_TRAINING = ("learner", "actor")


def plan_of(job: Job) -> Plan:
    """Return the plan: what the nodes have, and the manifests; each query of the API takes at most 10 s.

    Raises:
        ConfigError: helm, kubectl, context or namespace are missing, the chart refuses a value, the job cannot run
            there, or the nodes never have room for it.
    """
    release = release_of(job)
    masked_values = release_of(job, secrets=False).values
    shown = _shown(masked_values)
    manifests = rendered(release.place, job.run_id, shown)
    pods = pods_in(manifests)
    nodes, unchecked = _nodes(release.place, dry=job.dry)
    if nodes is not None and not job.wait and (short := shortage(pods, nodes)):
        raise ConfigError(
            f"Kubernetes can never run all Pods at once: {short}; lower --actors, learner.threads or the requests in "
            "kubernetes.values, or add --wait if an autoscaler adds nodes"
        )
    return Plan(
        [_need(each, job.config.kubernetes.per_pod) for each in pods],
        run_dir=run_dir_of(job.run_id),
        disk=_disk(release),
        available="" if nodes is None else room_words(pods, nodes),
        code="of the images " + ", ".join(dict.fromkeys(each.image for each in pods if each.component in _TRAINING)),
        unprotected=[*_unprotected(job, release.values, masked_values)],
        unchecked=unchecked,
        notes=[*notes_on_store(job.config), *_notes_on_code(job)],
        files={
            "values.yaml": yaml.safe_dump(shown, sort_keys=True, allow_unicode=True, width=120),
            "manifests.yaml": manifests,
        },
    )


def _nodes(place: Namespace, *, dry: bool) -> tuple[list[PodNode] | None, list[str]]:
    """Return the nodes, None where they may not be seen; and a note where a dry run has no answer of the cluster."""
    if not place.context:
        return None, ["kubectl has no current context: namespace and room were not checked"]
    try:
        _check_namespace(place)
        return nodes_of(place), []
    except NoAnswerError as error:
        if not dry:
            raise
        return None, [f"namespace and room were not checked: {error}"]


def _disk(release: Release) -> str:
    """Return in words on what disk the run's directory is."""
    chosen = merged(chart_values()["persistence"], at(release.values, "persistence", {}))
    return f"the claim {chosen['existingClaim'] or f'{release.name}-runs'}" if chosen["enabled"] else "its node's disk"


def _need(pods: Pods, per_pod: int) -> RoleNeed:
    several = "actor Pod" if per_pod > 1 else "actor"
    role = several if pods.component == "actor" else pods.component
    return RoleNeed(role, pods.count, pods.requests.get("cpu", 0.0), int(pods.requests.get(GPU, 0.0)))


def _notes_on_code(job: Job) -> Iterator[str]:
    """Yield a line if the environment needs an extra that no image of distrl has, and the images are not named."""
    lacking = extras_of(job.config.environment) - IN_ENVIRONMENTS_IMAGE
    unnamed = [role for role in _TRAINING if not at(job.config.kubernetes.values, f"images.{role}.repository")]
    if lacking and unnamed:
        where = " and ".join(f"kubernetes.values.images.{role}" for role in unnamed)
        yield f"no image of distrl has the extra {', '.join(sorted(lacking))}, which the environment needs; set {where}"


def _check_namespace(place: Namespace) -> None:
    try:
        found = read(place, f"/api/v1/namespaces/{place.name}")
    except ConfigError as error:
        if "(Forbidden)" not in str(error):
            raise
        return  # it may be there: the installation says so
    if found is None:
        raise ConfigError(
            f"there is no namespace {place.name} at context {place.context}; kubectl create namespace {place.name}, or "
            "set kubernetes.namespace"
        )


def _unprotected(job: Job, values: Mapping[str, Any], masked_values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each protection that the job lacks, by its values with and without secrets."""
    chosen = merged(chart_values(), values)
    if job.config.memory.url is None:
        if not chosen["redis"]["tls"]["enabled"]:
            yield "traffic with Redis is not encrypted (kubernetes.values.redis.tls)"
    else:
        yield from unprotected(job.config, knows_password=False)  # the Secret has it
    if not chosen["networkPolicy"]["enabled"]:
        yield "any Pod of the cluster reaches Redis and the dashboard (kubernetes.values.networkPolicy.enabled)"
    if not chosen["persistence"]["enabled"] and job.config.checkpoint.store is None:
        yield "checkpoints and logs are lost with the learner's Pod (kubernetes.values.persistence.enabled)"
    if values["run"] != masked_values["run"]:  # the URL of Redis and kubernetes.values are in no ConfigMap
        yield "the configuration's secrets are in a ConfigMap, for all who may read those of the namespace"


def _shown(node: Any, name: str = "") -> Any:
    """Return values of the chart with secrets masked: text under the name of one, and variables of such a name."""
    if isinstance(node, Mapping):
        if isinstance(variable := node.get("name"), str) and "value" in node:
            return {**node, "value": masked(variable, node["value"])}
        return {key: _shown(value, key) for key, value in node.items()}
    if isinstance(node, list):
        return [_shown(each, name) for each in node]
    return masked(name, node) if isinstance(node, str) else node
