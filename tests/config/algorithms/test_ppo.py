"""Defaults of PPO's and APPO's parameters, and combinations that cannot work."""

import pytest

from distrl.config import RunConfig


def make(name="ppo", **given):
    """A configuration of 2 unrolls x 4 environments x 6 steps = 48 rows."""
    algorithm = {"name": name, "minibatches": 4, **given.pop("algorithm", {})}
    tree = {"actors": {"environments": 4, "unroll_length_steps": 6}, **given, "algorithm": algorithm}
    return RunConfig.model_validate(tree)


@pytest.mark.row("D166")
def test_defaults_are_the_rows():
    parameters = RunConfig.model_validate({"algorithm": {"name": "ppo"}}).algorithm
    assert (parameters.clip_range, parameters.gae_lambda, parameters.epochs) == (0.2, 0.95, 10)
    assert parameters.max_staleness_updates == 0
    penalty = RunConfig.model_validate({"algorithm": {"name": "ppo", "kl_penalty": {}}}).algorithm.kl_penalty
    assert (penalty.initial_coefficient, penalty.target) == (1.0, 0.01)


def test_appo_takes_unrolls_of_any_age_and_each_once():
    parameters = RunConfig.model_validate({"algorithm": {"name": "appo"}}).algorithm
    assert (parameters.max_staleness_updates, parameters.steps_per_batch) == (None, 1)
    assert (parameters.correction, parameters.rho_bar, parameters.c_bar) == ("vtrace", 1.0, 1.0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"algorithm": {"minibatches": 5}},
            r"algorithm\.minibatches: 5 equal parts cannot be made of the 48 rows of a batch .*; choose a divisor",
        ),
        ({"network": {"optimizer_type": "LBFGS"}}, "LBFGS needs whole batches; algorithm ppo takes minibatches"),
        (
            {"algorithm": {"minibatches": 16}, "learner": {"backend": "jax", "replicas": 2}},
            "learner.replicas: 2 devices cannot share 3 rows evenly, a minibatch of algorithm ppo",
        ),
        (
            {"algorithm": {"clip_range": None}},
            "clip_range and kl_penalty are both null, so nothing holds the policy over the 40 steps on one batch",
        ),
        ({"algorithm": {"clip_range": 1.0}}, "clip_range"),
    ],
)
def test_what_cannot_work_is_refused(given, told):
    with pytest.raises(ValueError, match=told):
        make(**given)


ONE_ROW = {"environments": 1, "unroll_length_steps": 1}


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        (
            "ppo",
            {"algorithm": {"minibatches": 48}},
            r"normalize_advantages: minibatch; each of the 48 minibatches of a batch has 1 row \(learner.batch_size x "
            r"actors.environments x actors.unroll_length_steps is 48\), which has no deviation; take at most 24 "
            "minibatches, or set it to null",
        ),
        (
            "appo",
            {"algorithm": {"minibatches": 1}, "actors": ONE_ROW, "learner": {"batch_size": 1}},
            "normalize_advantages: minibatch; a batch has 1 row .*; make the batch larger, or set it to null",
        ),
        (
            "ppo",
            {
                "algorithm": {"minibatches": 1, "normalize_advantages": "batch"},
                "actors": ONE_ROW,
                "learner": {"batch_size": 1},
            },
            "normalize_advantages: batch; a batch has 1 row .*; make the batch larger, or set it to null",
        ),
        (
            "ppo",
            {"network": {"middleware_parameters": {"kind": "lstm"}}, "actors": ONE_ROW | {"environments": 2}},
            "normalize_advantages: minibatch; each of the 4 minibatches of a batch has 1 row",
        ),
    ],
)
def test_advantages_of_single_rows_cannot_be_normalised(name, given, told):
    """The policy would never learn."""
    with pytest.raises(ValueError, match=told):
        make(name, **given)
    given = given | {"algorithm": given.get("algorithm", {}) | {"normalize_advantages": None}}
    assert make(name, **given).algorithm.normalize_advantages is None


def test_two_rows_can():
    assert make(algorithm={"minibatches": 24}).algorithm.normalize_advantages == "minibatch"
    assert make(algorithm={"minibatches": 48, "normalize_advantages": "batch"}).algorithm.minibatches == 48


@pytest.mark.parametrize("name", ["kl_penalty", "stop_at_kl", "value_clip_range"])
def test_what_takes_several_steps_is_refused_where_there_is_one(name):
    given = {} if name == "kl_penalty" else 0.1
    with pytest.raises(ValueError, match=f"{name} is of several steps on one batch, and epochs x minibatches is 1"):
        make("appo", algorithm={"minibatches": 1, name: given})
    assert getattr(make("appo", algorithm={"epochs": 2, name: given}).algorithm, name) is not None


def test_one_step_on_a_batch_needs_no_clip_and_may_be_shared_by_devices():
    config = make("ppo", algorithm={"epochs": 1, "minibatches": 1, "clip_range": None}, learner={"backend": "jax"})
    assert config.algorithm.steps_per_batch == 1
    assert make("appo", algorithm={"minibatches": 1}, learner={"backend": "jax", "replicas": 2}).learner.replicas == 2


def test_devices_may_share_every_minibatch():
    assert make("ppo", learner={"backend": "jax", "replicas": 2}).learner.replicas == 2


@pytest.mark.parametrize("name", ["rho_bar", "c_bar"])
def test_truncations_of_a_correction_that_is_not_there_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} is of correction: vtrace, not of correction: none; leave it out"):
        make("appo", algorithm={"correction": "none", name: 2.0})
