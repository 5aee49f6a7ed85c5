"""Estimates at the evaluations of a training: of the weights in force, and refused before it where they cannot be."""

from dataclasses import replace

import numpy as np
import pytest
from pyarrow import csv, parquet

from distrl.actors.policy import Policy
from distrl.actors.published_evaluator import no_estimates
from distrl.config import RunConfig
from distrl.config.data import DataConfig
from distrl.data.off_policy.beside import check, estimating
from distrl.data.off_policy.evaluating import Wanted, of_run
from distrl.errors import ConfigError, DistrlError
from distrl.launch.recorded_data import check_off_policy
from distrl.learner.policy_files import read_policy
from distrl.serving.evaluation import run_config
from distrl.types import BoxSpec, Weights


@pytest.fixture
def run(runs):
    """CartPole's saved policy, its configuration with these settings of `evaluation.off_policy`, and the data."""
    run_dir, data = runs["cartpole"]
    tree = run_config(run_dir).model_dump(mode="json", exclude_unset=True)
    saved = read_policy(run_dir, "newest")
    policy = Policy(saved.bundle)
    policy.set_weights(saved.weights)

    def configured(**settings):
        settings = {"sets": [{"name": str(data), "episodes": 20}], "estimators": ["wis", "fqe"], **settings}
        evaluation = {**tree.get("evaluation", {}), "every_env_steps": 1, "off_policy": settings}
        return RunConfig.model_validate({**tree, "evaluation": evaluation})

    return run_dir, saved.weights, policy, configured


def test_each_evaluation_has_the_estimates_of_the_command(run):
    run_dir, weights, policy, configured = run
    config = configured(estimators=["dm", "fqe"])
    estimate = estimating(config, policy)
    first = estimate(lambda: False)
    sets = [{"name": config.evaluation.off_policy.sets[0].name, "episodes": 20}]
    wanted = Wanted(("dm", "fqe"), greedy=True, interval=True, seed=config.seed, needs_all=False)
    command, _ = of_run(run_dir, "newest", config, DataConfig.model_validate({"sets": sets}), wanted)
    assert len([*command.play()]) == 20
    assert first == [*command.estimates()]
    policy.set_weights(Weights(2, {name: np.zeros_like(array) for name, array in weights.arrays.items()}))
    second = estimate(lambda: False)
    assert [one.value != other.value for one, other in zip(first, second, strict=True)] == [True, True]
    policy.set_weights(weights)
    assert estimate(lambda: False) == first


@pytest.mark.parametrize("stop_at", [1, 20, 21])  # among the episodes, at their last, and after the first estimator
def test_a_stop_ends_it(run, stop_at):
    _, _, policy, configured = run
    asked = []
    assert estimating(configured(), policy)(lambda: len(asked) + 1 >= stop_at or bool(asked.append(1))) is None
    assert len(asked) == stop_at - 1


def test_data_that_has_gone_meanwhile_costs_the_estimates_alone(run, tmp_path):
    _, _, policy, configured = run
    (tmp_path / "steps.csv").write_text(TABLE + "0,0,0,0,1,1,0,1,0\n0,0,0,0,1,1,1,1,0\n")
    parquet.write_table(csv.read_csv(tmp_path / "steps.csv"), table := tmp_path / "steps.parquet")
    estimate = estimating(configured(sets=[{"name": str(table)}], behaviour="bc"), policy)
    table.unlink()
    found = estimate(lambda: False)
    assert [(one.estimator, one.value) for one in found] == [("wis", None), ("fqe", None)]
    assert all(str(table) in one.problem for one in found)


def test_without_estimators_nothing_is_read(run):
    assert estimating(configured_without(run), run[2]) is no_estimates


def configured_without(run):
    config = run[3]()
    off_policy = config.evaluation.off_policy.model_copy(update={"estimators": ()})
    return config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"off_policy": off_policy})})


TABLE = "observation_0,observation_1,observation_2,observation_3,action,reward,episode,terminated,truncated\n"


@pytest.mark.parametrize(
    ("rows", "settings", "told"),
    [
        ("0,0,0,0,1,1,0,1,0\n", {}, "has one episode, and an interval needs two"),
        (
            "0,0,0,0,1,1,0,1,0\n0,0,0,0,1,1,1,1,0\n",
            {},
            "lacks the probabilities of its actions; set behaviour: bc, or estimators: [fqe]",
        ),
        ("0,0,0,0,1,1,0,1,0\n0,0,0,0,1,1,1,1,0\n", {"behaviour": "bc"}, None),
        ("0,0,0,0,1,1,0,1,0\n0,0,0,0,1,1,1,1,0\n", {"estimators": ["fqe"]}, None),
    ],
)
def test_data_that_lacks_what_estimators_need_is_refused(run, tmp_path, rows, settings, told):
    table = tmp_path / "steps.csv"
    table.write_text(TABLE + rows)
    _, _, policy, configured = run
    config = configured(sets=[{"name": str(table)}], **settings)
    if told is None:
        check(config, policy.spec)
        return
    with pytest.raises(DistrlError) as caught:
        check(config, policy.spec)
    assert told in str(caught.value)
    assert caught.value.exit_code == 2


def test_real_numbers_have_no_probability_where_the_best_is_taken(run):
    _, _, policy, configured = run
    spec = replace(policy.spec, actions={"action": BoxSpec((1,), (-2.0,), (2.0,))})
    with pytest.raises(
        DistrlError, match=r"off_policy: wis: evaluations take the best action.*; set estimators: \[fqe\]"
    ):
        check(configured(), spec)


def test_a_launch_refuses_data_that_is_not_there(run, tmp_path):
    _, _, policy, configured = run
    with pytest.raises(ConfigError, match="no data set none: neither a folder"):
        check_off_policy(configured(sets=[{"name": "none"}]), policy.spec)
    check_off_policy(configured_without(run), policy.spec)
