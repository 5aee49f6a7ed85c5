"""The whole evaluation of policies that an earlier version saved, from what they themselves have acted."""

import numpy as np
import pytest

from distrl.config.data import DataConfig
from distrl.config.off_policy import ESTIMATORS
from distrl.data.episodes import DataError
from distrl.data.off_policy.evaluating import Wanted, of_run
from distrl.data.off_policy.target import Target
from distrl.serving.evaluation import run_config


@pytest.fixture
def evaluation(runs):
    """Makes an evaluation, and shows the data to the policy."""

    def make(name, **wanted):
        run, data = runs[name]
        made, _ = of_run(run, "newest", run_config(run), DataConfig(sets=str(data)), Wanted(**wanted))
        assert len([*made.play()]) == made.episodes
        return made

    return make


@pytest.mark.parametrize("fits_behaviour", [False, True])
def test_estimates_from_the_policys_own_choices_are_its_return(evaluation, fits_behaviour):
    made = evaluation("cartpole", interval=True, fits_behaviour=fits_behaviour, discount=0.9)
    true = made.mean_return(0.9)
    estimates = {each.estimator: each for each in made.estimates()}
    assert [*estimates] == [*ESTIMATORS]
    if not fits_behaviour:
        assert estimates["wis"].value == estimates["ips"].value == pytest.approx(true, rel=1e-3)
        assert estimates["wis"].effective_episodes == pytest.approx(150, rel=1e-3)
    for each in estimates.values():
        assert each.low < each.value < each.high
        assert each.value == pytest.approx(true, rel=0.05)


def test_estimates_from_the_policys_own_real_numbers_are_its_return(evaluation):
    made = evaluation("pendulum", discount=0.9)
    true = made.mean_return(0.9)
    for each in made.estimates():
        assert each.value == pytest.approx(true, rel=0.1)


def test_estimates_are_the_seeds(evaluation):
    def found(seed):
        return [*evaluation("cartpole", estimators=("sdr", "fqe"), interval=True, seed=seed).estimates()]

    assert found(0) == found(0)
    assert found(0) != found(1)


def test_a_policy_that_takes_none_of_the_actions_is_refused(evaluation, monkeypatch):
    made = evaluation("cartpole", estimators=("wis",))

    def never(target, outputs, actions, allowed):
        return np.full(len(actions["action"]), -np.inf)

    monkeypatch.setattr(Target, "log_probabilities", never)
    with pytest.raises(DataError, match="wis: the policy would have acted in none of the episodes as it was recorded"):
        next(made.estimates())
    others = evaluation("cartpole", estimators=("wis", "fqe"), needs_all=False).estimates()
    assert [(each.value is None, each.problem is None) for each in others] == [(True, False), (False, True)]


def test_a_deterministic_policy_of_real_numbers_has_no_weights(runs, monkeypatch):
    monkeypatch.setattr("distrl.data.off_policy.target.UndrawnFamily", object)  # takes its mean
    run, data = runs["pendulum"]
    with pytest.raises(DataError, match="ips, wis: the policy has one action for each observation; choose dm, fqe"):
        of_run(run, "newest", run_config(run), DataConfig(sets=str(data)), Wanted(("ips", "wis", "fqe")))
