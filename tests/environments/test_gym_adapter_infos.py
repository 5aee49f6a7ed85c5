"""Infos that nothing reads are never touched, whatever they hold and however many rows there are."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from distrl.config.environment import EnvironmentConfig
from distrl.environments.vector import VectorEnvironment
from distrl.errors import EnvironmentFailedError

made = 0
"""Rows of one vector know their number by it."""


class Opaque(dict):
    """A value that refuses to be looked at."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("touched")


INFOS: dict[str, Any] = {
    "lengths": lambda row: {"x": np.zeros(3 + row)},
    "kinds": lambda row: {"x": (np.zeros(3), None)[row % 2]},
    "text": lambda row: {"x": (1.5, "far")[row % 2]},
    "mapping": lambda row: {"x": ({"a": 1}, 1.5)[row % 2]},
    "large": lambda row: {"x": 2**80},
    "opaque": lambda row: {"x": Opaque(y=1)},
    "none": lambda row: (None, {})[row % 2],
    "no success": lambda row: {"is_success": ([[1.0], [1.0, 2.0]], 10**400, "yes", Opaque)[row % 4]},
}


class Telling(gymnasium.Env):
    """Episodes of two steps that pay 1.5 for each; the infos of resets, steps and ends are those of a kind."""

    def __init__(self, kind: str, reward: Any = 1.5) -> None:
        global made
        self.observation_space, self.action_space = Box(0.0, 1.0, (1,), np.float32), Discrete(2)
        self._row, made = made, made + 1
        self._info, self._reward = INFOS[kind], reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(1, np.float32), self._info(self._row)

    def step(self, action: Any) -> Any:
        self._steps += 1
        return np.zeros(1, np.float32), self._reward, self._steps == 2, False, self._info(self._row)


class TellingVector(VectorEnv):
    """The same as a vector of its own, whose infos are of no use at all."""

    def __init__(self, num_envs: int, kind: str) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs, self._info = num_envs, INFOS[kind]
        self.single_observation_space, self.single_action_space = Box(0.0, 1.0, (1,), np.float32), Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._steps = 0
        return np.zeros((self.num_envs, 1), np.float32), self._info(0)

    def step(self, actions: Any) -> Any:
        self._steps += 1
        resets, ends = self._steps % 3 == 0, self._steps % 3 == 2
        rewards = np.full(self.num_envs, 0.0 if resets else 1.5)
        flags = np.full(self.num_envs, ends)
        return np.zeros((self.num_envs, 1), np.float32), rewards, flags, flags & False, self._info(0)


class TellingWithVector(Telling):
    vector_entry_point = TellingVector


def rewards_of(config: EnvironmentConfig, rows: int) -> list[list[float]]:
    environment = VectorEnvironment(config, rows)
    try:
        environment.reset(0)
        steps = [environment.step({"action": np.zeros(rows, np.int32)}) for _ in range(4)]
        assert environment.succeeded is None
        return [step.rewards.tolist() for step in steps]
    finally:
        environment.close()


@pytest.mark.parametrize("kind", INFOS)
@pytest.mark.parametrize(("vectorization", "rows"), [("sync", 1), ("sync", 4), ("own", 2)])
def test_any_info_that_nothing_reads_is_stepped_through(kind: str, vectorization: str, rows: int) -> None:
    name = "TellingWithVector" if vectorization == "own" else "Telling"
    config = EnvironmentConfig(id=f"{__name__}:{name}", kwargs={"kind": kind}, vectorization=vectorization)
    assert rewards_of(config, rows) == [[1.5] * rows, [1.5] * rows, [0.0] * rows, [1.5] * rows]


@pytest.mark.parametrize("kind", ["kinds", pytest.param("none", marks=pytest.mark.long)])
def test_also_in_processes_and_beside_a_metric(kind: str) -> None:
    for changes in ({"vectorization": "async"}, {"vectorization": "sync", "metrics": {"other": "sum"}}):
        config = EnvironmentConfig(id=f"{__name__}:Telling", kwargs={"kind": kind}, **changes)
        assert rewards_of(config, 2) == [[1.5] * 2, [1.5] * 2, [0.0] * 2, [1.5] * 2]


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("async", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("reward", "said"), [(np.array([1.5]), "has shape (1,)"), ([1, 2], "has shape (2,)"), ({}, "is a dict")]
)
def test_a_reward_that_is_no_number_is_called_a_reward(vectorization: str, reward: Any, said: str) -> None:
    config = EnvironmentConfig(
        id=f"{__name__}:Telling", kwargs={"kind": "none", "reward": reward}, vectorization=vectorization
    )
    with pytest.raises(EnvironmentFailedError) as caught:
        rewards_of(config, 1)
    assert str(caught.value) == (
        f"environment {__name__}:Telling failed in step: ValueError: the reward {said}, it must be one number, "
        "at step 1"
    )
