"""Evaluations: each is recorded once, and the registry is not read at every update."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from distrl.config import RunConfig
from distrl.config.schedules import Progress
from distrl.learner.attendants import evaluations as evaluations_module
from distrl.learner.attendants.evaluations import Evaluations
from distrl.learner.origin import Origin
from distrl.learner.policy_files import kept_best, write_best
from distrl.learner.preparation import restore_evaluations
from distrl.learner.state import LearnerState
from distrl.memory_backend.backend import connect
from distrl.memory_backend.codec import encode_weights
from distrl.memory_backend.records import BestEvaluation, Estimate, Evaluation
from distrl.memory_backend.stream import QueueCaps
from distrl.types import Weights


def evaluation(env_steps):
    return Evaluation(1, env_steps, 2, 3.0, 0.0, 3.0, 3.0, 4.0, 0.1)


@pytest.fixture
def registry():
    backend = connect("local:", "r", QueueCaps(8, 2**20), name="test", give_up_s=1.0)
    backend.create("{}")
    assert backend.registry.register("evaluator") == 1
    return backend.registry


def tell(registry, *env_steps):
    for steps in env_steps:
        registry.add_evaluation(evaluation(steps), b"", 1)


@pytest.fixture
def seen(monkeypatch):
    """Environment steps of the evaluations that a learner has observed."""
    found = []
    monkeypatch.setattr(LearnerState, "observe_evaluation", lambda self, told: found.append(told.env_steps) or False)
    return found


def evaluations(registry, state=None, attend=lambda: None, stop=lambda: False, **tree):
    state = state or LearnerState(run_id="r")
    weights = SimpleNamespace(progress=lambda: Progress(50))
    config, backend = RunConfig.model_validate(tree), SimpleNamespace(registry=registry, weights=weights)
    return Evaluations(config, state, backend, Path("never"), None, None, attend, stop)


def test_each_is_read_once_and_no_more_often_than_asked_for(registry, seen, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(evaluations_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    made = evaluations(registry)
    made.look()
    tell(registry, 10)
    made.look()
    assert seen == []  # not yet
    now[0] += 0.5
    made.look()
    assert seen == [10]
    tell(registry, 20, 30)
    made.look()
    assert seen == [10]
    made.look(at_once=True)
    assert seen == [10, 20, 30]
    now[0] += 10.0
    made.look()
    assert seen == [10, 20, 30]


def test_deterministic_mode_looks_whenever_it_is_asked(registry, seen):
    made = evaluations(registry, actors={"count": 0})
    for env_steps in (5, 10, 15):
        tell(registry, env_steps)
        made.look()
        assert seen[-1] == env_steps


@pytest.mark.row("P07.4")
def test_the_newest_share_of_successes_is_kept(registry, tmp_path):
    made = evaluations(registry)
    registry.add_evaluation(replace(evaluation(10), success_rate=0.75), b"", 1)
    made._policy_dir = tmp_path
    made.look(at_once=True)
    assert made._state.evaluation_success_rate == 0.75
    tell(registry, 20)
    made.look(at_once=True)
    assert made._state.evaluation_success_rate is None


def test_estimates_have_columns_and_those_that_are_wanted_no_more_are_forgotten(registry, tmp_path):
    wanted = {"every_env_steps": 10, "off_policy": {"estimators": ["fqe", "wis"], "sets": "some"}}
    made = evaluations(registry, evaluation=wanted)
    made._policy_dir = tmp_path
    estimates = (Estimate("fqe", 4.0, 3.5, 4.5), Estimate("wis", problem="no weights"))
    told = replace(evaluation(50), mean_discounted_return=2.5, estimates=estimates)
    registry.add_evaluation(told, b"", 1)
    made.look(at_once=True)
    columns = made._state.other_evaluations
    assert columns == {
        "evaluation_mean_discounted_return": 2.5,
        "evaluation_off_policy_fqe": 4.0,
        "evaluation_off_policy_fqe_low": 3.5,
        "evaluation_off_policy_fqe_high": 4.5,
        **dict.fromkeys((f"evaluation_off_policy_wis{end}" for end in ("", "_low", "_high")), None),
    }
    resumed = evaluations(registry, made._state, evaluation=wanted)
    assert (resumed._state.other_evaluations, resumed.lacks_last) == (columns, False)
    wanted["off_policy"]["estimators"] = ["fqe"]
    fewer = evaluations(registry, made._state, evaluation=wanted)
    assert (len(fewer._state.other_evaluations), fewer.lacks_last) == (4, False)
    wanted["off_policy"]["estimators"] = ["fqe", "dm"]
    assert evaluations(registry, made._state, evaluation=wanted).lacks_last  # none of the last weights by dm
    assert evaluations(registry, made._state)._state.other_evaluations == {}


def test_a_resumed_training_goes_on_with_what_was_evaluated_and_kept(registry, tmp_path):
    blob = encode_weights(Weights(4, {}))
    write_best(tmp_path, BestEvaluation(evaluation(150), blob))  # of 3.0, after the checkpoint that is resumed from
    state = LearnerState(run_id="r", evaluation_env_steps=110, evaluation_mean_return=1.0, best_evaluation_return=2.0)
    restore_evaluations(tmp_path, state, registry, Origin(state, resumed=True))
    assert (state.best_evaluation_return, registry.evaluated_env_steps(), registry.best_score()) == (3.0, 110, 3.0)
    assert not state.observe_evaluation(replace(evaluation(200), mean_return=2.5))  # takes no better one's place
    better = LearnerState(run_id="r", best_evaluation_return=3.5, best_score=3.5)
    restore_evaluations(tmp_path, better, registry, Origin(better, resumed=True))
    assert (better.best_evaluation_return, better.best_score) == (3.5, 3.5)
    fresh = LearnerState(run_id="r")
    restore_evaluations(tmp_path, fresh, registry, Origin(fresh, resumed=False))
    assert (fresh.best_evaluation_return, kept_best(tmp_path)) == (None, None)


def judged(registry, policy, state, **tree):
    """`state` as a launch begins with it."""
    config = RunConfig.model_validate(tree)
    if config.evaluation.every_env_steps is not None:
        state.begin_evaluations(config.evaluation.judged_by(config.environment.metrics))
    restore_evaluations(policy, state, registry, Origin(state, resumed=True))
    return state.best_score, state.best_saved_evaluation


def by_goals():
    return LearnerState(run_id="r", best_by="goals (sum)", best_score=8.0, best_saved_evaluation=8.0)


@pytest.mark.parametrize(("now", "way"), [("goals", "sum"), ("goals", "max"), ("episode_return", "sum")])
def test_a_resumed_training_keeps_the_best_by_the_same_result_only(registry, tmp_path, caplog, now, way):
    told = replace(evaluation(150), metrics={"goals": 9.0}, best_by="goals")
    write_best(tmp_path, BestEvaluation(told, encode_weights(Weights(4, {}))), "goals (sum)")
    evaluation_tree = {"every_env_steps": 10, "best_by": now}
    state = by_goals()
    found = judged(registry, tmp_path, state, environment={"metrics": {"goals": way}}, evaluation=evaluation_tree)
    same = (now, way) == ("goals", "sum")
    assert found == ((9.0, 8.0) if same else (None, None))
    assert registry.best_score() == (9.0 if same else None)
    assert kept_best(tmp_path).score == 9.0  # until there is a better one by the result of now
    assert state.best_evaluation_return == 3.0  # the mean return is known whatever decides
    what = "the best evaluation so far was judged by goals (sum); the next one that has"
    assert (what in caplog.text) is not same


def test_the_best_outlives_launches_that_judge_otherwise_or_do_not_evaluate(registry, tmp_path):
    told = replace(evaluation(150), metrics={"goals": 9.0}, best_by="goals")
    write_best(tmp_path, BestEvaluation(told, encode_weights(Weights(4, {}))), "goals (sum)")
    goals = {"environment": {"metrics": {"goals": "sum"}}, "evaluation": {"every_env_steps": 10, "best_by": "goals"}}
    assert judged(registry, tmp_path, by_goals()) == (9.0, 8.0)  # without evaluations
    assert judged(registry, tmp_path, by_goals(), evaluation={"every_env_steps": 10}) == (None, None)
    assert judged(registry, tmp_path, by_goals(), **goals) == (9.0, 8.0)  # that launch has saved nothing
    write_best(tmp_path, BestEvaluation(evaluation(160), encode_weights(Weights(5, {}))))
    assert judged(registry, tmp_path, by_goals(), **goals) == (None, 8.0)  # the weights of 9 are gone


def test_a_learner_of_published_weights_keeps_the_best_of_earlier_launches(registry, tmp_path):
    registry.restore_evaluated(100, 9.0)
    tell(registry, 150)  # of this launch, which is read again
    state = LearnerState(run_id="r")
    restore_evaluations(tmp_path, state, registry, Origin(state, resumed=True, saved=False))
    assert (state.best_score, registry.best_score()) == (9.0, 9.0)


def test_a_resumed_training_without_a_best_is_evaluated_at_its_end(registry, tmp_path):
    state = LearnerState(run_id="r", evaluation_env_steps=50, best_score=2.0)
    assert not evaluations(registry, state, evaluation={"every_env_steps": 10}).lacks_last
    state.best_score = None
    made = evaluations(registry, state, evaluation={"every_env_steps": 10, "best_by": "success"})
    made._policy_dir = tmp_path
    assert made.lacks_last
    tell(registry, 50)
    made.look(at_once=True)
    assert not made.lacks_last  # although no success is known


def test_the_last_weights_are_asked_for_once_and_waited_for(registry, tmp_path):
    looks = iter([[], [40], [], [50]])
    made = evaluations(registry, attend=lambda: tell(registry, *next(looks)))
    made._policy_dir = tmp_path
    assert made.lacks_last
    assert made.have_last()
    assert (made._state.evaluation_env_steps, made.lacks_last) == (50, False)
    assert registry.control().evaluation.asked == 1
    assert [request.what for _, request in registry.requests("0")] == ["evaluate the last weights, within 60 s"]


def test_the_end_waits_no_longer_than_it_may(registry):
    assert not evaluations(registry, evaluation={"every_env_steps": 10, "last_within_s": 0.0}).lacks_last
    made = evaluations(registry, evaluation={"every_env_steps": 10, "last_within_s": 0.01})
    assert not made.have_last()
    assert [request.what for _, request in registry.requests("0")][-1] == (
        "end without an evaluation of the last weights: none within 0.01 s (evaluation.last_within_s)"
    )


def test_a_stop_ends_the_wait(registry):
    stops = iter([False, False, True])
    made = evaluations(registry, stop=lambda: next(stops))
    assert not made.have_last()
    assert made._state.evaluation_env_steps is None


def test_another_environment_under_the_same_name_has_no_result_yet(registry, tmp_path):
    def made(state, level, token="abc"):
        environment = {"kwargs": {"token": token}}
        evaluation = {"every_env_steps": 10, "other_environments": {"hard": {"kwargs": {"level": level}}}}
        return evaluations(registry, environment=environment, evaluation=evaluation, state=state)

    first = made(LearnerState(run_id="r"), 3)
    first._policy_dir = tmp_path
    registry.add_evaluation(replace(evaluation(50), others={"hard": evaluation(50)}), b"", 1)
    first.look(at_once=True)
    column = "evaluation_in_hard_mean_return"
    assert (first._state.other_evaluations[column], first.lacks_last) == (3.0, False)
    assert "abc" not in json.dumps(first._state.to_meta())
    saved = LearnerState.from_meta(json.loads(json.dumps(first._state.to_meta())))
    again = made(saved, 3)
    assert (again._state.other_evaluations[column], again.lacks_last) == (3.0, False)
    harder = made(saved, 9)
    assert (harder._state.other_evaluations[column], harder.lacks_last) == (None, True)


def test_the_newest_metrics_of_evaluations_are_kept(registry, tmp_path):
    made = evaluations(registry)
    made._policy_dir = tmp_path
    made._state.begin_metrics({"x": "mean", "y": "mean"})
    registry.add_evaluation(replace(evaluation(10), metrics={"x": 0.75, "y": None}), b"", 1)
    made.look(at_once=True)
    assert made._state.evaluation_metrics == {"x": 0.75, "y": None}
    registry.add_evaluation(replace(evaluation(20), metrics={"y": 1e30}), b"", 1)
    made.look(at_once=True)
    assert made._state.evaluation_metrics == {"x": None, "y": 1e30}


def test_results_in_other_environments_have_columns(registry, tmp_path):
    tree = {
        "environment": {"metrics": {"speed/x": "sum"}},
        "evaluation": {"every_env_steps": 9, "other_environments": {"hard": {"id": "X"}, "far": {"id": "Y"}}},
    }
    empty = {
        f"evaluation_in_{name}_{end}": None
        for name in ("hard", "far")
        for end in ("mean_return", "success_rate", "info_speed_x")
    }
    made = evaluations(registry, **tree)
    assert made._state.other_evaluations == empty  # so that the first row of metrics.csv has them
    there = replace(evaluation(10), mean_return=1.5, success_rate=0.5, metrics={"speed/x": 4.0})
    registry.add_evaluation(replace(evaluation(10), others={"hard": there, "unknown": there}), b"", 1)
    made._policy_dir = tmp_path
    made.look(at_once=True)
    hard = {"mean_return": 1.5, "success_rate": 0.5, "info_speed_x": 4.0}
    assert made._state.other_evaluations == empty | {f"evaluation_in_hard_{end}": hard[end] for end in hard}
    assert made._state.best_evaluation_return == 3.0  # of the training's own environment
    tell(registry, 20)
    made.look(at_once=True)
    assert made._state.other_evaluations == empty


def test_a_resumed_run_keeps_the_results_in_environments_that_it_still_has(registry):
    tree = {"evaluation": {"every_env_steps": 9, "other_environments": {"a": {"id": "X"}, "c": {"id": "X"}}}}
    defined = hashlib.sha256(b'["X", {}]').hexdigest()
    state = LearnerState(
        run_id="r",
        other_evaluations={"evaluation_in_a_mean_return": 1.0, "evaluation_in_b_x": 2.0},
        other_environments={"a": defined, "b": "{}"},
    )
    evaluations(registry, state, **tree)
    known = {column: value for column, value in state.other_evaluations.items() if value is not None}
    assert known == {"evaluation_in_a_mean_return": 1.0}
    assert len(state.other_evaluations) == 4
