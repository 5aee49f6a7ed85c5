import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from distrl.config.heads import CategoricalQHeadParameters, QuantileQHeadParameters, RainbowQHeadParameters

ROWS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
ATOMS = {"atoms": 3, "v_min": 0.0, "v_max": 2.0}


@pytest.mark.row("D07.3")
def test_expected_value_of_the_atoms(build, choices):
    built = build(CategoricalQHeadParameters(**ATOMS), choices(2))
    outputs = built.outputs(observation=ROWS)
    probabilities = softmax(outputs["categorical_q"], axis=-1)
    assert outputs["categorical_q"].shape == (3, 2, 3)
    np.testing.assert_allclose(probabilities.sum(axis=-1), np.ones((3, 2)), rtol=1e-6)
    np.testing.assert_array_equal(built.head.support, [0.0, 1.0, 2.0])
    np.testing.assert_allclose(outputs["categorical_q/q"], probabilities @ [0.0, 1.0, 2.0], rtol=1e-5)


@pytest.mark.row("D07.3")
def test_loss_is_the_cross_entropy_of_the_chosen_action(build, choices):
    built = build(CategoricalQHeadParameters(**ATOMS), choices(2))
    built.set_constant(categorical_q_head=np.log([0.2, 0.3, 0.5, 0.6, 0.3, 0.1]))
    # the targets that D153 projects: with a bootstrap, and where the episode ended
    targets = {
        "actions": np.array([0, 1], np.int32),
        "probabilities": np.array([[0.0, 0.5, 0.5], [0.5, 0.5, 0.0]], np.float32),
    }
    expected = [-0.5 * np.log(0.3) - 0.5 * np.log(0.5), -0.5 * np.log(0.6) - 0.5 * np.log(0.3)]
    np.testing.assert_allclose(built.loss(targets, observation=ROWS[:2]), expected, rtol=1e-5)
    gradients = built.gradients(lambda outputs: built.head.loss(outputs, targets), observation=ROWS[:2])
    moved = [[[0.2, -0.2, 0.0], [0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0], [0.1, -0.2, 0.1]]]
    np.testing.assert_allclose(gradients["categorical_q"], moved, atol=1e-6)


@pytest.mark.row("D07.3")
def test_targets_of_every_action(build, choices):
    built = build(CategoricalQHeadParameters(**ATOMS), choices(2))
    logits = built.outputs(observation=ROWS)["categorical_q"]
    targets = softmax(logits, axis=-1)
    targets[:, 1] = [0.0, 0.5, 0.5]
    expected = -(targets * log_softmax(logits, axis=-1)).sum(axis=(1, 2))
    np.testing.assert_allclose(built.loss(targets, observation=ROWS), expected, rtol=1e-5)
    gradients = built.gradients(lambda outputs: built.head.loss(outputs, targets), observation=ROWS)
    np.testing.assert_allclose(gradients["categorical_q"][:, 0], np.zeros((3, 3)), atol=1e-6)
    assert np.abs(gradients["categorical_q"][:, 1]).min() > 1e-3


@pytest.mark.row("D07.5")
def test_rainbow_is_dueling_over_atoms(build, choices):
    built = build(RainbowQHeadParameters(units=(), **ATOMS), choices(2))
    value, advantage = np.array([1.0, 2.0, 3.0]), np.array([[4.0, 0.0, 1.0], [2.0, 6.0, 1.0]])
    built.set_constant(rainbow_q_head_value=value, rainbow_q_head_advantage=advantage.ravel())
    outputs = built.outputs(observation=ROWS)
    expected = value + advantage - advantage.mean(axis=0)  # [actions, atoms], the value broadcast over actions
    np.testing.assert_allclose(outputs["rainbow_q"], np.stack([expected] * 3), rtol=1e-6)
    np.testing.assert_allclose(outputs["rainbow_q/q"][0], softmax(expected, axis=-1) @ [0.0, 1.0, 2.0], rtol=1e-5)
    target = {"actions": np.array([1], np.int32), "probabilities": np.array([[0.0, 0.5, 0.5]], np.float32)}
    cross_entropy = -0.5 * log_softmax(expected[1])[1:].sum()
    np.testing.assert_allclose(built.loss(target, observation=ROWS[:1]), [cross_entropy], rtol=1e-5)


@pytest.mark.row("D07.4")
def test_value_is_the_mean_of_the_quantiles(build, choices):
    built = build(QuantileQHeadParameters(quantiles=4), choices(2))
    outputs = built.outputs(observation=ROWS)
    assert outputs["quantile_q"].shape == (3, 2, 4)
    np.testing.assert_allclose(outputs["quantile_q/q"], outputs["quantile_q"].mean(axis=-1), rtol=1e-5)


@pytest.mark.row("D154", "D07.4")
def test_loss_of_two_quantiles(build, choices):
    built = build(QuantileQHeadParameters(quantiles=2), choices(2))
    built.set_constant(quantile_q_head=[9.0, 9.0, 1.5, 4.0])
    targets = {"actions": np.array([1], np.int32), "targets": np.array([[2.0]], np.float32)}
    # tau .25, u .5 -> .03125; tau .75, u -2 -> .25 * 1.5
    np.testing.assert_allclose(built.loss(targets, observation=ROWS[:1]), [0.03125 + 0.375], rtol=1e-6)
    gradients = built.gradients(lambda outputs: built.head.loss(outputs, targets), observation=ROWS[:1])
    np.testing.assert_allclose(gradients["quantile_q"], [[[0.0, 0.0], [-0.125, 0.25]]], rtol=1e-6)


def test_quantile_loss_takes_kappa(build, choices):
    built = build(QuantileQHeadParameters(quantiles=1, huber_kappa=0.5), choices(2))
    built.set_constant(quantile_q_head=[0.0, 0.0])
    targets = {"actions": np.array([1], np.int32), "targets": np.array([[2.0]], np.float32)}
    np.testing.assert_allclose(built.loss(targets, observation=ROWS[:1]), [0.5 * (2.0 - 0.25)], rtol=1e-6)


def test_softmax_temperature_applies_to_values(build, choices):
    built = build(QuantileQHeadParameters(quantiles=1), choices(2), softmax_temperature=0.5)
    built.set_constant(quantile_q_head=[1.0, 2.0])
    np.testing.assert_allclose(built.outputs(observation=ROWS[:1])["quantile_q/softmax"], [[0.1192, 0.8808]], atol=1e-4)
