"""Environments that code outside of distrl steps: it reports what came of each action (`apps/agents/`)."""

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import iterate

from distrl.config.environment import EnvironmentConfig
from distrl.config.remote_environment import GivenSpaces
from distrl.environments import attributes, gym_adapter
from distrl.environments.remote.spaces import decoded, described, space_of
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError, SchemaError
from distrl.types import Array


class GivenEnvironment(gymnasium.Env[Any, Any]):
    """Returns from `reset` and `step` what it was given, once each.

    Args:
        largest: Greatest magnitude of a real number in an observation.
    """

    def __init__(self, spaces: GivenSpaces, largest: float = math.inf) -> None:
        self._largest = largest
        self.observation_space = space_of(spaces.observation_space, "observation")
        self.action_space = space_of(spaces.action_space, "action")
        self.max_episode_steps, self.reward_threshold = spaces.max_episode_steps, spaces.reward_threshold
        self._given: tuple[Any, Any, Any, Any, Mapping[str, Any]] | None = None

    def give(
        self,
        observation: Any,
        reward: Any = 0.0,
        terminated: Any = False,
        truncated: Any = False,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        """Take what the next `reset` or `step` returns.

        Raises:
            SchemaError: As of `check`.
            ValueError: A flag is no truth value.
        """
        seen = self.check(observation)
        ends = gym_adapter.flag_of("terminated", terminated), gym_adapter.flag_of("truncated", truncated)
        self._given = seen, reward, *ends, {} if info is None else info

    def check(self, observation: Any) -> Any:
        """Return an observation as its space says; raise SchemaError if it is another one, not finite, or too large."""
        seen = decoded(self.observation_space, observation, "observation")
        check_finite(seen, "observation", self._largest)
        return seen

    @staticmethod
    def action_of(environment: VectorEnvironment, actions: Mapping[str, Array]) -> Any:
        """Return actions of its vector, name -> [1, ...], as `step` of a gymnasium environment takes them."""
        return next(iter(iterate(environment.vector.action_space, environment.raw_actions(actions))))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self._taken()[0], {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        return self._taken()

    def _taken(self) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
        given, self._given = self._given, None
        assert given is not None  # `give` comes first
        return given


def given_environment(
    config: EnvironmentConfig, largest: float = math.inf
) -> tuple[VectorEnvironment, GivenEnvironment]:
    """Make a vector of one environment that is given, with the run's preprocessing, and that environment.

    Args:
        config: With `spaces`.
        largest: As of `GivenEnvironment`.

    Raises:
        ConfigError: A space is not supported, or a step of preprocessing does not fit.
    """
    assert config.spaces is not None
    single = GivenEnvironment(config.spaces, largest)
    return VectorEnvironment(config, 1, gym_adapter.sync_vector(config, lambda **_: single, 1)), single


def check_finite(value: Any, path: str, largest: float = math.inf) -> None:
    """Raise SchemaError if a real number in an observation is not finite, or too large; the message names its path."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            check_finite(part, f"{path}/{name}", largest)
    elif isinstance(value, tuple):
        for index, part in enumerate(value):
            check_finite(part, f"{path}/{index}", largest)
    elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
        if not np.isfinite(value).all():
            raise SchemaError(f"'{path}' is not finite")
        if largest < math.inf and np.abs(value).max(initial=0.0) > largest:
            raise SchemaError(f"'{path}' has a number beyond {largest:.0e}, of which nothing can be learned")


def spaces_of(
    observation_space: Space[Any],
    action_space: Space[Any],
    reward_threshold: float | None = None,
    max_episode_steps: int | None = None,
) -> GivenSpaces:
    """Describe gymnasium's spaces.

    Raises:
        ConfigError: One of them is of another kind.
    """
    return GivenSpaces.model_validate(
        {
            "observation_space": described(observation_space, "observation"),
            "action_space": described(action_space, "action"),
            "reward_threshold": reward_threshold,
            "max_episode_steps": max_episode_steps,
        }
    )


def spaces_of_environment(environment: gymnasium.Env[Any, Any]) -> GivenSpaces:
    """Describe the spaces and the limits of an environment.

    Raises:
        ConfigError: It is no single environment of gymnasium, or one of its spaces is not supported.
    """
    if not isinstance(environment, gymnasium.Env):
        raise ConfigError(f"the environment is a {type(environment).__name__}, not a gymnasium.Env")
    source = environment.spec
    limits = attributes.stated("the environment" if source is None else source.id, source or environment.unwrapped)
    return spaces_of(environment.observation_space, environment.action_space, *limits)


def registered(environment: gymnasium.Env[Any, Any], spaces: GivenSpaces) -> tuple[str, dict[str, Any]] | None:
    """Return the id and the keyword arguments of which gymnasium makes an environment of the same spaces and limits.

    Returns:
        None: it is not registered, wrapped further, or made in another way.
    """
    source = environment.spec
    if source is None or source.additional_wrappers:
        return None
    config = EnvironmentConfig(id=source.id, kwargs=dict(source.kwargs))
    try:
        return (source.id, config.kwargs) if spaces_of_named(config) == spaces else None
    except ConfigError:  # registered by a module that is not named, or with arguments that are no plain values
        return None


def spaces_of_named(config: EnvironmentConfig) -> GivenSpaces:
    """Describe the spaces of the environment that the configuration names; it is made for that, and closed.

    Raises:
        ConfigError: It cannot be made.
    """
    single = gym_adapter.make_one(config)
    try:
        return spaces_of(single.observation_space, single.action_space, *gym_adapter.limits(config.id, single))
    finally:
        single.close()
