"""Curricula: the values of rules by hand, and what a configuration refuses."""

import pytest
from pydantic import ValidationError

from distrl.config.curriculum import check_adjustable, like
from distrl.config.environment import EnvironmentConfig
from distrl.config.evaluation import OtherEnvironment
from distrl.config.schedules import Progress
from distrl.errors import ConfigError


def environment(kwargs, curriculum, **more):
    return EnvironmentConfig.model_validate({"kwargs": kwargs, "curriculum": curriculum, **more})


STAGES = {"kind": "stages", "values": [0, 1, 4], "at_env_steps": [100, 300]}
BY_METRIC = {"kind": "by_metric", "values": [0, 1, 4], "metric": "success", "above": 0.8}


@pytest.mark.parametrize(
    ("configured", "rule", "table"),
    [
        (0, STAGES, {0: 0, 99: 0, 100: 1, 299: 1, 300: 4, 10**9: 4}),
        (0, {"kind": "stages", "values": [7], "at_env_steps": []}, {0: 7, 10**9: 7}),
        ("a", {"kind": "stages", "values": ["a", "b"], "at_env_steps": [5]}, {4: "a", 5: "b"}),
        (False, {"kind": "stages", "values": [False, True], "at_env_steps": [5]}, {4: False, 5: True}),
        (1.0, {"kind": "stages", "values": [1, 2.5], "at_env_steps": [5]}, {4: 1.0, 5: 2.5}),
        # 10 steps of 0.3 each: whole numbers are rounded down, and 3 is reached where the schedule says 3.
        (0, {"kind": "linear", "start": 0, "end": 3, "steps": 10}, {0: 0, 3: 0, 4: 1, 6: 1, 7: 2, 9: 2, 10: 3, 99: 3}),
        (0, {"kind": "linear", "start": -1.5, "end": 1.5, "steps": 3}, {0: -2, 1: -1, 2: 0, 3: 1}),
        (0.0, {"kind": "linear", "start": 0, "end": 3, "steps": 10}, {0: 0.0, 5: 1.5, 10: 3.0}),
        (9.8, {"kind": "constant", "value": 3}, {0: 3.0}),
        (1, 3, {0: 3}),
        (0, BY_METRIC, {0: 0, 10**9: 0}),
        (0, {**BY_METRIC, "stage": 2}, {0: 4, 10**9: 4}),
    ],
)
def test_values_by_hand(configured, rule, table):
    given = environment({"x": configured, "other": 3}, {"x": rule})
    for env_steps, value in table.items():
        assert given.parameters_at(Progress(env_steps)) == {"x": value, "other": 3}, env_steps
        assert type(given.parameters_at(Progress(env_steps))["x"]) is type(configured)


def test_without_a_rule_the_configured_values_are_in_force():
    given = environment({"a": 1, "b": [1], "c": None, "d": "x", "e": True}, {})
    assert given.parameters_at(Progress(10**6)) == {"a": 1, "d": "x", "e": True}


@pytest.mark.parametrize(
    ("kwargs", "curriculum", "line"),
    [
        ({"level": 0}, {"lvl": STAGES}, "'lvl' is not in environment.kwargs; it has 'level'"),
        ({}, {"level": STAGES}, "'level' is not in environment.kwargs; there are none"),
        ({"level": [0]}, {"level": STAGES}, "only numbers, true or false, and texts can change"),
        ({"level": None}, {"level": STAGES}, "only numbers, true or false, and texts can change"),
        ({"level": "a"}, {"level": {"kind": "linear"}}, "linear is for numbers"),
        ({"level": True}, {"level": {"kind": "linear"}}, "linear is for numbers"),
        ({"level": 1}, {"level": {"kind": "linear", "end": 3}}, "linear needs start, end and steps"),
        ({"level": 1}, {"level": {"kind": "piecewise", "pieces": [{"schedule": {"kind": "linear"}}]}}, "needs start"),
        ({"level": 1}, {"level": {"kind": "piecewise", "pieces": [{"schedule": 1.5}]}}, "1.5 must be a whole number"),
        ({"level": 1}, {"level": 1.5}, "1.5 must be a whole number"),
        ({"level": "a"}, {"level": STAGES}, "0 must be a text"),
        ({"level": 0}, {"level": {**STAGES, "values": [0, 1.5, 2]}}, "1.5 must be a whole number.*write 0.0 there"),
        ({"level": 0}, {"level": {**STAGES, "values": [0, True, 2]}}, "true must be a whole number"),
        ({"level": 0}, {"level": {**STAGES, "at_env_steps": [100]}}, "at_env_steps has 1 numbers for 3 values"),
        ({"level": 0}, {"level": {**STAGES, "at_env_steps": [300, 100]}}, r"\[300, 100\] must increase"),
        ({"level": 0}, {"level": {**STAGES, "at_env_steps": [100, 100]}}, "must increase"),
        ({"level": 0}, {"level": {**STAGES, "at_env_steps": [0, 100]}}, "greater than or equal to 1"),
        ({"level": 0}, {"level": {**BY_METRIC, "metric": "wins"}}, "'wins' is none of x, episode_return, success"),
        ({"level": 0}, {"level": {**BY_METRIC, "stage": 3}}, "stage: 3 is not among the 3 values"),
        ({"level": 0}, {"level": {**BY_METRIC, "stage": -1}}, "greater than or equal to 0"),
        ({"level": 0}, {"level": {**BY_METRIC, "episodes": 0}}, "greater than or equal to 1"),
        ({"level": 0}, {"level": {**BY_METRIC, "episodes": 10_001}}, "less than or equal to 10000"),
        ({"level": 0}, {"level": {**BY_METRIC, "above": float("nan")}}, "finite"),
        ({"level": 0}, {"level": {**BY_METRIC, "values": []}}, "at least 1 item"),
        ({"level": 0}, {"level": {"kind": "ladder"}}, "kind"),
        ({"a b": 0, "a_b": 0}, {"a b": STAGES, "a_b": STAGES}, "would share a column"),
    ],
)
def test_what_makes_no_sense_is_refused(kwargs, curriculum, line):
    with pytest.raises(ValidationError, match=line):
        environment(kwargs, curriculum, metrics={"x": "last"})


@pytest.mark.parametrize("vectorization", ["own", "mujoco", "envpool", "ale"])
def test_a_vectorization_that_cannot_change_environments_is_refused(vectorization):
    with pytest.raises(ValidationError, match=f"vectorization: {vectorization} cannot change"):
        environment({"level": 0}, {"level": STAGES}, vectorization=vectorization)
    assert environment({"level": 0}, {"level": STAGES}, vectorization="async").curriculum


def test_a_metric_of_the_environment_may_lead():
    rule = {**BY_METRIC, "metric": "x"}
    given = environment({"a": 0, "b": 0}, {"a": rule, "b": STAGES}, metrics={"x": "last"})
    assert {name: rule.metric for name, rule in given.metric_rules.items()} == {"a": "x"}
    assert EnvironmentConfig.model_validate(given.model_dump(mode="json")) == given
    assert EnvironmentConfig.model_validate_json(given.model_dump_json()) == given


@pytest.mark.parametrize(("configured", "value"), [(1.0, float("inf")), (1.0, True), (True, 1), ("a", 1), (1, "1")])
def test_a_value_of_another_type_is_refused(configured, value):
    with pytest.raises(ValueError, match="must be"):
        like(configured, value)


def test_what_an_environment_cannot_change_is_one_line():
    check_adjustable("Env", ["a"], ["a", "b"], "environment.curriculum")
    with pytest.raises(
        ConfigError, match=r"^environment\.curriculum\.c: environment Env cannot change c between"
    ) as it:
        check_adjustable("Env", ["a", "c"], ["a", "b"], "environment.curriculum")
    assert "\n" not in str(it.value)


def test_other_environments_of_evaluations_do_not_follow():
    given = environment({"level": 0, "size": 3}, {"level": STAGES})
    other = OtherEnvironment(kwargs={"level": 4}).beside(given)
    assert (other.curriculum, other.parameters_at(Progress(10**9))) == ({}, {"level": 4, "size": 3})
