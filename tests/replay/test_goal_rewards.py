"""Rewards of goals by hand, and functions of the user's own."""

import numpy as np
import pytest

from distrl.config.hindsight import HindsightParameters
from distrl.environments.worlds.bit_flip import BitFlip
from distrl.errors import ConfigError
from distrl.replay.goal_rewards import distances, goal_reward


def reward_of(tolerance=0.0, **reward):
    parameters = {"tolerance": tolerance, **({"reward": reward} if reward else {})}
    return goal_reward(HindsightParameters.model_validate(parameters))


HERE = np.zeros((4, 2), np.float32)
THERE = np.float32([[0, 0], [3, 4], [0.3, 0.4], [0, 2]])


def test_distances_are_euclidean_over_all_axes():
    assert distances(HERE, THERE).tolist() == pytest.approx([0, 5, 0.5, 2])
    assert distances(np.ones((2, 2, 3)), np.zeros((2, 2, 3))).tolist() == pytest.approx([np.sqrt(6)] * 2)
    assert distances(np.uint8([[0], [255]]), np.uint8([[255], [0]])).tolist() == [255, 255]
    assert distances(HERE[:0], THERE[:0]).shape == (0,)


@pytest.mark.row("D29")
@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ({}, [0, -1, 0, -1]),  # within .5
        ({"kind": "sparse", "reached": 10, "otherwise": 1}, [10, 1, 10, 1]),
        ({"kind": "distance"}, [0, -5, -0.5, -2]),
        ({"kind": "inverse_distance"}, [1, 0.2, 1, 0.5]),
        ({"kind": "inverse_distance", "max_reward": 4}, [4, 0.2, 2, 0.5]),
    ],
)
def test_rewards_by_hand(reward, expected):
    rewards = reward_of(tolerance=0.500001, **reward)(HERE, THERE)
    assert rewards.dtype == np.float32
    assert rewards.tolist() == pytest.approx(expected)


@pytest.mark.row("D29")
def test_a_goal_at_the_tolerance_is_reached():
    assert reward_of(tolerance=2.0)(HERE, THERE).tolist() == [0, -1, 0, 0]
    assert reward_of(tolerance=1.999)(HERE, THERE).tolist() == [0, -1, 0, -1]


def test_the_default_is_what_bit_flip_pays():
    rng = np.random.default_rng(0)
    achieved, desired = rng.integers(2, size=(2, 500, 3), dtype=np.int8)
    assert np.array_equal(reward_of()(achieved, desired), BitFlip(3).compute_reward(achieved, desired, {}))


OWN = """
import numpy as np

def manhattan(achieved, desired):
    return -np.abs(achieved - desired).sum(axis=1)

def one_number(achieved, desired):
    return 1.0

def infinite(achieved, desired):
    return np.full(len(achieved), np.inf)

def wrong(achieved, desired):
    raise KeyError("no\\nsuch goal")

NUMBER = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_goal_rewards.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda name: reward_of(kind="function", function=f"own_goal_rewards:{name}")


def test_a_function_of_the_users_own(own):
    assert own("manhattan")(HERE, THERE).tolist() == pytest.approx([0, -7, -0.7, -2])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("one_number", r" returned shape \[\], not a number for each of 4 pairs of goals"),
        ("infinite", " returned numbers that are not finite, not a number for each of 4 pairs of goals"),
        ("wrong", r" failed for goals \[4, 2\]: KeyError: 'no.nsuch goal'"),
        ("NUMBER", " is a int, not a function"),
        ("missing", ": module 'own_goal_rewards' has no attribute 'missing'"),
    ],
)
def test_what_is_wrong_with_a_function_is_one_line(own, name, reason):
    where = rf"^algorithm\.replay\.hindsight\.reward\.function own_goal_rewards:{name}"
    with pytest.raises(ConfigError, match=f"{where}{reason}"):
        own(name)(HERE, THERE)
