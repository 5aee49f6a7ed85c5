"""`is_success` of environments' infos: what they say of an episode's last step reaches evaluations, and no more."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from distrl.config.environment import EnvironmentConfig
from distrl.environments.gym_adapter import succeeded, success_alone
from distrl.environments.vector import VectorEnvironment


class Chosen(gymnasium.Env):
    """Episodes of two steps. Their info says whether the last action was 1, in a form of its own."""

    def __init__(self, form: str) -> None:
        self.observation_space, self.action_space = Box(0.0, 1.0, (1,), np.float32), Discrete(2)
        self._form = form

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        said = {
            "bool": {"is_success": bool(action)},
            "float": {"is_success": np.float32(action), "large": np.zeros(3)},
            "nothing": {"other": 1},
            "sometimes": {"is_success": False} if action else {},
            "several": {"is_success": np.array([1.0, 0.0])},
        }
        return np.zeros(1, np.float32), 1.0, False, self._steps == 2, said[self._form]


def ended(form, vectorization):
    """`succeeded` after every step of two environments, the first of which chooses 1."""
    config = EnvironmentConfig(id=f"{__name__}:Chosen", kwargs={"form": form}, vectorization=vectorization)
    environment = VectorEnvironment(config, 2)
    try:
        environment.reset(0)
        assert environment.succeeded is None
        found = []
        for _ in range(5):
            step = environment.step({"action": np.array([1, 0], np.int32)})
            found.append(environment.succeeded[step.ended].tolist() if environment.succeeded is not None else None)
        return found
    finally:
        environment.close()


@pytest.mark.row("P07.4")
@pytest.mark.parametrize(
    ("form", "vectorization"),
    [("bool", "sync"), ("float", "sync"), ("bool", "async"), pytest.param("float", "async", marks=pytest.mark.long)],
)
def test_the_last_step_of_an_episode_says_it(form, vectorization):
    found = ended(form, vectorization)
    assert found[1] == found[4] == [True, False]  # the third step was a reset


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("async", marks=pytest.mark.long)])
def test_an_environment_that_does_not_say_it_is_not_taken_for_one_that_failed(vectorization):
    assert ended("sometimes", vectorization)[1] == [False, None]


@pytest.mark.parametrize("form", ["nothing", "several"])
@pytest.mark.parametrize("vectorization", ["sync", pytest.param("async", marks=pytest.mark.long)])
def test_what_is_no_single_answer_is_none(form, vectorization):
    assert ended(form, vectorization) == [None] * 5


def test_only_the_answer_leaves_a_worker():
    assert success_alone({"is_success": np.float32(1.0), "large": np.zeros(1000)}) == {"is_success": True}
    assert success_alone({"is_success": None}) == success_alone({"is_success": [1, 0]}) == success_alone(None) == {}
    assert succeeded({"is_success": [True, False]}, 3) is None
    assert succeeded({"is_success": np.array([1.0, 0.0])}, 2).tolist() == [True, False]  # a vector without a mask
