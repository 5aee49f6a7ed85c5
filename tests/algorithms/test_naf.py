"""NAF by hand and against a slow NumPy twin. Runs on TensorFlow and JAX."""

import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.types import BoxSpec, DiscreteSpec, EnvSpec
from tests.algorithms import arm

N, RATE = arm.N, 0.25


fresh = arm.fresh_build("naf", target_update_rate=RATE)


def outputs(copy, observation):
    given = {"observation": observation}
    return [copy.predict(given, [f"naf/{part}"]) for part in ("value", "mu", "lower")]


@pytest.mark.row("D160", "G31")
@pytest.mark.parametrize("huber", [False, True])
def test_the_loss_is_that_of_a_slow_twin(fresh, huber):
    algorithm, networks = arm.make("naf", {"replace_mse_with_huber_loss": True}) if huber else fresh
    main, batch = networks["main"], arm.transitions()
    main.online.set_weights([5.0 * weight for weight in main.online.get_weights()])
    main.target.set_weights([weight + 0.2 for weight in main.target.get_weights()])
    before, after = batch.observations["observation"]
    following, _, _ = outputs(main.target, after)
    y = arm.targets(batch, following)
    v, mu, lower = outputs(main.online, before)
    actions, mu = arm.scaled(batch.actions["action"][0]), arm.scaled(mu)
    q, losses = [], []
    for i in range(N):
        p, away = lower[i] @ lower[i].T, actions[i] - mu[i]
        q.append(v[i] - 0.5 * sum(away[j] * p[j, k] * away[k] for j in range(2) for k in range(2)))
        error = abs(y[i] - q[i])
        losses.append(batch.importance_weights[i] * (error - 0.5 if huber and error > 1.0 else 0.5 * error**2))
    assert max(np.abs(y - q)) > 1.0 > min(np.abs(y - q))
    assert np.abs(np.array(v) - q).min() > 1e-3
    update = algorithm.update(networks, batch)
    errors = np.mean(np.abs(y - q))
    arm.assert_metrics(
        update, loss=np.mean(losses), mean_value=np.mean(q), mean_target=np.mean(y), mean_td_error=errors
    )
    np.testing.assert_allclose(update.priorities, np.abs(y - q), rtol=1e-4)


def constant(copy, value, preactivation, diagonal, below):
    """Make the outputs of a copy the same for every observation: mu is tanh(preactivation) within the bounds."""
    given = {"value": value, "mu": preactivation, "diagonal": np.log(diagonal), "below": below}
    for variable in copy.model.trainable_variables:
        variable.assign(0.0 * variable.value)
        layer, part = variable.path.split("/")[-2:]
        name = layer.rpartition("_")[2]
        if part == "bias" and name in given:
            variable.assign(np.float32(given[name]))


@pytest.mark.row("D160", "H15")
def test_the_value_of_an_action_by_hand():
    """V 1, mu 0, L diagonal (2, 1), action (1, 0) in [-1, 1]: Q = 1 - 4/2 = -1. y = r/2 + .9 x 2 = 2.3; error 3.3."""
    algorithm, networks = arm.make("naf", {"input_embedders_parameters": {}})
    main = networks["main"]
    constant(main.online, [1.0], [0.0, 0.0], [2.0, 1.0], [0.0])
    constant(main.target, [2.0], [0.5, 0.5], [9.0, 9.0], [3.0])
    one = {
        "actions": {"action": np.float32([[[2.0, 0.5]] * N])},
        "rewards": np.ones((1, N), np.float32),
        "terminated": np.zeros((1, N), bool),
        "bootstrap_steps": np.ones((1, N), np.int32),
        "importance_weights": np.ones(N, np.float32),
    }
    update = algorithm.update(networks, arm.transitions(**one))
    assert update.metrics["mean_value"] == pytest.approx(-1.0)
    np.testing.assert_allclose(update.priorities, np.full(N, 3.3), rtol=1e-6)
    assert update.metrics["loss"] == pytest.approx(0.5 * 3.3**2)


@pytest.mark.row("D160")
def test_the_target_follows_with_every_update(fresh):
    algorithm, networks = fresh
    main = networks["main"]
    expected = arm.trained(main.target)
    for seed in range(3):
        algorithm.update(networks, arm.transitions(seed))
        fast = arm.trained(main.online)
        expected = [RATE * new + (1 - RATE) * old for new, old in zip(fast, expected, strict=True)]
        for one, other in zip(expected, arm.trained(main.target), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-7)


def test_an_update_that_is_not_finite_changes_nothing(fresh):
    algorithm, networks = fresh
    algorithm.update(networks, arm.transitions())
    before = arm.states(networks)
    bad = arm.transitions(1, rewards=np.full((1, N), np.nan, "float32"))
    assert algorithm.update(networks, bad).metrics["finite"] is False
    arm.assert_same(arm.states(networks), before)


def test_the_unit_of_actions_changes_nothing(fresh):
    """The same environment in millimetres."""
    low, high = (tuple(1000.0 * float(bound) for bound in bounds) for bounds in (arm.LOW, arm.HIGH))
    spec = EnvSpec("Arm-v0", arm.OBSERVATIONS, {"action": BoxSpec((2,), low, high)})
    other, others = arm.make("naf", spec=spec, target_update_rate=RATE)
    algorithm, networks = fresh
    for seed in range(3):
        batch = arm.transitions(seed)
        given = batch._replace(actions={"action": batch.actions["action"] * np.float32(1000.0)})
        expected = algorithm.update(networks, batch).metrics
        assert other.update(others, given).metrics == pytest.approx(expected, rel=1e-3)


def test_a_restored_training_goes_on_bit_by_bit(fresh):
    arm.assert_goes_on_bit_by_bit(*fresh)


@pytest.mark.row("D160")
def test_actors_get_the_best_action_and_add_noise(fresh):
    main = fresh[1]["main"].online
    assert main.actions["action"].kind == "deterministic"
    assert main.actions["action"].output == "naf/mu"
    parameters, noise = arm.config("naf").algorithm, arm.config("naf").exploring
    assert (parameters.target_update_rate, parameters.batch_size) == (0.001, 64)
    assert (noise.kind, noise.unit) == ("ornstein_uhlenbeck", "range")


def test_what_it_cannot_train_is_refused():
    with pytest.raises(ConfigError, match="algorithm naf: action 'action' of C is discrete, which it does not take"):
        arm.make("naf", spec=EnvSpec("C", arm.OBSERVATIONS, {"action": DiscreteSpec(2)}))
    with pytest.raises(ConfigError, match="algorithm naf: action 'action' of U has the bounds"):
        arm.make("naf", spec=EnvSpec("U", arm.OBSERVATIONS, {"action": BoxSpec((1,), (None,), (1.0,))}))
    box = BoxSpec((1,), (-1.0,), (1.0,))
    with pytest.raises(
        ConfigError, match="algorithm naf: R has the actions arm, hand, and it takes a single one; use algorithm sac"
    ) as refused:
        arm.make("naf", spec=EnvSpec("R", arm.OBSERVATIONS, {"arm": box, "hand": box}))
    assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match=r"item\.kind: sequence; naf learns from single transitions"):
        arm.config("naf", replay={"item": {"kind": "sequence"}})
