"""The choice of the vectorization that steps a configuration's environments."""

from collections.abc import Callable
from contextlib import suppress

from distrl.config.environment import EnvironmentConfig, Vectorization
from distrl.environments import atari, attributes, gym_adapter
from distrl.environments.gym_adapter import Made
from distrl.environments.remote import vector
from distrl.environments.remote.connection import is_remote
from distrl.environments.vectors import async_vector, envpool_adapter, mujoco_vector
from distrl.errors import ConfigError


def _automatic(config: EnvironmentConfig, count: int) -> Made:
    """Make the fastest vector that never changes what is learned."""
    if config.curriculum:
        return gym_adapter.make_vector(config, count)
    with suppress(mujoco_vector.UnsuitableError):  # left before the next try, whose errors it has nothing to do with
        return mujoco_vector.make_vector(config, count)
    return gym_adapter.make_vector(config, count)


_MAKERS: dict[Vectorization, Callable[[EnvironmentConfig, int], Made]] = {
    "auto": _automatic,
    "own": gym_adapter.make_vector,
    "sync": gym_adapter.make_vector,
    "async": async_vector.make_vector,
    "mujoco": mujoco_vector.make_vector,
    "envpool": envpool_adapter.make_vector,
}


def make_vector(config: EnvironmentConfig, count: int) -> Made:
    """Make `count` environments as `environment.vectorization` says, in NEXT_STEP autoreset.

    Raises:
        ConfigError: The name is unknown, kwargs are refused, or this vectorization cannot step these environments.
        MissingExtraError: It needs an optional dependency.
    """
    config.refuse_given_spaces()
    if is_remote(config.id):
        connected = vector.make_vector(config, count)
        return Made(connected, "own", *attributes.stated(config.id, connected))
    if config.atari is not None:
        return atari.make_vector(config, count)
    if config.vectorization == "ale":
        raise ConfigError(
            f"environment {config.id}: environment.vectorization: ale steps games as environment.atari says; set it, "
            "{} for its defaults"
        )
    return _MAKERS[config.vectorization](config, count)
