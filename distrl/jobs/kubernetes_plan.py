"""From a job to the values of the Helm chart, with a check that the cluster can ever have room for it."""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from distrl.config import RunConfig
from distrl.config.document import parse_mapping
from distrl.config.kubernetes import at
from distrl.config.secrets import masked
from distrl.errors import ConfigError
from distrl.jobs.kubernetes_commands import CHART, Namespace, Object, namespace_of, read, rendered, require_programs
from distrl.jobs.protection import unprotected
from distrl.jobs.record import CONFIG_FILE, Job
from distrl.jobs.target import Plan
from distrl.launch.ray_cluster import Node, shortage
from distrl.memory_backend.redis_address import parse_address
from distrl.roles.plan import role_needs

LONGEST_ID = 53
"""Longest name of a Helm release."""
LONGEST_NAME = 30
"""Longest name that the chart takes for its objects, to which it appends the part of the run."""
_ID = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_GPU = "nvidia.com/gpu"
_UNITS = {"m": 1e-3, "": 1.0, "k": 1e3}
_QUANTITY = re.compile(r"([0-9.]+)(m|k|)", re.ASCII)


@dataclass(frozen=True)
class Release:
    """The release of the chart that a job becomes.

    Attributes:
        name: Of its objects, in front of their parts.
        values: Of the chart, with the secrets of the configuration.
        secret: Name of the Secret that distrl makes for it; None: it names one that exists.
    """

    place: Namespace
    name: str
    values: dict[str, Any]
    secret: str | None


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
        available="" if nodes is None else _has(nodes),
        code=f"of the image {_image(release.values)}",
        unprotected=[*_unprotected(job, release.values)],
        files={
            "values.yaml": yaml.safe_dump(values, sort_keys=True, allow_unicode=True, width=120),
            "manifests.yaml": rendered(shown.place, job.run_id, values),
        },
    )


def release_of(job: Job, *, secrets: bool = True) -> Release:
    """Return the release of a job; without `secrets`, those of its configuration are masked.

    Raises:
        ConfigError: The job cannot run on Kubernetes, or there is no such context.
    """
    if len(job.run_id) > LONGEST_ID or not _ID.fullmatch(job.run_id):
        raise ConfigError(
            f"the run id {job.run_id} is no name for Kubernetes: use at most {LONGEST_ID} small letters, digits and "
            "'-', with a letter first; choose another --run-id"
        )
    check_config(job.loaded.config)
    require_programs()
    settings = job.loaded.config.kubernetes
    name = object_name(job.run_id)
    existing = at(settings.values, "secret.existing")
    own = {"fullnameOverride": name, "secret": {"existing": existing or name}}
    values = merged(own, _derived(job, secrets=secrets), settings.values)
    return Release(namespace_of(job.address, settings.namespace), name, values, None if existing else name)


def check_config(config: RunConfig) -> None:
    """Raise ConfigError if a run with this configuration cannot train on Kubernetes."""
    if config.launch.launcher != "process":
        raise ConfigError(f"launch.launcher: {config.launch.launcher} has no use with --on kubernetes; leave it out")
    if config.deterministic:
        raise ConfigError("actors.count: 0 is one process, which needs no cluster; use --on here")
    if not config.launch.start_actors:
        raise ConfigError("--no-actors has no use with --on kubernetes, which starts the actors; leave it out")
    pods_for(config.actors.count, config.kubernetes.per_pod)
    if config.memory.url is not None:
        _check_redis(config, config.memory.url)
        return
    for name in ("listen", "namespace"):
        if config.memory.is_changed(name):
            raise ConfigError(f"memory.{name} has no use with --on kubernetes, whose chart has a Redis; leave it out")


def _check_redis(config: RunConfig, url: str) -> None:
    if parse_address(url).is_here:
        raise ConfigError(
            f"memory.url {parse_address(url).public}: each Pod would look for Redis on itself; name an address that "
            "all Pods reach, or leave it out: the chart has a Redis"
        )
    if at(config.kubernetes.values, "secret.existing") is None:
        raise ConfigError(
            "memory.url names a Redis of yours, so that its passwords must be in a Secret: name it in "
            "kubernetes.values.secret.existing"
        )


def pods_for(actors: int, per_pod: int) -> int:
    """Return the number of Pods with so many actors.

    Raises:
        ConfigError: A Pod would have fewer than `per_pod`.
    """
    if actors % per_pod:
        raise ConfigError(
            f"actors: {actors} is no multiple of {per_pod}, the number of actors in each Pod "
            "(kubernetes.values.actors.perPod)"
        )
    return actors // per_pod


def object_name(run_id: str) -> str:
    """Return the name of a run's objects: the run id, or, where it is too long, its beginning and a checksum."""
    if len(run_id) <= LONGEST_NAME:
        return run_id
    return f"{run_id[: LONGEST_NAME - 9].rstrip('-')}-{hashlib.sha256(run_id.encode()).hexdigest()[:8]}"


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


def _derived(job: Job, *, secrets: bool) -> dict[str, Any]:
    """Return the values that follow from the configuration."""
    config = job.loaded.config
    settings = config.kubernetes
    per_pod = settings.per_pod
    needs = role_needs(config)
    in_learner = sum(need.count * need.cpus for need in needs if need.role != "actor")
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
    if config.memory.url is not None:
        values["redis"] = {"mode": "external", "external": {"url": config.memory.url}}
    if follows:
        bounds = config.actors.autoscale
        most = bounds.max_count or config.actors.max_count
        values["autoscaling"] = {
            "minReplicas": math.ceil(bounds.min_count / per_pod),
            **({} if most is None else {"maxReplicas": max(most // per_pod, 1)}),
        }
    return values


def _run_config(job: Job, *, follows: bool, secrets: bool) -> dict[str, Any]:
    """Return the configuration without the settings that the chart makes of its values."""
    tree = parse_mapping(job.config_text(secrets=secrets), CONFIG_FILE)
    tree.pop("kubernetes", None)
    taken = {"actors": ["count"], "memory": ["url"], "launch": ["start_actors", "launcher"]}
    if job.loaded.config.device == "gpu":
        taken["learner"] = ["device"]
    for section, keys in taken.items():
        for key in keys:
            tree.get(section, {}).pop(key, None)
    if follows:
        tree = merged(tree, {"actors": {"autoscale": {"enabled": True}}})
    return {section: value for section, value in tree.items() if value != {}}


def _cores(requested: int, limit: int) -> dict[str, Any]:
    return {"requests": {"cpu": str(requested)}, "limits": {"cpu": str(limit)}}


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


def _node(item: Object) -> Node:
    has = item["status"].get("allocatable", {})
    return Node(cpus(has.get("cpu", "0")), float(has.get(_GPU, 0)), item["metadata"]["name"], {})


def _has(nodes: Sequence[Node]) -> str:
    gpus = sum(node.gpus for node in nodes)
    where = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    return f"{sum(node.cpus for node in nodes):g} CPU{f', {gpus:g} GPU' if gpus else ''} on {where}"


def _image(values: Mapping[str, Any]) -> str:
    """Return the learner's image as far as the values name it."""
    image = merged(_defaults()["images"], values.get("images", {}))
    learner = image["learner"]
    registry = f"{image['registry']}/" if image["registry"] else ""
    mark = f"@{learner['digest']}" if learner["digest"] else f":{learner['tag']}" if learner["tag"] else ""
    return f"{registry}{learner['repository']}{mark}"


def _defaults() -> dict[str, Any]:
    return parse_mapping((CHART / "values.yaml").read_text(encoding="utf-8"), str(CHART / "values.yaml"))


def _unprotected(job: Job, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each protection that the job lacks."""
    chosen = merged(_defaults(), values)
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
