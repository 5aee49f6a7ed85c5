"""Checks that a configuration can train on Kubernetes."""

from collections.abc import Iterator

from distrl.config import RunConfig
from distrl.config.kubernetes import at
from distrl.errors import ConfigError
from distrl.memory_backend.access import user_name
from distrl.memory_backend.redis_address import parse_address

_CREDENTIALS = ("learner.envFrom", "learner.env", "learner.volumes", "serviceAccount.annotations")
"""Values by which a learner can have credentials."""


def check_config(config: RunConfig) -> None:
    """Raise ConfigError if a run with this configuration cannot train on Kubernetes."""
    if config.launch.launcher != "process":
        raise ConfigError(f"launch.launcher: {config.launch.launcher} has no use with --on kubernetes; leave it out")
    if config.deterministic:
        raise ConfigError("actors.count: 0 is one process, which needs no cluster; use --on here")
    if not config.launch.start_actors:
        raise ConfigError("--no-actors has no use with --on kubernetes, which starts the actors; leave it out")
    pods_for(config.actors.count, config.kubernetes.per_pod)
    if config.checkpoint.store is not None:
        _check_store(config, config.checkpoint.store)
    if config.memory.url is not None:
        _check_redis(config, config.memory.url)
        return
    for name in ("listen", "namespace"):
        if config.memory.is_changed(name):
            raise ConfigError(f"memory.{name} has no use with --on kubernetes, whose chart has a Redis; leave it out")


def _check_redis(config: RunConfig, url: str) -> None:
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


def _check_store(config: RunConfig, store: str) -> None:
    values = config.kubernetes.values
    denied = at(values, "networkPolicy.enabled", True) and not at(values, "networkPolicy.extraEgress")
    if denied and not store.startswith("file:"):
        raise ConfigError(
            f"checkpoint.store {store}: the chart's network policies keep the learner from it; allow it in "
            "kubernetes.values.networkPolicy.extraEgress, such as [{ports: [{port: 443}]}]"
        )


def notes_on_store(config: RunConfig) -> Iterator[str]:
    """Yield a line if nothing in the values can have credentials of the run's data store."""
    store, values = config.checkpoint.store, config.kubernetes.values
    if store is None or store.startswith("file:"):
        return
    if not any(at(values, path) for path in _CREDENTIALS):
        yield (
            f"kubernetes.values name no credentials of {store} ({', '.join(_CREDENTIALS)}): the learner has those of "
            "its node alone"
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
