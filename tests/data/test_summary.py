"""Figures of data sets whose numbers are awkward, or too many to keep."""

import numpy as np
import pytest
from gymnasium.spaces import Box

from distrl.data import summary as module
from distrl.data.episodes import Episode
from distrl.data.summary import summary


class Episodes:
    """Episodes in memory, of one number."""

    name, environment, observation_space = "made", None, None
    action_space = Box(-1e9, 1e9, (1,))

    def __init__(self, rewards):
        self._rewards = [np.array(each) for each in rewards]
        self.lengths = np.array([len(each) for each in rewards])

    def read(self, numbers):
        done = sum(self.lengths[: numbers[0]]) if numbers else 0
        for number in numbers:
            count = self.lengths[number]
            actions = np.arange(done, done + count, dtype=np.float32)[:, None]
            yield Episode(np.zeros((count + 1, 1), np.float32), actions, self._rewards[number], True, None)
            done += count


@pytest.mark.parametrize(
    ("rewards", "width"), [([[0.1, 0.2], [0.3]], 1.0), ([[1e18], [1e18 + 1024]], 2e12), ([[2.0], [2.0]], 1.0)]
)
def test_returns_that_differ_by_rounding_alone_have_a_histogram(rewards, width):
    found = summary(Episodes(rewards))["return_histogram"]
    assert sum(found["counts"]) == len(rewards)
    assert found["edges"][-1] - found["edges"][0] == pytest.approx(width, rel=1e-3)


def test_of_many_actions_some_at_equal_distances_are_kept(monkeypatch):
    monkeypatch.setattr(module, "_MOST_ROWS", 10)
    acted = module._Actions(Episodes.action_space)
    for episode in Episodes([[0.0] * count for count in (7, 3, 5, 1, 9, 8)]).read(range(6)):
        acted.add(episode.actions)
    kept = np.concatenate(acted._parts).ravel().tolist()
    assert kept == [*range(0, 33, 4)]
    assert acted.figures()[0]["mean"] == 16.0
