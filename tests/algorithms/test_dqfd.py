"""DQfD's loss by hand and against a slow NumPy twin. Runs on TensorFlow and JAX."""

import numpy as np
import pytest

from distrl.config import RunConfig
from distrl.types import Batch, DiscreteSpec, EnvSpec, MultiDiscreteSpec
from tests.algorithms import arm
from tests.algorithms.arm import GAMMA, SCALE

T, N, A, STEPS, MARGIN = 5, 4, 3, 3, 0.8
SPEC = EnvSpec("Toy-v0", arm.OBSERVATIONS, {"action": DiscreteSpec(A)})
SEQUENCES = {"item": {"kind": "sequence", "n_step": STEPS}, "sampler": {"kind": "prioritized"}}


def make(spec=SPEC, **algorithm):
    given = {"replay": SEQUENCES, "margin": MARGIN, "n_step_weight": 0.5, "margin_weight": 2.0}
    algorithm, networks = arm.make("dqfd", spec=spec, **(given | algorithm))
    for seed, copy in enumerate((networks["main"].online, networks["main"].target)):
        rng = np.random.default_rng(seed)
        for variable in copy.model.trainable_variables:
            variable.assign(rng.normal(0.0, 0.7, variable.shape).astype("float32"))
    return algorithm, networks


def sequences(seed=0, **fields):
    rng = np.random.default_rng(seed)
    given = {
        "observations": {"observation": rng.standard_normal((T + 1, N, 3)).astype("float32")},
        "actions": {"action": rng.integers(0, A, (T, N)).astype("int32")},
        "rewards": rng.standard_normal((T, N)).astype("float32"),
        "terminated": rng.random((T, N)) < 0.2,
        "truncated": np.zeros((T, N), bool),
        "valid": rng.random((T, N)) < 0.8,
        "behaviour_log_probabilities": np.zeros((T, N), "float32"),
        "recurrent_state": {},
        "importance_weights": np.linspace(0.2, 1.0, N, dtype="float32"),
        "extras": {"demonstrations": (rng.random((T, N)) < 0.5).astype("float32")},
    }
    return Batch(**(given | fields))


def twin(networks, batch):
    """All losses, step by step, and the errors over one step."""
    main = networks["main"]
    rows = batch.observations["observation"].reshape(-1, 3)
    q, slow = (copy.predict({"observation": rows}, ["q/q"]).reshape(T + 1, N, A) for copy in (main.online, main.target))

    def value(t, n):
        return float(slow[t, n, np.argmax(q[t, n])])

    def target(t, n, steps):
        if t == T or steps == 0 or not batch.valid[t, n]:
            return value(t, n)
        after = 0.0 if batch.terminated[t, n] else GAMMA * target(t + 1, n, steps - 1)
        return SCALE * float(batch.rewards[t, n]) + after

    sums, errors = {"td_loss": [], "n_step_loss": [], "margin_loss": []}, np.zeros((T, N))
    for t, n in zip(*np.nonzero(batch.valid), strict=True):
        made, weight = batch.actions["action"][t, n], batch.importance_weights[n]
        errors[t, n] = abs(target(t, n, 1) - q[t, n, made])
        sums["td_loss"].append(weight * errors[t, n] ** 2)
        sums["n_step_loss"].append(weight * 0.5 * (target(t, n, STEPS) - q[t, n, made]) ** 2)
        others = max(float(q[t, n, a]) + (0.0 if a == made else MARGIN) for a in range(A))
        demonstrated = float(batch.extras["demonstrations"][t, n])
        sums["margin_loss"].append(weight * 2.0 * demonstrated * (others - float(q[t, n, made])))
    return {name: np.mean(rows) for name, rows in sums.items()}, errors


@pytest.mark.row("H15", "T20")
def test_the_loss_is_that_of_a_slow_twin():
    """One step, n steps and the margin, the last only of demonstrated steps, which have a bonus in their priorities."""
    algorithm, networks = make(demonstration_bonus=3.0)
    batch = sequences()
    expected, errors = twin(networks, batch)
    update = algorithm.update(networks, batch)
    expected["loss"] = sum(expected.values())
    assert {name: update.metrics[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    sizes = np.where(batch.valid, errors + 3.0 * batch.extras["demonstrations"], 0.0)
    mean = sizes.sum(axis=0) / batch.valid.sum(axis=0)
    np.testing.assert_allclose(update.priorities, 0.9 * sizes.max(axis=0) + 0.1 * mean, rtol=1e-4)


def test_without_marks_nothing_is_a_demonstration():
    algorithm, networks = make()
    expected, _ = twin(networks, sequences())
    told = algorithm.update(networks, sequences(extras={})).metrics
    assert "margin_loss" not in told
    assert told["loss"] == pytest.approx(expected["td_loss"] + expected["n_step_loss"], rel=1e-4)


@pytest.mark.row("H15")
def test_of_several_choices_the_margin_is_the_mean_of_theirs():
    """As test_of_several_actions_errors_are_averaged_after_squaring has it for the temporal difference."""
    spec = EnvSpec("Toy-v0", arm.OBSERVATIONS, {"action": MultiDiscreteSpec((2, 3), (0, 0))})
    algorithm, networks = make(spec, n_step_weight=0.0)
    rng = np.random.default_rng(0)
    batch = sequences(actions={"action": rng.integers(0, 2, (T, N, 2)).astype("int32")}, importance_weights=None)
    rows = batch.observations["observation"][:-1].reshape(-1, 3)
    q = networks["main"].online.predict({"observation": rows}, ["q/q"]).reshape(T, N, 5)
    found = []
    for t, n in zip(*np.nonzero(batch.valid), strict=True):
        margins = []
        for part, made in (
            (q[t, n, :2], batch.actions["action"][t, n, 0]),
            (q[t, n, 2:], batch.actions["action"][t, n, 1]),
        ):
            margins.append(max(v + MARGIN * (a != made) for a, v in enumerate(part)) - part[made])
        found.append(2.0 * batch.extras["demonstrations"][t, n] * np.mean(margins))
    assert algorithm.update(networks, batch).metrics["margin_loss"] == pytest.approx(np.mean(found), rel=1e-4)


def test_demonstrated_choices_become_the_best_ones():
    """Nothing pays, and only the margin prefers them; other choices are not demonstrated anywhere."""
    algorithm, networks = make(target_update_every_updates=1)
    for seed in range(150):
        batch = sequences(seed, rewards=np.zeros((T, N), "float32"), valid=np.ones((T, N), bool))
        right = (batch.observations["observation"][:-1, :, 0] > 0.0).astype("int32")
        algorithm.update(
            networks,
            batch._replace(actions={"action": right}, extras={"demonstrations": np.ones((T, N), "float32")}),
        )
    rows = np.random.default_rng(99).standard_normal((200, 3)).astype("float32")
    greedy = networks["main"].online.predict({"observation": rows}, ["q/q"]).argmax(axis=1)
    assert np.mean(greedy == (rows[:, 0] > 0.0)) > 0.9


def test_a_transition_has_no_second_return():
    transition = {"item": {"kind": "transition", "n_step": 3}}
    with pytest.raises(ValueError, match=r"algorithm.n_step_weight: a transition has one return"):
        RunConfig.model_validate({"algorithm": {"name": "dqfd", "replay": transition}})
    RunConfig.model_validate({"algorithm": {"name": "dqfd", "replay": transition, "n_step_weight": 0.0}})


def test_a_restored_training_goes_on_bit_by_bit():
    arm.assert_goes_on_bit_by_bit(*make(), sequences)
