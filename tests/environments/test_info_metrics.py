"""`environment.metrics`: how the numbers of an episode's infos become one, through every kind of vector."""

import math
import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from hypothesis import given
from hypothesis import strategies as st

from distrl.config.environment import EnvironmentConfig
from distrl.environments.info_metrics import InfoMetrics, reported
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError, EnvironmentFailedError
from tests.environments.remote.test_vector import HERE, served

WAYS = {"sum": "sum", "mean": "mean", "last": "last", "max": "max", "min": "min"}
NAN = math.nan


def played(ways, steps):
    """Combined values of one row's episodes.

    Args:
        steps: (info, valid, ended), one after the other.
    """
    metrics = InfoMetrics(ways, 1)
    found = [metrics.add(info, np.array([valid]), np.array([ended]))[0].tolist() for info, valid, ended in steps]
    return [row for row, (_, _, ended) in zip(found, steps, strict=True) if ended]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0], [3.0, 3.0, 3.0, 3.0, 3.0]),
        ([3.0, -1.0, 4.0], [6.0, 2.0, 4.0, 4.0, -1.0]),
        ([3.0, NAN, 4.0, None], [7.0, 3.5, 4.0, 4.0, 3.0]),  # of the steps that have it
        ([-3.0, -math.inf, math.inf], [-3.0, -3.0, -3.0, -3.0, -3.0]),
        ([NAN, None], [NAN] * 5),
        ([], [NAN] * 5),
        ([1e38, 1e38, 1e38, 1e38], [NAN, 1e38, 1e38, 1e38, 1e38]),  # the sum is beyond float32
    ],
)
def test_values_of_an_episode_become_one(values, expected):
    infos = [dict.fromkeys(WAYS, np.array([value])) for value in values]
    steps = [(info, True, False) for info in infos] + [({}, True, True)]
    np.testing.assert_array_equal(played(WAYS, steps), np.array([expected], np.float32))


def test_every_episode_begins_anew_and_the_row_between_counts_for_none():
    steps = [
        ({"x": np.array([1.0])}, True, False),
        ({"x": np.array([2.0])}, True, True),
        ({"x": np.array(["a reset's"])}, False, False),
        ({"x": np.array([5.0])}, True, True),
        ({"x": np.array([7.0])}, False, False),
        ({}, True, True),
    ]
    np.testing.assert_array_equal(played({"x": "sum"}, steps), [[3.0], [5.0], [NAN]])


def test_a_reset_forgets_open_episodes():
    metrics = InfoMetrics({"x": "sum"}, 1)
    metrics.add({"x": np.array([5.0])}, np.array([True]), np.array([False]))
    metrics.reset()
    assert metrics.add({"x": np.array([1.0])}, np.array([True]), np.array([True])).tolist() == [[1.0]]


STEP = st.tuples(
    st.lists(st.none() | st.integers(-50, 50), min_size=3, max_size=3),  # of each row; None: its info has none
    st.lists(st.booleans(), min_size=3, max_size=3),  # whether the row ends
)


@given(st.lists(STEP, max_size=12), st.booleans())
def test_rows_are_as_one_by_one(steps, masked):
    metrics, over = InfoMetrics(WAYS, 3), np.zeros(3, np.bool_)
    episodes: list[list[int]] = [[], [], []]
    for values, ends in steps:
        valid = ~over
        over = np.array(ends) & valid
        if masked:
            column, mask = np.array([value or 0 for value in values]), np.array([value is not None for value in values])
            info = {name: column for name in WAYS} | {f"_{name}": mask for name in WAYS}
        else:
            info = {name: np.array(values, np.object_) for name in WAYS}
        found = metrics.add(info, valid, over)
        for row in range(3):
            if valid[row] and values[row] is not None:
                episodes[row].append(values[row])
            expected = [NAN] * 5
            if over[row]:
                known, episodes[row] = episodes[row], []
                if known:
                    expected = [sum(known), sum(known) / len(known), known[-1], max(known), min(known)]
            np.testing.assert_array_equal(found[row], np.array(expected, np.float32))


def test_numbers_of_a_single_info_come_in_any_form_but_text_and_arrays():
    info = {"a": 1, "b": True, "c": np.float32(0.5), "d": np.array(2), "e": None, "f": 1.5, "large": np.zeros(1000)}
    assert reported(info, ("a", "b", "c", "d", "e", "f", "g")) == {"a": 1.0, "b": 1.0, "c": 0.5, "d": 2.0, "f": 1.5}
    assert reported(None, ("a",)) == {}
    assert math.isnan(reported({"a": 10**400}, ("a",))["a"])
    ragged = [[1.0], [1.0, 2.0]]
    for value, said in [
        ("far", "type str"),
        (ragged, "type list"),
        (np.zeros(3), r"type ndarray of shape \(3,\)"),
        ({"r": 1}, "type dict"),
    ]:
        with pytest.raises(TypeError, match=f"^environment.metrics.x needs a number, and info has a value of {said}$"):
            reported({"x": value}, ("x",))


# ------------------------------------------------------------------------------------------------------- in vectors


class Walk(gymnasium.Env):
    """Episodes of two steps. Actions are distances; infos have some numbers of each step, in odd forms."""

    def __init__(self, odd: Any = None) -> None:
        self.observation_space, self.action_space = Box(0.0, 1.0, (1,), np.float32), Discrete(3)
        self._odd = odd

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._steps, self._at = 0, 0.0
        return np.zeros(1, np.float32), {"speed": "none yet", "at": 99.0}

    def step(self, action: Any) -> Any:
        self._steps += 1
        self._at += 0.5 * int(action)
        # A whole number from the first environment, a real one from the second.
        info: dict[str, Any] = {"speed": int(action) if action == 1 else 0.5 * float(action), "at": self._at}
        if self._steps == 1:
            info["seldom"] = np.float32(action)
        if self._odd is not None:
            info["odd"] = self._odd
        return np.zeros(1, np.float32), 1.0, False, self._steps == 2, {**info, "large": np.zeros(9)}


METRICS = {"speed": "sum", "at": "last", "seldom": "min", "never": "mean"}
EXPECTED = [[2.0, 1.0, 1.0, NAN], [2.0, 2.0, 2.0, NAN]]
"""Rows that choose 1 and 2 in both steps."""


def ended_episodes(config, steps=5):
    """`episode_metrics` of every step of two environments that choose 1 and 2 in which an episode ended."""
    environment = VectorEnvironment(config, 2)
    try:
        environment.reset(0)
        assert environment.episode_metrics is None
        found = []
        for _ in range(steps):
            step = environment.step({"action": np.array([1, 2], np.int32)})
            if step.ended.any():
                found.append(environment.episode_metrics)
            else:
                assert np.isnan(environment.episode_metrics).all()
        return found
    finally:
        environment.close()


def walk(vectorization="sync", metrics=METRICS, **kwargs):
    return EnvironmentConfig(id=f"{__name__}:Walk", kwargs=kwargs, vectorization=vectorization, metrics=metrics)


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_single_environments_report_each_in_its_own_form(vectorization):
    found = ended_episodes(walk(vectorization))
    assert len(found) == 2
    for rows in found:
        assert rows.dtype == np.float32
        np.testing.assert_array_equal(rows, EXPECTED)


def test_remote_environments_report_them_over_the_socket():
    with served(Walk) as port:
        for rows in ended_episodes(EnvironmentConfig(id=f"tcp://{HERE}:{port}", metrics=METRICS)):
            np.testing.assert_array_equal(rows, EXPECTED)


class OwnVector(VectorEnv):
    """`Walk` twice, as a vector of its own: arrays without masks, and one that has a mask."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space, self.single_action_space = Box(0.0, 1.0, (1,), np.float32), Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._steps, self._at = 0, np.zeros(self.num_envs)
        return np.zeros((self.num_envs, 1), np.float32), {}

    def step(self, actions: Any) -> Any:
        zeros, none = np.zeros((self.num_envs, 1), np.float32), np.zeros(self.num_envs, np.bool_)
        if self._steps == 2:
            return *self.reset()[:1], np.zeros(self.num_envs), none, none, {"at": np.full(self.num_envs, 99)}
        self._steps += 1
        self._at = self._at + 0.5 * actions
        info = {"speed": np.ones(self.num_envs, np.int32), "at": self._at, "seldom": actions}
        info["_seldom"] = np.full(self.num_envs, self._steps == 1)
        return zeros, np.ones(self.num_envs), none, none | (self._steps == 2), info


class WalkWithVector(Walk):
    vector_entry_point = OwnVector


def test_a_vector_of_its_own_reports_arrays_with_and_without_masks():
    config = EnvironmentConfig(id=f"{__name__}:WalkWithVector", vectorization="own", metrics=METRICS)
    for rows in ended_episodes(config):
        np.testing.assert_array_equal(rows, EXPECTED)


def test_envpool_reports_its_own_arrays():
    pytest.importorskip("envpool")
    config = EnvironmentConfig(
        id="CartPole-v1",
        vectorization="envpool",
        kwargs={"max_episode_steps": 3},
        metrics={"elapsed_step": "last", "x_position": "sum"},
    )
    for rows in ended_episodes(config, steps=8) or [None]:
        np.testing.assert_array_equal(rows, [[3.0, NAN], [3.0, NAN]])


def test_runners_of_mujoco_are_stepped_one_by_one_for_their_infos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo may write a log
    metrics = {"reward_forward": "sum", "x_position": "last"}
    given = {"id": "HalfCheetah-v5", "kwargs": {"max_episode_steps": 4}, "metrics": metrics}
    with pytest.raises(ConfigError, match=r"mujoco is impossible: it makes no info, from which environment\.metrics"):
        VectorEnvironment(EnvironmentConfig(**given, vectorization="mujoco"), 1)
    environment = VectorEnvironment(EnvironmentConfig(**given), 1)
    environment.reset(0)
    total, forward, ended = 0.0, 0.0, False
    while not ended:
        before = environment.vector.envs[0].unwrapped.data.qpos[0]
        (ended,) = environment.step({"action": np.full((1, 6), 0.5, np.float32)}).ended
        forward = environment.vector.envs[0].unwrapped.data.qpos[0]
        total += (forward - before) / environment.vector.envs[0].unwrapped.dt
    np.testing.assert_allclose(environment.episode_metrics, [[total, forward]], rtol=1e-6)
    environment.close()


def test_games_refuse_what_they_never_report():
    pytest.importorskip("ale_py")
    given = {"id": "ALE/Pong-v5", "atari": {}}
    with pytest.raises(ConfigError, match=r"environment\.metrics\.score is never in info; with environment\.atari it"):
        VectorEnvironment(EnvironmentConfig(**given, metrics={"lives": "last", "score": "sum"}), 1)


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("async", marks=pytest.mark.long)])
def test_a_value_that_is_no_number_is_an_error_of_the_environment(vectorization):
    with pytest.raises(EnvironmentFailedError) as caught:
        ended_episodes(walk(vectorization, {"odd": "sum"}, odd="far"))
    assert re.fullmatch(
        rf"environment {re.escape(__name__)}:Walk failed in step: TypeError: environment\.metrics\.odd needs a number, "
        r"and info has a value of type str, at step 1 of environment \d",
        str(caught.value),
    )


def test_without_metrics_nothing_is_kept():
    environment = VectorEnvironment(walk(metrics={}), 2)
    environment.reset(0)
    environment.step({"action": np.array([1, 2], np.int32)})
    assert (environment.metrics, environment.episode_metrics) == ((), None)
    environment.close()
