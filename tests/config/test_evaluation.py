"""EvaluationConfig: off by default, and nothing in it or beside it that would be ignored."""

import pytest

from distrl.config import RunConfig
from distrl.config.evaluation import EvaluationConfig
from distrl.config.load import load
from distrl.errors import ConfigError


def test_off_by_default():
    assert RunConfig().evaluation.every_env_steps is None


def test_no_more_environments_than_episodes():
    assert EvaluationConfig(every_env_steps=1, episodes=3).environments_used == 3
    assert EvaluationConfig(every_env_steps=1).environments_used == 10


@pytest.mark.parametrize("name", ["episodes", "environments", "last_within_s", "epsilon"])
def test_what_nobody_would_look_at_is_refused(name):
    with pytest.raises(ConfigError) as caught:
        load(sets=[f"evaluation.{name}=1"])
    assert f"{name} is of no use while every_env_steps is null; set it, or leave {name} out" in str(caught.value)


def test_films_need_evaluations_and_keep_needs_films_by_number():
    for films, told in (
        ("{best: true}", "films is of no use while every_env_steps"),
        ("{keep: 3}", "keep is of no use"),
    ):
        with pytest.raises(ConfigError, match=told):
            load(sets=[f"evaluation.films={films}"])
    films = load(sets=["evaluation.every_env_steps=9", "evaluation.films={every: 10}"]).config.evaluation.films
    assert (films.used, films.every, films.best, films.keep) == (True, 10, False, 20)


def test_the_best_is_judged_by_a_result_that_evaluations_have():
    assert RunConfig().evaluation.best_by == "episode_return"
    with pytest.raises(ConfigError, match="best_by is of no use while every_env_steps is null"):
        load(sets=["evaluation.best_by=success"])
    on = ["evaluation.every_env_steps=9", "environment.metrics={goals: sum}"]
    with pytest.raises(ConfigError) as caught:
        load(sets=[*on, "evaluation.best_by=coins"])
    assert "'coins' is none of goals, episode_return, success; declare it in environment.metrics" in str(caught.value)
    for name, judged in (("success", "success"), ("goals", "goals (sum)")):
        config = load(sets=[*on, f"evaluation.best_by={name}"]).config
        assert config.evaluation.judged_by(config.environment.metrics) == judged


@pytest.mark.parametrize(
    ("sets", "told"),
    [
        (["off_policy={estimators: [fqe], sets: a}"], "off_policy is of no use while every_env_steps is null"),
        (["every_env_steps=9", "off_policy.sets=a"], "sets is of no use without estimators; set those, such as [fqe]"),
        (["every_env_steps=9", "off_policy.behaviour=bc"], "behaviour is of no use without estimators"),
        (
            ["every_env_steps=9", "off_policy.estimators=[fqe]"],
            "evaluation.off_policy.sets: there are no recorded epis",
        ),
        (["every_env_steps=9", "off_policy.estimators=[is]"], "evaluation.off_policy.estimators.0"),
        (["every_env_steps=9", "off_policy.estimators=[fqe, fqe]"], "estimators: fqe is named twice; name it once"),
    ],
)
def test_estimates_that_cannot_be(sets, told):
    with pytest.raises(ConfigError) as caught:
        load(sets=[f"evaluation.{each}" for each in sets])
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_estimates_are_from_the_data_of_the_run_or_from_sets_of_their_own():
    own = ["evaluation.every_env_steps=9", "evaluation.off_policy.estimators=[fqe]", "actors.count=0", "data.sets=own"]
    for sets, name in ((own, "own"), ([*own, "evaluation.off_policy.sets=apart"], "apart")):
        config = load(sets=["algorithm.name=dqn", *sets]).config
        assert [each.name for each in config.evaluation.off_policy.data(config.data).sets] == [name]
    apart = ["evaluation.off_policy.sets=apart", "launch.start_actors=false", "memory.listen=auto"]
    described = [*apart, "environment.spec_file=spec.json"]
    with pytest.raises(ConfigError, match=r"environment.spec_file: spec.json: evaluation.off_policy makes the env"):
        load(sets=[*own[:2], *described])


@pytest.mark.row("D50")
def test_a_stop_that_waits_for_evaluations_needs_some():
    with pytest.raises(ConfigError) as caught:
        load(sets=["stop.evaluation_return=475"])
    assert "\n" not in str(caught.value)
    assert (
        "stop.evaluation_return: 475 waits for evaluations, and there are none; set evaluation.every_env_steps"
        in str(caught.value)
    )
    config = load(sets=["stop.evaluation_return=475", "evaluation.every_env_steps=1000"]).config
    assert config.stop.evaluation_return == 475.0


def others_of(**others):
    tree = {"environment": {"kwargs": {"size": 8, "level": 1}, "metrics": {"x": "sum"}, "spec_file": "spec.json"}}
    evaluation = {"every_env_steps": 9, "other_environments": others}
    return RunConfig.model_validate({**tree, "evaluation": evaluation, "launch": {"start_actors": False}, **REDIS})


REDIS = {"memory": {"url": "redis://elsewhere:6379"}}


@pytest.mark.parametrize(
    ("other", "identifier", "kwargs"),
    [
        ({"kwargs": {"level": 9}}, "CartPole-v1", {"size": 8, "level": 9}),
        ({"kwargs": {"wind": 2}}, "CartPole-v1", {"size": 8, "level": 1, "wind": 2}),
        ({"id": "CartPole-v0"}, "CartPole-v0", {}),
        ({"id": "CartPole-v1", "kwargs": {"level": 9}}, "CartPole-v1", {"level": 9}),
    ],
)
def test_what_another_environment_does_not_say_is_as_in_the_training(other, identifier, kwargs):
    config = others_of(hard=other)
    (made,) = config.other_environments.values()
    assert (made.id, made.kwargs, made.metrics) == (identifier, kwargs, {"x": "sum"})
    assert made.spec_file is None
    assert config.environment.kwargs == {"size": 8, "level": 1}


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ("{a-b: {id: X}}", "a-b"),
        ("{info: {id: X}}", "'info': info begins the names of metrics in columns; choose another name"),
        ("{hard_info_x: {id: X}}", "'hard_info_x': info begins"),
        ("{hard: {}}", "hard: it is the environment of the training; set id or kwargs"),
        ("{hard: {metrics: {}}}", "unknown key evaluation.other_environments.hard.metrics"),
    ],
)
def test_other_environments_that_cannot_be(others, told):
    with pytest.raises(ConfigError) as caught:
        load(sets=["evaluation.every_env_steps=9", f"evaluation.other_environments={others}"])
    assert told in str(caught.value)


def test_other_environments_need_evaluations_and_have_paths_of_their_own():
    with pytest.raises(ConfigError, match="other_environments is of no use while every_env_steps is null"):
        load(sets=["evaluation.other_environments={hard: {id: X}}"])
    hard = "evaluation.other_environments.hard"
    config = load(sets=["evaluation.every_env_steps=9", f"{hard}.kwargs.gravity=5"]).config
    assert config.other_environments["hard"].kwargs == {"gravity": 5}
