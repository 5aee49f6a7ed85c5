"""Gymnasium's planar MuJoCo runners as a vector: one call steps the physics of all of them, exactly as one by one.

`mujoco.batch` advances the simulations, bit for bit as a loop over `mj_step` would. A runner's observation
and reward are a few lines of arithmetic in gymnasium's classes; here they are computed for all rows at once. Resets are
gymnasium's own: one environment makes all of them, each with the random generator of the row that begins anew.
"""

import ctypes
import importlib
import inspect
import logging
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from distrl.config.environment import EnvironmentConfig
from distrl.environments import gym_adapter
from distrl.environments.vectors.next_step import NextStepVector
from distrl.errors import ConfigError
from distrl.types import Array, BoolArray

logger = logging.getLogger(__name__)
_MODULE = "gymnasium.envs.mujoco."
_RUNNERS = {
    f"{_MODULE}half_cheetah_v5:HalfCheetahEnv": (1, np.inf),
    f"{_MODULE}hopper_v5:HopperEnv": (1, 10.0),
    f"{_MODULE}swimmer_v5:SwimmerEnv": (2, np.inf),
    f"{_MODULE}walker2d_v5:Walker2dEnv": (1, 10.0),
}
"""Class -> the number of positions it hides by default, and the limit of the velocities that it shows."""
_HEALTHY = {"healthy_z_range": slice(1, 2), "healthy_angle_range": slice(2, 3), "healthy_state_range": slice(2, None)}
"""Parameter of a class -> columns of positions and velocities that must stay within its bounds."""


class UnsuitableError(ConfigError):
    """These environments cannot be stepped so; the message says why."""


class _RefusedError(Exception):
    """MuJoCo steps no batch of this model."""


def make_vector(config: EnvironmentConfig, count: int) -> gym_adapter.Made:
    """Make `count` runners that step together.

    Raises:
        UnsuitableError: It is another environment, or has wrappers, a window or a model of its own that cannot be
            stepped so; or MuJoCo is too old.
    """
    entry_point, registered = gym_adapter.declared(config.id)
    if entry_point not in _RUNNERS:
        names = ", ".join(sorted(name.rpartition(":")[2].removesuffix("Env") for name in _RUNNERS))
        raise _unsuitable(config, f"it steps gymnasium's {names} (-v5), no others")
    if config.metrics:
        raise _unsuitable(config, "it makes no info, from which environment.metrics come")
    single = gym_adapter.make_one(config)
    try:
        if single.render_mode == "human":
            raise _unsuitable(config, "a window shows one environment after every step")
        bare = single
        for kind in (TimeLimit, OrderEnforcing):  # as gymnasium.make wraps: others may do more, a second limit is lower
            bare = bare.env if type(bare) is kind else bare
        if bare is not single.unwrapped:
            raise _unsuitable(config, f"it is wrapped in a {type(bare).__name__}")
        if find_spec("mujoco.batch") is None:
            raise _unsuitable(config, "it needs MuJoCo 3.17 or newer")
        defaults = inspect.signature(type(bare)).parameters.items()
        parameters = {name: parameter.default for name, parameter in defaults} | dict(registered) | config.kwargs
        try:
            vector = RunnerVector(single, parameters, *_RUNNERS[entry_point], count)
        except _RefusedError as error:  # a model of one's own (xml_file) whose bodies may sleep
            raise _unsuitable(config, f"MuJoCo refuses: {error}") from error
    except BaseException:
        single.close()
        raise
    return gym_adapter.Made(vector, "mujoco", *gym_adapter.limits(config.id, single))


class RunnerVector(NextStepVector):
    """`count` runners.

    Args:
        single: One environment, which resets for all of them.
        parameters: The arguments of its class.
        hidden: Number of positions that are not shown, unless `parameters` show all.
        fastest: Limit of the velocities that are shown.
    """

    def __init__(
        self,
        single: gymnasium.Env[Any, Any],
        parameters: dict[str, Any],
        hidden: int,
        fastest: float,
        count: int,
    ) -> None:
        super().__init__(count, single.observation_space, single.action_space)
        mujoco = importlib.import_module("mujoco")
        _stop_profiler(mujoco)
        self._single, self._simulation = single, cast("Any", single.unwrapped)
        self._physics_steps, self._duration_s = self._simulation.frame_skip, self._simulation.dt
        self._load: Any = mujoco.mj_getState
        self._integration = mujoco.mjtState.mjSTATE_INTEGRATION
        try:
            batch = importlib.import_module("mujoco.batch").Batch(self._simulation.model, count, nthread=1)
        except ValueError as error:
            raise _RefusedError(error) from error
        self._batch: Any = batch
        self._controls: Array = self._batch.bind("ctrl")
        self._positions: Array = self._batch.bind("qpos")
        self._velocities: Array = self._batch.bind("qvel")
        self._parameters = parameters
        self._hidden = hidden if parameters["exclude_current_positions_from_observation"] else 0
        self._fastest = fastest
        self._ranges = [(*parameters[name], columns) for name, columns in _HEALTHY.items() if name in parameters]
        self._generators = [seeding.np_random()[0] for _ in range(count)]
        self._longest_steps = gym_adapter.limits(str(single), single)[1] or np.inf
        self._elapsed_steps = np.zeros(count, np.int64)
        self._due: BoolArray = np.zeros(count, np.bool_)  # the next step is a reset

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        seeds = [seed] * self.num_envs if seed is None else seed
        for row, row_seed in enumerate(range(seeds, seeds + self.num_envs) if isinstance(seeds, int) else seeds):
            self._begin(row, row_seed)
        self._due = np.zeros(self.num_envs, np.bool_)
        return self._shown(), {}

    def step(self, actions: Array) -> tuple[Array, Array, BoolArray, BoolArray, dict[str, Any]]:
        """Step all, or reset those whose episode is over; actions are float32 [B, joints]."""
        parameters = self._parameters
        due = self._due.nonzero()[0]
        before = self._positions[:, 0].copy()
        self._controls[:] = actions
        self._batch.step((~self._due).nonzero()[0] if len(due) else None, nstep=self._physics_steps)
        self._elapsed_steps += 1
        truncated = self._elapsed_steps >= self._longest_steps
        # In gymnasium's order, so that the last bit is the same.
        rewards = parameters["forward_reward_weight"] * ((self._positions[:, 0] - before) / self._duration_s)
        terminated: BoolArray = np.zeros(self.num_envs, np.bool_)
        if self._ranges:
            healthy = self._healthy()
            rewards = rewards + healthy * parameters["healthy_reward"]
            terminated = ~healthy & bool(parameters["terminate_when_unhealthy"])
        rewards = rewards - parameters["ctrl_cost_weight"] * np.square(actions).sum(axis=1)
        for row in due.tolist():
            self._begin(row, None)
            rewards[row], terminated[row], truncated[row] = 0.0, False, False
        self._due = terminated | truncated
        return self._shown(), rewards, terminated, truncated, {}

    def close_extras(self, **kwargs: Any) -> None:
        self._single.close()

    def _begin(self, row: int, seed: int | None) -> None:
        """Begin an episode: the whole state of the simulation, as gymnasium leaves it."""
        self._simulation.np_random = self._generators[row]
        self._single.reset(seed=seed)
        self._generators[row] = self._simulation.np_random
        self._load(self._simulation.model, self._simulation.data, self._batch.state[row], self._integration)
        self._elapsed_steps[row] = 0

    def _shown(self) -> Array:
        """float64 [B, positions - hidden + velocities], fresh."""
        velocities = self._velocities
        if np.isfinite(self._fastest):
            velocities = np.clip(velocities, -self._fastest, self._fastest)
        return np.concatenate((self._positions[:, self._hidden :], velocities), axis=1)

    def _healthy(self) -> BoolArray:
        states = np.concatenate((self._positions, self._velocities), axis=1)
        healthy: BoolArray = np.ones(self.num_envs, np.bool_)
        for low, high, columns in self._ranges:
            healthy &= ((low < states[:, columns]) & (states[:, columns] < high)).all(axis=1)
        return healthy


def _stop_profiler(mujoco: Any) -> None:
    """Keep MuJoCo's Python package, in the whole process, from reading the clock around every stage of a physics step.

    That is a seventh of a HalfCheetah's step and changes no result. MuJoCo reads none where this callback is NULL,
    which `set_mjcb_time` cannot say: its None is the package's own clock.
    """
    try:
        library = ctypes.CDLL(mujoco._callbacks.__file__)  # the loader looks for the name in libmujoco, which it links
        ctypes.c_void_p.in_dll(library, "mjcb_time").value = None
    except (AttributeError, OSError, ValueError) as error:  # built otherwise: slower, and all else is the same
        logger.info("MuJoCo goes on reading the clock in every physics step: %s", error)


def _unsuitable(config: EnvironmentConfig, reason: str) -> UnsuitableError:
    return UnsuitableError(
        f"environment {config.id}: environment.vectorization: mujoco is impossible: {reason}; use auto or sync"
    )
