"""Gymnasium spaces as distrl's own: what is supported, how batched observations become arrays by name, and how such
arrays become the actions that a vector of environments takes.

| gymnasium                            | distrl                                                              |
|--------------------------------------|---------------------------------------------------------------------|
| **observations**                     |                                                                     |
| Box, any shape, numeric              | the array as it is                                                  |
| Discrete(n, start)                   | one-hot float32 (n,), so that a network can embed it                |
| **actions**                          |                                                                     |
| Discrete(n, start)                   | int32 (), counted from 0; `start` is added on the way back          |
| MultiDiscrete(choices, start=starts) | int32 (k,), each counted from 0; arrays of choices travel flat      |
| MultiBinary(shape)                   | int32 (n,) of 0 and 1, flat                                         |
| Box, any shape, of real numbers      | float32 (n,), flat; cut to the bounds on the way back, as a         |
|                                      | Gaussian has none                                                   |
| **both**                             |                                                                     |
| Dict of those, one level             | one array per key, in gymnasium's order of keys                     |

What is not a Dict is named "observation" or "action".
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from distrl.errors import ConfigError
from distrl.types import (
    ActionSpec,
    Array,
    ArraySpec,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
)

OBSERVATION = "observation"
ACTION = "action"

_SUPPORTED = {
    OBSERVATION: "Box, Discrete and one level of Dict of those are supported",
    ACTION: "Discrete, MultiDiscrete, MultiBinary, Box of real numbers and one level of Dict of those are supported",
}

Reader = Callable[[Any], Array]
Writer = Callable[[Array], Array]


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
        action_space: Space of a single environment's action, likewise.
        reward_threshold: Mean return at which the task counts as solved, if the environment says so.
        max_episode_steps: Steps after which an episode is truncated, if there is a limit.

    Raises:
        ConfigError: A space is not supported; the message names its path, the reason and what is supported.
    """
    return EnvSpec(
        id=env_id,
        observations={
            name: _array_spec(env_id, path, space)
            for name, path, space in _parts(env_id, OBSERVATION, observation_space)
        },
        actions={name: _action_spec(env_id, path, space) for name, path, space in _parts(env_id, ACTION, action_space)},
        reward_threshold=reward_threshold,
        max_episode_steps=max_episode_steps,
    )


def observation_reader(env_id: str, observation_space: Space[Any]) -> Callable[[Any], dict[str, Array]]:
    """Returns the function from a vector environment's observations to fresh arrays, name -> [B, ...].

    Fresh, because vector environments may write the next step into the buffer that they returned.

    Raises:
        ConfigError: As `env_spec`.
    """
    readers = {name: _reader(space) for name, _, space in _parts(env_id, OBSERVATION, observation_space)}
    if not isinstance(observation_space, Dict):
        read = readers[OBSERVATION]
        return lambda raw: {OBSERVATION: read(raw)}

    def read_all(raw: Mapping[str, Any]) -> dict[str, Array]:
        return {name: read(raw[name]) for name, read in readers.items()}

    return read_all


def action_writer(env_id: str, action_space: Space[Any]) -> Callable[[Mapping[str, Array]], Any]:
    """Returns the function from actions, name -> [B, ...] as `ActionSpec.array`, to what a vector environment takes.

    The arrays it returns are fresh, so that an environment which writes into its action changes nothing else.

    Args:
        action_space: Space of a single environment.

    Raises:
        ConfigError: As `env_spec`.
    """
    writers = {name: _writer(space) for name, _, space in _parts(env_id, ACTION, action_space)}
    if not isinstance(action_space, Dict):
        write = writers[ACTION]
        return lambda actions: write(actions[ACTION])
    return lambda actions: {name: write(actions[name]) for name, write in writers.items()}


def random_actions(specs: Mapping[str, ActionSpec], count: int, rng: np.random.Generator) -> dict[str, Array]:
    """Any allowed action for each of `count` environments: uniform; standard normal where a number lacks a bound."""
    return {name: _random(spec, count, rng) for name, spec in specs.items()}


def _parts(env_id: str, root: str, space: Space[Any]) -> list[tuple[str, str, Space[Any]]]:
    """(name, path in messages, space) of every array; `root` is OBSERVATION or ACTION."""
    if not isinstance(space, Dict):
        return [(root, root, space)]
    if not space.spaces:
        raise _unsupported(env_id, root, "it is an empty Dict")
    for name in space.spaces:
        # "/" separates the levels of a path wherever trees of arrays are named.
        if not isinstance(name, str) or not name or "/" in name:
            reason = f"its key is {name!r}"
            raise _unsupported(env_id, f"{root}/{name}", reason, "non-empty names without '/' are supported")
    return [(name, f"{root}/{name}", child) for name, child in space.spaces.items()]


def _array_spec(env_id: str, path: str, space: Space[Any]) -> ArraySpec:
    if isinstance(space, Discrete):
        return ArraySpec((int(space.n),), "float32", 0.0, 1.0)
    if not isinstance(space, Box):
        raise _unsupported(env_id, path, f"it is a {type(space).__name__}")
    _check_not_empty(env_id, path, space.shape)
    return ArraySpec(tuple(map(int, space.shape)), space.dtype.name, _uniform(space.low), _uniform(space.high))


def _action_spec(env_id: str, path: str, space: Space[Any]) -> ActionSpec:
    if isinstance(space, Discrete):
        return DiscreteSpec(int(space.n), int(space.start))
    if isinstance(space, MultiDiscrete):
        _check_not_empty(env_id, path, space.shape)
        return MultiDiscreteSpec(tuple(space.nvec.ravel().tolist()), tuple(space.start.ravel().tolist()))
    if isinstance(space, MultiBinary):
        return MultiBinarySpec(tuple(map(int, space.shape)))
    if not isinstance(space, Box):
        raise _unsupported(env_id, path, f"it is a {type(space).__name__}")
    if space.dtype.kind != "f":
        raise _unsupported(env_id, path, f"it is a Box of {space.dtype.name}; whole numbers are a MultiDiscrete")
    _check_not_empty(env_id, path, space.shape)
    return BoxSpec(tuple(map(int, space.shape)), _finite(space.low), _finite(space.high))


def _check_not_empty(env_id: str, path: str, shape: tuple[int, ...]) -> None:
    if 0 in shape:
        raise _unsupported(env_id, path, f"its shape {shape} holds no number")


def _finite(bounds: Array) -> tuple[float | None, ...]:
    """Flat; None where there is no bound."""
    return tuple(float(bound) if np.isfinite(bound) else None for bound in bounds.flat)


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


def _writer(space: Space[Any]) -> Writer:
    """From [B, ...] as `ActionSpec.array` to [B, *space.shape] in the space's dtype."""
    dtype, shape = space.dtype, space.shape or ()
    if isinstance(space, Discrete):
        return lambda actions: np.add(actions, space.start, dtype=dtype, casting="unsafe")
    if isinstance(space, MultiDiscrete):
        starts = space.start.ravel()
        return lambda actions: np.add(actions, starts, dtype=dtype, casting="unsafe").reshape(len(actions), *shape)
    if isinstance(space, Box):
        low, high = space.low.ravel(), space.high.ravel()
        # Neither limit can be left by the conversion: rounding keeps order, and the bounds are numbers of the dtype.
        return lambda actions: np.minimum(np.maximum(actions, low), high).astype(dtype).reshape(len(actions), *shape)
    return lambda actions: actions.astype(dtype).reshape(len(actions), *shape)  # MultiBinary


def _random(spec: ActionSpec, count: int, rng: np.random.Generator) -> Array:
    if isinstance(spec, DiscreteSpec):
        return rng.integers(spec.n, size=count, dtype=np.int32)
    if isinstance(spec, MultiDiscreteSpec):
        return rng.integers(spec.choices, size=(count, len(spec.choices)), dtype=np.int32)
    if isinstance(spec, MultiBinarySpec):
        return rng.integers(2, size=(count, spec.n), dtype=np.int32)
    low, high = np.array(spec.low, np.float64), np.array(spec.high, np.float64)  # None becomes NaN
    share = rng.random((count, spec.n))
    normal = np.fmin(np.fmax(rng.standard_normal((count, spec.n)), low), high)
    bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(bounded, (1.0 - share) * low + share * high, normal).astype(np.float32)


def _unsupported(env_id: str, path: str, reason: str, supported: str | None = None) -> ConfigError:
    supported = supported or _SUPPORTED[path.partition("/")[0]]
    return ConfigError(f"environment {env_id}: the space at '{path}' cannot be used: {reason}; {supported}")
