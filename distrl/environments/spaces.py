"""Gymnasium spaces as distrl's own: what is supported, and how batched observations become arrays by name.

| gymnasium                          | distrl                                                     |
|------------------------------------|------------------------------------------------------------|
| Box, any shape, numeric            | the array as it is                                         |
| Discrete(n, start) as observation  | one-hot float32 (n,), so that a network can embed it       |
| Dict of those, one level           | one array per key, in gymnasium's order of keys            |
| Discrete(n, start) as action       | counted from 0; `VectorEnvironment.step` adds `start`      |

An observation that is not a Dict is named "observation".
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete

from distrl.errors import ConfigError
from distrl.types import Array, ArraySpec, DiscreteSpec, EnvSpec

PLAIN_NAME = "observation"

_OBSERVATIONS_SUPPORTED = "Box, Discrete and one level of Dict of those are supported"
_ACTIONS_SUPPORTED = "Discrete is supported"

Reader = Callable[[Any], Array]


def env_spec(
    env_id: str,
    observation_space: Space[Any],
    action_space: Space[Any],
    reward_threshold: float | None,
    max_episode_steps: int | None,
) -> EnvSpec:
    """Describes one environment without gymnasium.

    Args:
        env_id: The name that the configuration uses; it appears in every message.
        observation_space: Space of a single environment, without a batch axis.
        action_space: Space of a single environment's action.
        reward_threshold: Mean return at which the task counts as solved, if the environment says so.
        max_episode_steps: Steps after which an episode is truncated, if there is a limit.

    Raises:
        ConfigError: A space is not supported; the message names its path, the reason and what is supported.
    """
    return EnvSpec(
        id=env_id,
        observations={
            name: _array_spec(env_id, path, space) for name, path, space in _parts(env_id, observation_space)
        },
        action=_action_spec(env_id, action_space),
        reward_threshold=reward_threshold,
        max_episode_steps=max_episode_steps,
    )


def observation_reader(env_id: str, observation_space: Space[Any]) -> Callable[[Any], dict[str, Array]]:
    """Returns the function from a vector environment's observations to fresh arrays, name -> [B, ...].

    Fresh, because vector environments may write the next step into the buffer that they returned.

    Raises:
        ConfigError: As `env_spec`.
    """
    readers = {name: _reader(space) for name, _, space in _parts(env_id, observation_space)}
    if not isinstance(observation_space, Dict):
        read = readers[PLAIN_NAME]
        return lambda raw: {PLAIN_NAME: read(raw)}

    def read_all(raw: Mapping[str, Any]) -> dict[str, Array]:
        return {name: read(raw[name]) for name, read in readers.items()}

    return read_all


def _parts(env_id: str, space: Space[Any]) -> list[tuple[str, str, Space[Any]]]:
    """(name, path in messages, space) of every observation array."""
    if not isinstance(space, Dict):
        return [(PLAIN_NAME, PLAIN_NAME, space)]
    if not space.spaces:
        raise _unsupported(env_id, PLAIN_NAME, "it is an empty Dict", _OBSERVATIONS_SUPPORTED)
    for name in space.spaces:
        # "/" separates the levels of a path wherever trees of arrays are named.
        if not isinstance(name, str) or not name or "/" in name:
            raise _unsupported(
                env_id, f"{PLAIN_NAME}/{name}", f"its key is {name!r}", "non-empty names without '/' are supported"
            )
    return [(name, f"{PLAIN_NAME}/{name}", child) for name, child in space.spaces.items()]


def _array_spec(env_id: str, path: str, space: Space[Any]) -> ArraySpec:
    if isinstance(space, Discrete):
        return ArraySpec((int(space.n),), "float32", 0.0, 1.0)
    if not isinstance(space, Box):
        reason = f"it is a {type(space).__name__}"
        raise _unsupported(env_id, path, reason, _OBSERVATIONS_SUPPORTED)
    if 0 in space.shape:
        raise _unsupported(env_id, path, f"its shape {space.shape} holds no number", _OBSERVATIONS_SUPPORTED)
    return ArraySpec(tuple(map(int, space.shape)), space.dtype.name, _uniform(space.low), _uniform(space.high))


def _action_spec(env_id: str, space: Space[Any]) -> DiscreteSpec:
    if not isinstance(space, Discrete):
        raise _unsupported(env_id, "action", f"it is a {type(space).__name__}", _ACTIONS_SUPPORTED)
    return DiscreteSpec(int(space.n), int(space.start))


def _uniform(bounds: Array) -> float | None:
    """The one finite value that all bounds share, or None."""
    first = bounds.flat[0]
    return float(first) if np.isfinite(first) and bool(np.all(bounds == first)) else None


def _reader(space: Space[Any]) -> Reader:
    if isinstance(space, Discrete):
        return lambda raw: _one_hot(raw, int(space.n), int(space.start))
    dtype = space.dtype
    return lambda raw: np.array(raw, dtype=dtype)


def _one_hot(values: Any, n: int, start: int) -> Array:
    """Integers [B] in start … start + n - 1 -> float32 [B, n].

    Raises:
        ValueError: A value lies outside the space.
    """
    positions = np.asarray(values, dtype=np.int64) - start
    if positions.min() < 0 or positions.max() >= n:
        raise ValueError(f"observation {values} lies outside Discrete({n}, start={start})")
    rows = np.zeros((len(positions), n), dtype=np.float32)
    rows[np.arange(len(positions)), positions] = 1.0
    return rows


def _unsupported(env_id: str, path: str, reason: str, supported: str) -> ConfigError:
    return ConfigError(f"environment {env_id}: the space at '{path}' cannot be used: {reason}; {supported}")
