"""Rows that play recorded episodes."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from distrl.data.episodes import DataError, Episode, Part, best
from distrl.data.recorded_vector import RecordedVector, plan_rows, steps_of
from distrl.environments.gym_adapter import VALID


class Listed:
    """Episodes of these lengths; step t of episode n shows 10 n + t, and pays it."""

    name, environment, observation_space, action_space = "listed", None, None, None

    def __init__(self, lengths, action=lambda number, step: step % 2, reward=lambda number, step: 10.0 * number + step):
        self.lengths = np.array(lengths)
        self._action, self._reward = action, reward

    def read(self, numbers):
        for number in numbers:
            steps = range(self.lengths[number])
            yield Episode(
                np.array([[10.0 * number + step] for step in range(len(steps) + 1)], np.float32),
                np.array([self._action(number, step) for step in steps]),
                np.array([self._reward(number, step) for step in steps]),
                terminated=number % 2 == 0,
                log_probabilities=np.array([-0.1 * (step + 1) for step in steps], np.float32),
            )


def vector_of(episodes, rows):
    plan = plan_rows(episodes.lengths, rows)
    return RecordedVector(episodes, plan, "listed", Box(-1e3, 1e3, (1,)), Discrete(2))


def test_an_episode_goes_to_the_row_that_is_free_first():
    lengths = np.array([5, 2, 1, 4, 3])
    assert plan_rows(lengths, 2) == [[0, 4], [1, 2, 3]]  # free after 6; 3, 5, 10
    assert steps_of(plan_rows(lengths, 2), lengths) == 9  # 5 + 1 + 3 and 2 + 1 + 1 + 1 + 4
    assert plan_rows(np.array([3]), 3) == [[0], [], []]
    assert steps_of(plan_rows(np.array([3]), 3), np.array([3])) == 3


def test_rows_by_hand():
    vector = vector_of(Listed([2, 1, 1]), 2)  # rows: 0 / 1, 2
    assert vector.reset()[0].ravel().tolist() == [0.0, 10.0]
    assert vector.next_actions["action"].tolist() == [0, 0]
    found = []
    for _ in range(5):
        known = vector.next_log_probabilities.tolist()
        observations, rewards, terminated, truncated, info = vector.step(None)
        found.append([*(column.ravel().tolist() for column in (observations, rewards)), known])
        found[-1] += [terminated.tolist(), truncated.tolist(), info[VALID].tolist()]
    tenth, fifth = pytest.approx(-0.1), pytest.approx(-0.2)
    assert found == [
        [[1.0, 11.0], [0.0, 10.0], [tenth, tenth], [False, False], [False, True], [True, True]],
        [[2.0, 20.0], [1.0, 0.0], [fifth, 0.0], [True, False], [False, False], [True, False]],  # the second one resets
        [[2.0, 21.0], [0.0, 20.0], [0.0, tenth], [False, True], [False, False], [False, True]],  # the first is over
        [[2.0, 21.0], [0.0, 0.0], [0.0, 0.0], [False, False], [False, False], [False, False]],
        [[2.0, 21.0], [0.0, 0.0], [0.0, 0.0], [False, False], [False, False], [False, False]],
    ]


def test_a_row_without_an_episode_is_never_valid():
    vector = vector_of(Listed([1]), 3)
    assert vector.reset()[0].ravel().tolist() == [0.0, 0.0, 0.0]
    assert vector.step(None)[4][VALID].tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            {"action": lambda number, step: 2},
            r"data set listed, episode 1: action 'action': the action 2 of step 1 is outside Discrete\(2\)",
        ),
        ({"action": lambda number, step: 0.5}, "the action 0.5 of step 1 is outside"),
        ({"reward": lambda number, step: float("nan")}, "data set listed, episode 1: the reward of step 1 is nan"),
    ],
)
def test_what_no_step_can_be_is_refused(changed, line):
    good = Listed([1, 1])
    bad = Listed([1, 1], **changed)

    class Second(Listed):
        def read(self, numbers):
            for number in numbers:
                yield from (bad if number else good).read([number])

    vector = vector_of(Second([1, 1]), 1)
    vector.reset()
    vector.step(None)
    with pytest.raises(DataError, match=line):
        vector.step(None)


def test_parts_of_a_set():
    whole = Listed([3, 1, 2, 1])  # returns 3, 10, 41, 30
    assert best(whole, 0.5).lengths.tolist() == [2, 1]
    assert best(whole, 0.01).lengths.tolist() == [2]
    part = Part(whole, range(1, 3))
    assert [episode.rewards.tolist() for episode in part.read([1, 0])] == [[20.0, 21.0], [10.0]]
