"""Checks that a configuration can train on Kubernetes."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from distrl.apps.config.configuration import Configuration
from distrl.apps.config.kubernetes import at
from distrl.config.secrets import split_password_file
from distrl.errors import ConfigError
from distrl.memory_backend.access import user_name
from distrl.memory_backend.redis_address import parse_address
from distrl.roles.plan import ACTORS_ON_CLUSTER

_CREDENTIALS = ("learner.envFrom", "learner.env", "learner.volumes", "serviceAccount.annotations")
"""Values by which a learner can have credentials."""

LONGEST_GIVE_UP_S = 1740
"""Longest `checkpoint.store_give_up_s`: the learner's Pod gets twice that and 120 s for its end, at most 3,600 s."""


def check_config(config: Configuration) -> None:
    """Raise ConfigError if a run with this configuration cannot train on Kubernetes."""
    if config.launch.launcher != "process":
        raise ConfigError(f"launch.launcher: {config.launch.launcher} has no use with --on kubernetes; leave it out")
    if config.deterministic:
        raise ConfigError("the run is one process (launch.mode), which needs no cluster; use --on here")
    if not config.launch.start_actors:
        raise ConfigError("--no-actors has no use with --on kubernetes, which starts the actors; leave it out")
    pods_for(config.actors.count, config.kubernetes.per_pod)
    _check_launch(config)
    _check_paths(config)
    if config.checkpoint.store is not None:
        _check_store(config, config.checkpoint.store)
    if config.memory.url is not None:
        _check_redis(config, config.memory.url)
        return
    for name in ("listen", "namespace"):
        if config.memory.is_changed(name):
            raise ConfigError(f"memory.{name} has no use with --on kubernetes, whose chart has a Redis; leave it out")


def _check_redis(config: Configuration, url: str) -> None:
    address = parse_address(url)
    if address.is_here:
        raise ConfigError(
            f"memory.url {address.public}: each Pod would look for Redis on itself; name an address that "
            "all Pods reach, or leave it out: the chart has a Redis"
        )
    if at(config.kubernetes.values, "secret.existing") is None:
        raise ConfigError(
            "memory.url names a Redis of yours, so that its passwords must be in a Secret: name it in "
            "kubernetes.values.secret.existing"
        )
    expected = user_name(config.memory.namespace, "learner")
    others = ("redis.external.actorUrl", "redis.external.dashboardUrl")
    if address.user not in (None, expected) and not all(at(config.kubernetes.values, path) for path in others):
        raise ConfigError(
            f"the user in memory.url is not {expected}, that of `distrl redis acl` for memory.namespace "
            f"{config.memory.namespace}, so that those of actors and dashboard do not follow from it: set "
            f"kubernetes.values.{others[0]} and {others[1]}"
        )


def _check_launch(config: Configuration) -> None:
    waits = at(config.kubernetes.values, "learner.waitSeconds")
    if config.launch.wait_s and waits is not None:
        raise ConfigError(
            f"launch.wait_s: {config.launch.wait_s:g} and kubernetes.values.learner.waitSeconds: {waits} are the same "
            "setting; leave one of them out"
        )


def _check_paths(config: Configuration) -> None:
    """Raise ConfigError if the configuration names a path that is on this host, and not in the learner's Pod."""
    tls, address = config.memory.tls, parse_address(config.memory.url or "redis://")
    if tls.ca_file is not None:
        raise ConfigError(
            f"memory.tls.ca_file: {tls.ca_file} is a path of this host: put the certificate into a Secret as ca.crt, "
            "and name that in kubernetes.values.redis.external.caSecretName"
        )
    if tls.cert_file is not None or tls.key_file is not None:
        raise ConfigError(
            "memory.tls.cert_file and key_file have no use with --on kubernetes: the chart gives its Pods no "
            "certificate of a client; use passwords (distrl redis acl)"
        )
    if address.files or split_password_file(address.url)[1] is not None:
        raise ConfigError(
            "memory.url names files of this host: passwords are in the Secret kubernetes.values.secret.existing, and "
            "the authority's certificate in that of kubernetes.values.redis.external.caSecretName"
        )
    store, weights = config.checkpoint.store or "", config.learner.init_from or ""
    for name, path, other in (
        ("checkpoint.store", store.removeprefix("file://"), "a bucket, or "),
        ("learner.init_from", weights.removeprefix("file://"), "a run in a data store, or "),
        *(("data.sets", each.name, "") for each in config.data.sets),
        *(("evaluation.off_policy.sets", each.name, "") for each in config.evaluation.off_policy.sets),
        ("recording.name", config.recording.name or "", ""),
    ):
        if path.startswith("/") and not any(Path(path).is_relative_to(folder) for folder in _mounted(config)):
            raise ConfigError(
                f"{name}: {path} is a path of this host; name {other}a path in the learner's Pod: below /runs, "
                "which is its claim, or a mountPath of kubernetes.values.learner.volumeMounts"
            )


def _mounted(config: Configuration) -> list[str]:
    mounts = at(config.kubernetes.values, "learner.volumeMounts") or []
    paths = [mount.get("mountPath") for mount in mounts if isinstance(mount, Mapping)]
    return ["/runs", *(path for path in paths if isinstance(path, str))]


def _check_store(config: Configuration, store: str) -> None:
    give_up_s = config.checkpoint.store_give_up_s
    if give_up_s > LONGEST_GIVE_UP_S:
        raise ConfigError(
            f"checkpoint.store_give_up_s: {give_up_s:g} is more than {LONGEST_GIVE_UP_S}: the end of the learner's Pod "
            "may take twice that, and the chart allows it 3600 s"
        )
    values = config.kubernetes.values
    denied = at(values, "networkPolicy.enabled", True) and not at(values, "networkPolicy.extraEgress")
    if denied and not store.startswith("file:"):
        raise ConfigError(
            f"checkpoint.store {store}: the chart's network policies keep the learner from it; allow it in "
            "kubernetes.values.networkPolicy.extraEgress, such as [{ports: [{port: 443}]}]"
        )


def notes_on_store(config: Configuration) -> Iterator[str]:
    """Yield a line if nothing in the values can have credentials of the run's data store."""
    store, values = config.checkpoint.store, config.kubernetes.values
    if store is None or store.startswith("file:"):
        return
    if not any(at(values, path) for path in _CREDENTIALS):
        yield (
            f"kubernetes.values name no credentials of {store} ({', '.join(_CREDENTIALS)}): the learner has those of "
            "its node alone"
        )


def notes_on_data(config: Configuration) -> Iterator[str]:
    """Yield a line if a data set is read from a folder of the learner's Pod, or written to it, that no value names."""
    sets = [each.name for each in (*config.data.sets, *config.evaluation.off_policy.sets)]
    names = [name for name in (*sets, config.recording.name) if name is not None and not name.startswith("/")]
    variables = [each.get("name") for each in at(config.kubernetes.values, "learner.env") or []]
    if names and "MINARI_DATASETS_PATH" not in variables:
        yield (
            f"data set {names[0]} is one of MINARI_DATASETS_PATH in the learner's image, or ~/.minari/datasets in its "
            "Pod; set the variable in kubernetes.values.learner.env, and mount a volume there"
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


def pod_bounds(config: Configuration) -> tuple[int, int]:
    """Return the fewest and the most Pods of actors within the bounds of `actors.autoscale`.

    Raises:
        ConfigError: No number of whole Pods is within them.
    """
    bounds, per_pod = config.actors.autoscale, config.kubernetes.per_pod
    least = math.ceil(bounds.min_count / per_pod)
    limit = bounds.max_count or config.actors.max_count
    most = max(ACTORS_ON_CLUSTER // per_pod, least) if limit is None else limit // per_pod
    if most < least:
        name = "actors.max_count" if bounds.max_count is None else "actors.autoscale.max_count"
        raise ConfigError(
            f"no whole Pod of {per_pod} actors (kubernetes.values.actors.perPod) is within "
            f"actors.autoscale.min_count: {bounds.min_count} and {name}: {limit}; change one of them"
        )
    return least, most
