"""EnvPool's environments as a vector: C++ threads step them, in NEXT_STEP autoreset.

EnvPool fixes seeds when a pool is made, so that `reset` with seeds makes a new one. Where a step ends an episode both
ways, EnvPool reports the time limit only (`truncated`); everything else is as gymnasium has it.
"""

import contextlib
import difflib
import importlib
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

import numpy as np
from gymnasium.spaces import Box, Dict, Space

from distrl.config.environment import EnvironmentConfig
from distrl.environments.gym_adapter import Made, refused
from distrl.environments.vectors.next_step import NextStepVector
from distrl.errors import ConfigError, require
from distrl.types import Array

# Set by distrl: how many, their seeds, and that all of them step together.
_RESERVED = ("num_envs", "batch_size", "seed", "env_seed", "max_num_players", "gym_reset_return_info")
_COUNTS = {"max_episode_steps", "num_threads"}
"""Whole numbers from 1 on, as EnvPool itself does not check."""
_NO_LIMIT_STEPS = 2**31 - 1


def make_vector(config: EnvironmentConfig, count: int) -> Made:
    """Make `count` environments of EnvPool; each has one player."""
    require("envpool", "what environment.vectorization: envpool needs", "envpool")
    with _quiet():
        envpool = importlib.import_module("envpool")
    if config.id not in envpool.list_all_envs():
        raise ConfigError(_unknown(config.id, envpool.list_all_envs()))
    for name in _RESERVED:
        if name in config.kwargs:
            raise ConfigError(f"environment {config.id}: environment.kwargs.{name} is set by distrl; leave it out")
    for name in _COUNTS & config.kwargs.keys():
        number = config.kwargs[name]
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ConfigError(
                f"environment {config.id}: environment.kwargs.{name}: {number!r} is not known to EnvPool; "
                "make it a whole number from 1 on, or leave it out"
            )
    with refused(f"environment {config.id} cannot be made by EnvPool with kwargs {config.kwargs}"):
        vector = EnvPoolVector(config.id, count, config.kwargs, tuple(config.metrics))
    return Made(vector, "envpool", vector.reward_threshold, vector.max_episode_steps)


class EnvPoolVector(NextStepVector):
    """A pool that is made at its first `reset`, which knows the seeds.

    Args:
        metrics: Keys of EnvPool's info that are kept.
    """

    def __init__(self, env_id: str, count: int, kwargs: dict[str, Any], metrics: Collection[str] = ()) -> None:
        self._id = env_id
        self._kwargs = kwargs
        self._metrics = metrics
        self._pool: Any = None
        with _quiet():
            spec = importlib.import_module("envpool").make_spec(env_id, num_envs=count, **kwargs)
            observation_space, action_space = _bounded_truly(spec.observation_space), spec.action_space
        if isinstance(action_space, Dict) and "env_id" in action_space.spaces:
            raise ConfigError(
                f"environment {env_id}: environment.vectorization: envpool is impossible: its actions name players"
            )
        super().__init__(count, observation_space, action_space)
        self.reward_threshold = spec.reward_threshold
        limit = getattr(spec.config, "max_episode_steps", _NO_LIMIT_STEPS)
        self.max_episode_steps = None if limit >= _NO_LIMIT_STEPS else limit

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        # One seed for each environment, each below 2^31.
        if seed is not None or self._pool is None:
            seeds = {} if seed is None else {"seed": seed}
            self._pool = None  # the old pool's threads end before new ones start
            with _quiet():
                envpool = importlib.import_module("envpool")
                self._pool = envpool.make(self._id, "gymnasium", num_envs=self.num_envs, **seeds, **self._kwargs)
                observations, _ = self._pool.reset()  # where it builds its spaces, which is when gymnasium warns
        else:
            observations, _ = self._pool.reset()
        return observations, {}

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        observations, rewards, terminated, truncated, info = self._pool.step(actions)
        return (
            observations,
            rewards,
            terminated,
            truncated,
            {name: info[name] for name in self._metrics if name in info},
        )

    def close_extras(self, **kwargs: Any) -> None:
        self._pool = None


def _unknown(env_id: str, known: Sequence[str]) -> str:
    if ":" in env_id:
        return (
            f"environment {env_id}: environment.vectorization: envpool steps EnvPool's own environments, no others; "
            "use sync or async"
        )
    folded = {name.lower(): name for name in known}
    bare = env_id.rpartition("/")[2].lower()  # EnvPool knows most ids without a namespace
    nearest = [folded[match] for match in difflib.get_close_matches(bare, folded, n=3, cutoff=0.0)]
    return f"EnvPool has no environment '{env_id}'; the nearest ids are {', '.join(nearest)}"


def _bounded_truly(space: Space[Any]) -> Space[Any]:
    """Without the bounds that C++ means as none: its largest float, and its smallest positive one for the lowest."""
    if isinstance(space, Dict):
        return Dict({name: _bounded_truly(part) for name, part in space.spaces.items()})
    if not isinstance(space, Box) or space.dtype.kind != "f":
        return space
    numbers = np.finfo(cast("Any", space.dtype))
    low = np.where((space.low == numbers.tiny) | (space.low == numbers.min), -np.inf, space.low)
    high = np.where(space.high == numbers.max, np.inf, space.high)
    return Box(low.astype(space.dtype), high.astype(space.dtype), space.shape, space.dtype.type)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """For EnvPool's imports: without JAX, and without gymnasium's warnings at bounds that are given in 64 bits.

    EnvPool imports JAX wherever it finds it, for compiled stepping that distrl does not use; actors carry no JAX.
    """
    modules = cast("dict[str, Any]", sys.modules)
    hidden = "jax" not in modules
    if hidden:
        modules["jax"] = None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*precision lowered by casting")
            yield
    finally:
        if hidden:
            del modules["jax"]
