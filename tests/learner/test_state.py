"""LearnerState: counts, the window of 100 episodes, and a strict round trip through JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.errors import CheckpointError
from distrl.learner.state import LearnerState
from distrl.memory_backend.records import Evaluation

COUNTS = st.integers(0, 2**62)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
STATES = st.builds(
    LearnerState,
    run_id=st.text(max_size=20),
    updates=COUNTS,
    env_steps=COUNTS,
    trained_steps=COUNTS,
    episodes=COUNTS,
    weights_version=COUNTS,
    best_mean_return_100=st.none() | FLOATS,
    evaluation_mean_return=st.none() | FLOATS,
    evaluation_env_steps=st.none() | COUNTS,
    best_evaluation_return=st.none() | FLOATS,
    best_saved_evaluation=st.none() | FLOATS,
    best_by=st.text(max_size=20),
    best_score=st.none() | FLOATS,
    recent_returns=st.lists(FLOATS, max_size=100),
    recent_lengths_steps=st.lists(COUNTS, max_size=100),
    recent_discounted_returns=st.lists(FLOATS, max_size=100),
    recent_successes=st.lists(st.integers(-1, 1), max_size=100),
    recent_metrics=st.dictionaries(st.text(max_size=5), st.lists(st.none() | FLOATS, max_size=100), max_size=3),
    evaluation_metrics=st.dictionaries(st.text(max_size=5), st.none() | FLOATS, max_size=3),
    applied=st.dictionaries(st.tuples(COUNTS, COUNTS), COUNTS, max_size=5),
    trained_unrolls=COUNTS,
    wall_s=st.floats(0.0, 1e12),
)


def state(**fields):
    return LearnerState(run_id="run", **fields)


@given(STATES)
def test_round_trip_through_json_text(original):
    assert LearnerState.from_meta(json.loads(json.dumps(original.to_meta()))) == original


def test_meta_is_what_a_reader_of_the_file_expects():
    meta = state(updates=3, applied={(1, 2): 9, (0, 1): 4}).to_meta()
    assert meta["updates"] == 3
    assert meta["applied"] == [[0, 1, 4], [1, 2, 9]]
    assert meta["best_mean_return_100"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"update": 1}, "update: Unexpected"),
        ({"updates": -1}, "updates: Input should be greater"),
        ({"updates": 1.0}, "updates: Input should be a valid integer"),
        ({"updates": True}, "updates: Input should be a valid integer"),
        ({"updates": "1"}, "updates: Input should be a valid integer"),
        ({"run_id": None}, "run_id: Input should be a valid string"),
        ({"wall_s": float("nan")}, "wall_s: Input should be a finite number"),
        ({"recent_returns": [0.0] * 101}, "recent_returns: List should have at most 100"),
        ({"recent_metrics": {"x": [0.0] * 101}}, "recent_metrics.x: List should have at most 100"),
        ({"recent_metrics": {"x": [float("nan")]}}, "recent_metrics.x.0: Input should be a finite number"),
        ({"recent_successes": [2]}, "recent_successes.0: Input should be less than or equal to 1"),
        ({"applied": [[0, 1]]}, "applied: Value error"),
        ({"applied": [[0, 1, 2], [0, 1, 3]]}, "a producer is named twice"),
        ({"applied": [["0", 1, 2]]}, "valid integer"),
    ],
)
def test_a_damaged_meta_is_one_line(change, message):
    with pytest.raises(CheckpointError, match=message) as raised:
        LearnerState.from_meta(state().to_meta() | change)
    assert "\n" not in str(raised.value)


def test_a_missing_field_is_named():
    meta = state().to_meta()
    del meta["episodes"], meta["applied"]
    with pytest.raises(CheckpointError, match="has no applied, episodes"):
        LearnerState.from_meta(meta)


def test_no_mean_before_the_first_episode():
    learner = state()
    learner.observe_episodes([], [])
    assert (learner.mean_return_100, learner.episodes, learner.take_best()) == (None, 0, False)


def test_the_mean_is_over_the_newest_100_episodes():
    learner = state()
    learner.observe_episodes(np.array([3.0, 5.0], "float32"), np.array([7, 8], "int32"))
    assert learner.mean_return_100 == 4.0
    learner.observe_episodes(range(150), range(150))
    assert learner.mean_return_100 == sum(range(50, 150)) / 100
    assert (learner.episodes, len(learner.recent_returns)) == (152, 100)
    assert learner.recent_lengths_steps == list(range(50, 150))
    assert json.dumps(learner.to_meta())  # NumPy's numbers have become Python's


def test_lengths_must_match_returns():
    learner = state()
    with pytest.raises(ValueError, match="shorter"):
        learner.observe_episodes([1.0, 2.0], [3])
    with pytest.raises(ValueError, match=r"^1 discounted returns, successes or metrics of 2 episodes$"):
        learner.observe_episodes([1.0, 2.0], [3, 4], [1.0], [1])
    assert learner.episodes == 0


def test_the_best_needs_a_full_window_and_an_improvement():
    learner = state()
    learner.observe_episodes([500.0] * 99, [1] * 99)
    assert not learner.take_best()
    learner.observe_episodes([100.0], [1])
    assert learner.take_best()
    assert learner.best_mean_return_100 == 496.0
    assert not learner.take_best()  # as good as the best is not better
    learner.observe_episodes([600.0], [1])  # 500 leaves the window
    assert learner.take_best()
    assert learner.best_mean_return_100 == 497.0
    learner.observe_episodes([0.0], [1])
    assert not learner.take_best()
    assert learner.best_mean_return_100 == 497.0


def observe(learner, mean_return, env_steps, **more):
    told = Evaluation(1, env_steps, 2, mean_return, 0.0, mean_return, mean_return, 4.0, 0.1, **more)
    return learner.observe_evaluation(told)


def test_the_best_of_an_earlier_version_is_that_by_its_return():
    meta = state(best_evaluation_return=95.0, best_saved_evaluation=95.0).to_meta()
    del meta["best_by"], meta["best_score"]
    learner = LearnerState.from_meta(meta)
    assert (learner.best_by, learner.best_score) == ("episode_return", 95.0)
    assert not observe(learner, 3.0, 100)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), None])
def test_a_score_is_a_number(value):
    told = Evaluation(1, 1, 2, 3.0, 0.0, 3.0, 3.0, 4.0, 0.1, metrics={"x": value, "success": 2.0}, best_by="x")
    assert told.score is None
    assert replace(told, best_by="success", success_rate=0.5).score == 2.0  # a metric of that name goes before


def test_the_best_evaluation_may_be_judged_by_another_result():
    learner = state()
    learner.begin_evaluations("success")
    by = {"best_by": "success"}
    found = [
        observe(learner, *told, success_rate=rate, **by)
        for told, rate in [((9.0, 100), None), ((1.0, 200), 0.25), ((5.0, 300), 0.25), ((0.0, 400), 0.5)]
    ]
    assert found == [False, True, False, True]
    assert (learner.best_evaluation_return, learner.best_score) == (9.0, 0.5)
    assert learner.take_best(by_evaluation=True)
    assert learner.best_saved_evaluation == 0.5
    learner.begin_evaluations("success")
    assert learner.best_score == 0.5
    learner.begin_evaluations("goals (sum)")
    assert (learner.best_by, learner.best_score, learner.best_saved_evaluation) == ("goals (sum)", None, None)
    assert learner.best_evaluation_return == 9.0
    assert observe(learner, 1.0, 500, metrics={"goals": -3.0}, best_by="goals")
    assert learner.take_best(by_evaluation=True)


def test_the_best_evaluation_is_remembered_and_the_first_checkpoint_after_it_is_the_best():
    learner = state()
    assert not learner.take_best(by_evaluation=True)
    found = [observe(learner, value, steps) for value, steps in [(80.0, 100), (95.0, 200), (90.0, 300)]]
    assert found == [True, True, False]
    assert (learner.evaluation_mean_return, learner.evaluation_env_steps) == (90.0, 300)
    assert learner.best_evaluation_return == 95.0
    assert learner.take_best(by_evaluation=True)  # found before 90 was, in the same look
    assert learner.best_saved_evaluation == 95.0
    assert not learner.take_best(by_evaluation=True)
    assert not observe(learner, 92.0, 400)
    assert not learner.take_best(by_evaluation=True)
    assert observe(learner, 96.0, 500)
    assert learner.take_best(by_evaluation=True)
    learner.observe_episodes([1000.0] * 100, [1] * 100)
    assert not learner.take_best(by_evaluation=True)  # episodes of the training do not count here
    assert learner.take_best()


@pytest.mark.parametrize("later", [("run", "b"), ("other", "a")])
def test_another_launch_counts_its_producers_anew(later):
    learner = state(launch="a", updates=5, applied={(0, 1): 4}, trained_unrolls=5, wall_s=2.5)
    assert learner.for_launch("run", "a").applied == {(0, 1): 4}
    assert learner.trained_unrolls == 5
    continued = learner.for_launch(*later)
    assert continued == LearnerState(run_id=later[0], launch=later[1], updates=5, wall_s=2.5)


def test_a_checkpoint_from_before_there_were_shares_of_successes_has_none():
    meta = state(evaluation_success_rate=0.5).to_meta()
    assert LearnerState.from_meta(meta).evaluation_success_rate == 0.5
    del meta["evaluation_success_rate"]
    assert LearnerState.from_meta(meta).evaluation_success_rate is None


def test_a_checkpoint_from_before_launches_had_tokens_continues_none():
    meta = state(applied={(0, 1): 4}).to_meta()
    del meta["launch"]
    assert LearnerState.from_meta(meta).for_launch("run", "a").applied == {}


@pytest.mark.row("P07.1")
def test_discounted_returns_and_successes_are_of_the_newest_episodes():
    learner = state()
    assert (learner.mean_discounted_return_100, learner.success_rate_100) == (None, None)
    learner.observe_episodes([3.0, 5.0], [7, 8], [1.0, 2.0], [-1, -1])
    assert (learner.mean_discounted_return_100, learner.success_rate_100) == (1.5, None)
    learner.observe_episodes([3.0, 5.0, 1.0], [7, 8, 9], [1.0, 2.0, 6.0], [1, 0, 0])
    assert learner.mean_discounted_return_100 == pytest.approx(12.0 / 5)
    assert learner.success_rate_100 == pytest.approx(1 / 3)
    learner.observe_episodes([0.0] * 100, [1] * 100, [4.0] * 100, [1] * 100)
    assert (learner.mean_discounted_return_100, learner.success_rate_100) == (4.0, 1.0)


def test_a_checkpoint_of_an_earlier_version_has_no_discounted_returns():
    meta = state(recent_returns=[1.0], recent_lengths_steps=[1]).to_meta()
    del meta["recent_discounted_returns"], meta["recent_successes"]
    resumed = LearnerState.from_meta(meta)
    assert (resumed.mean_return_100, resumed.mean_discounted_return_100, resumed.success_rate_100) == (1.0, None, None)


def test_metrics_are_means_of_the_newest_episodes_of_those_that_had_them():
    learner = state()
    learner.begin_metrics({"x": "mean", "y": "last"})
    assert (learner.metric_100("x"), learner.full_window_metric("x")) == (None, None)
    learner.observe_episodes([], [])
    learner.observe_episodes([0.0] * 3, [1] * 3, metrics=[[1.0, float("nan")], [2.0, 4.0], [6.0, float("nan")]])
    assert (learner.metric_100("x"), learner.metric_100("y")) == (3.0, 4.0)
    assert learner.recent_metrics == {"x": [1.0, 2.0, 6.0], "y": [None, 4.0, None]}
    learner.observe_episodes([0.0] * 99, [1] * 99, metrics=[[5.0, float("nan")]] * 99)
    assert (learner.metric_100("x"), learner.full_window_metric("x")) == (5.01, 5.01)  # of 6 and 99 times 5
    assert (learner.metric_100("y"), learner.full_window_metric("y"), learner.unreported_metrics) == (None, None, ["y"])
    assert LearnerState.from_meta(json.loads(json.dumps(learner.to_meta()))) == learner


def test_metrics_need_a_value_of_each_that_is_declared():
    learner = state()
    learner.begin_metrics({"x": "mean", "y": "last"})
    with pytest.raises(ValueError, match="shorter"):
        learner.observe_episodes([0.0], [1], metrics=[[1.0]])
    with pytest.raises(ValueError, match="metrics of 2 episodes"):
        learner.observe_episodes([0.0, 0.0], [1, 1], metrics=[[1.0, 2.0]])


def test_a_metric_known_of_some_episodes_is_no_full_window():
    learner = state()
    learner.begin_metrics({"x": "mean"})
    learner.observe_episodes([0.0] * 100, [1] * 100, metrics=[[9.0]] * 99 + [[float("nan")]])
    assert (learner.metric_100("x"), learner.full_window_metric("x"), learner.unreported_metrics) == (9.0, None, [])


def test_a_resumed_run_keeps_the_metrics_that_are_still_declared():
    learner = state(recent_metrics={"x": [1.0], "y": [2.0]}, evaluation_metrics={"x": 3.0, "y": 4.0})
    learner.begin_metrics({"z": "sum", "y": "sum"})
    assert list(learner.recent_metrics.items()) == [("z", []), ("y", [2.0])]
    assert learner.evaluation_metrics == {"z": None, "y": 4.0}
    meta = state().to_meta()
    del (
        meta["recent_metrics"],
        meta["evaluation_metrics"],
        meta["metric_ways"],
    )  # of an older checkpoint
    assert LearnerState.from_meta(meta).recent_metrics == {}


def test_a_metric_that_is_combined_in_another_way_begins_anew():
    learner = state()
    learner.begin_metrics({"x": "mean", "y": "mean"})
    learner.observe_episodes([0.0], [1], metrics=[[1.0, 2.0]])
    learner.evaluation_metrics = {"x": 3.0, "y": 4.0}
    resumed = LearnerState.from_meta(json.loads(json.dumps(learner.to_meta())))
    resumed.begin_metrics({"x": "sum", "y": "mean"})
    assert (resumed.recent_metrics, resumed.evaluation_metrics) == ({"x": [], "y": [2.0]}, {"x": None, "y": 4.0})
