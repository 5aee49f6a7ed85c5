"""Stages of a curriculum: which episodes count, and when the next stage begins, by hand."""

import json

import pytest

from distrl.config.curriculum import MetricRule
from distrl.learner.curriculum import StageEpisodes, begun, next_stage
from distrl.learner.state import LearnerState

NAN = float("nan")


def rule(**fields):
    return MetricRule(**{"values": [0, 1, 2], "metric": "success", "above": 0.75, "episodes": 4, **fields})


def test_the_mean_is_of_the_newest_episodes_that_began_in_the_stage():
    found = StageEpisodes(metric="x", episodes=3, stage=1)
    found.add([0, 1, 1], [9.0, 1.0, 2.0])
    assert (found.values, found.mean) == ([1.0, 2.0], None)
    found.add([1, NAN, 2, 1, 1], [NAN, 9.0, 9.0, None, 6.0])  # unknown, or of no stage, or of another one
    assert (found.values, found.mean) == ([1.0, 2.0, 6.0], 3.0)
    found.add([1, 1], [4.0, 5.0])
    assert (found.values, found.mean) == ([6.0, 4.0, 5.0], 5.0)
    found.enter(1)
    assert found.mean == 5.0
    found.enter(2)
    assert (found.stage, found.values) == (2, [])
    found.enter(None)  # an operator's value
    found.add([2, NAN], [1.0, 1.0])
    assert found.values == []


@pytest.mark.parametrize(
    ("values", "stage", "fields", "expected"),
    [
        ([1, 1, 1, 0], 0, {}, 1),  # exactly 0.75
        ([1, 1, 0, 0], 0, {}, None),
        ([1, 1, 1], 0, {}, None),  # one episode is missing
        ([1, 1, 1, 1], 1, {"stage": 1}, 2),
        ([1, 1, 1, 1], 2, {"stage": 2}, None),  # the last one
        ([1, 1, 1, 1], 0, {"stage": 1}, None),  # the configuration is ahead of the episodes
        ([1, 1, 1, 1], None, {}, None),
        ([-3, -2, -2, -3], 0, {"above": -2.5}, 1),
    ],
)
def test_the_next_stage_by_hand(values, stage, fields, expected):
    episodes = StageEpisodes(metric="success", episodes=4, stage=stage, values=[float(value) for value in values])
    assert next_stage(rule(**fields), episodes) == expected


def test_episodes_of_an_earlier_launch_count_unless_the_metric_is_another():
    before = {"a": StageEpisodes(metric="success", episodes=4, stage=1, values=[1.0, 0.0, 1.0])}
    assert begun({"a": rule(episodes=2)}, before)["a"] == StageEpisodes(
        metric="success", episodes=2, stage=1, values=[0.0, 1.0]
    )
    assert begun({"a": rule(metric="x"), "b": rule()}, before) == {
        "a": StageEpisodes(metric="x", episodes=4),
        "b": StageEpisodes(metric="success", episodes=4),
    }


def test_episodes_do_not_count_after_their_metric_was_combined_in_another_way():
    state = LearnerState(run_id="r")
    state.begin_metrics({"x": "sum"}, {"a": rule(metric="x")})
    state.stages["a"].values = [1.0]
    state.begin_metrics({"x": "sum"}, {"a": rule(metric="x")})
    assert state.stages["a"].values == [1.0]
    state.begin_metrics({"x": "mean"}, {"a": rule(metric="x")})
    assert state.stages["a"].values == []


@pytest.mark.parametrize(("metric", "expected"), [("episode_return", [5.0]), ("success", [1.0]), ("x", [7.0])])
def test_the_state_hands_on_the_results_of_each_episode_with_its_stage(metric, expected):
    state = LearnerState(run_id="r")
    state.begin_metrics({"x": "last", "level": "last"}, {"level": rule(metric=metric), "other": rule(metric=metric)})
    state.stages["level"].enter(1)
    state.observe_episodes(
        [4.0, 5.0, 6.0],
        [1, 1, 1],
        [4.0, 5.0, 6.0],
        [0, 1, -1],
        [[6.0, 0.5, 0.0, NAN], [7.0, 0.5, 1.0, NAN], [8.0, 0.5, NAN, 0.0]],
    )
    assert (state.stages["level"].values, state.stages["other"].values) == (expected, [])
    assert state.recent_metrics == {"x": [6.0, 7.0, 8.0], "level": [0.5] * 3}
    meta = json.loads(json.dumps(state.to_meta()))
    assert LearnerState.from_meta(meta) == state
    del meta["stages"]  # a checkpoint from before there were any
    assert LearnerState.from_meta(meta).stages == {}


def test_success_that_the_environment_does_not_say_counts_for_nothing():
    state = LearnerState(run_id="r")
    state.begin_metrics({}, {"level": rule()})
    state.stages["level"].enter(0)
    state.observe_episodes([1.0] * 3, [1] * 3, [1.0] * 3, [-1, 1, 0], [[0.0]] * 3)
    assert state.stages["level"].values == [1.0, 0.0]
