"""Successes and metrics of episodes, from the infos of an environment to its unrolls."""

from types import SimpleNamespace

import numpy as np
import pytest

from distrl.actors.extras.episode_infos import EpisodeInfos
from distrl.types import EPISODE_METRICS
from tests.actors.extras.unrolls import EMPTY

NAN = np.nan


def collected(ended, succeeded=None, metrics=None):
    """Return an unroll without steps, with what was collected of rows that end these episodes."""
    environment = SimpleNamespace(succeeded=None, episode_metrics=None)
    extra = EpisodeInfos(environment)
    extra.begin(None, None)
    extra.add(None, SimpleNamespace(ended=np.ones(len(ended[0]), bool)))
    extra.begin(None, None)  # the unroll before is abandoned
    for row, over in enumerate(ended):
        environment.succeeded = None if succeeded is None else succeeded[row]
        environment.episode_metrics = None if metrics is None else np.array(metrics[row], np.float32)
        extra.add(None, SimpleNamespace(ended=np.array(over, bool)))
    return extra.close(EMPTY)


@pytest.mark.row("P07.1")
def test_episodes_succeed_as_their_last_step_says():
    ended = [[0, 0, 0], [0, 1, 1], [1, 0, 0]]
    said = [None, np.array([True, False, None], object), np.array([True, None, None], object)]
    successes = collected(ended, said).episode_successes
    assert successes.tolist() == [0, -1, 1]
    assert successes.dtype == np.int8
    assert set(collected([[1, 1, 1]] * 3).episode_successes.tolist()) == {-1}


def test_episodes_have_the_metrics_of_their_last_step_in_order_of_time():
    metrics = [[[NAN, NAN], [1, 2]], [[3, NAN], [NAN, NAN]], [[NAN, NAN], [5, 6]]]
    found = collected([[0, 1], [1, 0], [0, 1]], metrics=metrics).extras[EPISODE_METRICS]
    np.testing.assert_array_equal(found, np.array([[1, 2], [3, NAN], [5, 6]], np.float32), strict=True)
    assert collected([[0, 0]] * 3, metrics=metrics).extras[EPISODE_METRICS].shape == (0, 2)


def test_an_environment_without_metrics_adds_no_array():
    assert collected([[1, 1]]).extras == {}
