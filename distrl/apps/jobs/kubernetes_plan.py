"""The plan of a job on Kubernetes: manifests, missing protections, and notes. The cluster is not asked."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from distrl.apps.config.kubernetes import at
from distrl.apps.jobs.kubernetes_checks import notes_on_data, notes_on_store
from distrl.apps.jobs.kubernetes_commands import rendered
from distrl.apps.jobs.kubernetes_pods import Pods, pods_in
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
from distrl.apps.jobs.target import Plan
from distrl.config.secrets import masked
from distrl.environments.extras import extras_of
from distrl.roles.plan import RoleNeed

_TRAINING = ("learner", "actor")


def plan_of(job: Job) -> Plan:
    """Return the plan: the Pods and their manifests.

    Raises:
        ConfigError: helm, kubectl or context are missing, the chart refuses a value, or the job cannot run there.
    """
    release = release_of(job)
    masked_values = release_of(job, secrets=False).values
    shown = _shown(masked_values)
    manifests = rendered(release.place, job.run_id, shown)
    pods = pods_in(manifests)
    return Plan(
        [_need(each, job.config.kubernetes.per_pod) for each in pods],
        run_dir=run_dir_of(job.run_id),
        disk=_disk(release),
        code="of the images " + ", ".join(dict.fromkeys(each.image for each in pods if each.component in _TRAINING)),
        unprotected=[*_unprotected(job, release.values, masked_values)],
        notes=[*notes_on_store(job.config), *notes_on_data(job.config), *_notes_on_code(job)],
        files={
            "values.yaml": yaml.safe_dump(shown, sort_keys=True, allow_unicode=True, width=120),
            "manifests.yaml": manifests,
        },
    )


def _disk(release: Release) -> str:
    """Return in words on what disk the run's directory is."""
    chosen = merged(chart_values()["persistence"], at(release.values, "persistence", {}))
    return f"the claim {chosen['existingClaim'] or f'{release.name}-runs'}" if chosen["enabled"] else "its node's disk"


def _need(pods: Pods, per_pod: int) -> RoleNeed:
    several = "actor Pod" if per_pod > 1 else "actor"
    role = several if pods.component == "actor" else pods.component
    return RoleNeed(role, pods.count, pods.cpus, pods.gpus)


def _notes_on_code(job: Job) -> Iterator[str]:
    """Yield a line if the environment needs an extra that no image of distrl has, and the images are not named."""
    lacking = extras_of(job.config.environment) - IN_ENVIRONMENTS_IMAGE
    unnamed = [role for role in _TRAINING if not at(job.config.kubernetes.values, f"images.{role}.repository")]
    if lacking and unnamed:
        where = " and ".join(f"kubernetes.values.images.{role}" for role in unnamed)
        yield f"no image of distrl has the extra {', '.join(sorted(lacking))}, which the environment needs; set {where}"


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
