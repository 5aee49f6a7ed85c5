"""The plan of a job on Kubernetes: manifests, room on the nodes, and what is not protected, and notes."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from distrl.config.secrets import masked
from distrl.errors import ConfigError
from distrl.jobs.kubernetes_checks import notes_on_store
from distrl.jobs.kubernetes_commands import Namespace, read, rendered
from distrl.jobs.kubernetes_room import nodes_of, words_of
from distrl.jobs.kubernetes_values import chart_values, merged, release_of
from distrl.jobs.protection import unprotected
from distrl.jobs.record import Job
from distrl.jobs.target import Plan
from distrl.launch.ray_cluster import shortage
from distrl.roles.plan import role_needs


def plan_of(job: Job) -> Plan:
    """Return the plan: what the nodes have, and the manifests; takes at most 10 s where the API does not answer.

    Raises:
        ConfigError: helm, kubectl, context or namespace are missing, the chart refuses a value, the job cannot run
            there, or the nodes never have room for it.
    """
    release = release_of(job)
    _check_namespace(release.place)
    nodes = nodes_of(release.place)
    needs = role_needs(job.loaded.config)
    if nodes is not None and not job.wait and (short := shortage(needs, nodes)):
        raise ConfigError(
            f"Kubernetes can never run all roles at once: {short}; lower --actors or learner.threads, or add --wait if "
            "an autoscaler adds nodes"
        )
    shown = release_of(job, secrets=False)
    values = _shown(shown.values)
    return Plan(
        needs,
        available="" if nodes is None else words_of(nodes),
        code=f"of the image {_image(release.values)}",
        unprotected=[*_unprotected(job, release.values)],
        notes=[*notes_on_store(job.loaded.config)],
        files={
            "values.yaml": yaml.safe_dump(values, sort_keys=True, allow_unicode=True, width=120),
            "manifests.yaml": rendered(shown.place, job.run_id, values),
        },
    )


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


def _image(values: Mapping[str, Any]) -> str:
    """Return the learner's image as far as the values name it."""
    image = merged(chart_values()["images"], values.get("images", {}))
    learner = image["learner"]
    registry = f"{image['registry']}/" if image["registry"] else ""
    mark = f"@{learner['digest']}" if learner["digest"] else f":{learner['tag']}" if learner["tag"] else ""
    return f"{registry}{learner['repository']}{mark}"


def _unprotected(job: Job, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each protection that the job lacks."""
    chosen = merged(chart_values(), values)
    if job.loaded.config.memory.url is None:
        if not chosen["redis"]["tls"]["enabled"]:
            yield "traffic with Redis is not encrypted (kubernetes.values.redis.tls)"
    else:
        yield from (line for line in unprotected(job.loaded.config) if "password" not in line)
    if not chosen["networkPolicy"]["enabled"]:
        yield "any Pod of the cluster reaches Redis and the dashboard (kubernetes.values.networkPolicy.enabled)"
    if not chosen["persistence"]["enabled"]:
        yield "checkpoints and logs are lost with the learner's Pod (kubernetes.values.persistence.enabled)"
    if job.config_text(secrets=False) != job.config_text(secrets=True):
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
