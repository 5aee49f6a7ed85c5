import numpy as np
import pytest
import tensorflow as tf

from distrl.config.heads import (
    DeterministicPolicyHeadParameters,
    NAFHeadParameters,
    QuantileQValueHeadParameters,
    QValueHeadParameters,
    TwinQHeadParameters,
)
from distrl.errors import ConfigError
from distrl.networks.heads.continuous import within_bounds

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((3, 4)).astype(np.float32)
ACTIONS = RNG.uniform(-2.0, 2.0, (3, 2)).astype(np.float32)


@pytest.mark.row("D160", "D07.7")
def test_naf_numbers(build, box):
    built = build(NAFHeadParameters(), box([-2.0], [2.0]))
    built.set_constant(naf_head_value=1.0, naf_head_diagonal=np.log(2.0))
    outputs = built.outputs(observation=ROWS[:1])
    np.testing.assert_allclose(outputs["naf/value"], [1.0])
    np.testing.assert_allclose(outputs["naf/mu"], [[0.0]])
    np.testing.assert_allclose(outputs["naf/lower"], [[[2.0]]], rtol=1e-6)
    targets = {"actions": np.array([[1.0]], np.float32), "targets": np.array([2.0], np.float32)}
    # Q = -1, so the error is 3
    np.testing.assert_allclose(built.loss(targets, observation=ROWS[:1]), [4.5], rtol=1e-6)


@pytest.mark.row("D07.7")
def test_naf_matrix_is_lower_triangular_and_positive_definite(build, box):
    built = build(NAFHeadParameters(), box([-1.0] * 3, [1.0] * 3))
    for weight in built.model.weights:
        weight.assign(RNG.standard_normal(weight.shape))
    lower = built.outputs(observation=ROWS)["naf/lower"]
    np.testing.assert_array_equal(np.triu(lower, k=1), np.zeros((3, 3, 3)))
    assert np.abs(lower[:, [1, 2, 2], [0, 0, 1]]).min() > 1e-3
    assert np.diagonal(lower, axis1=1, axis2=2).min() > 0.0
    assert np.linalg.eigvalsh(lower.astype(np.float64) @ lower.transpose(0, 2, 1)).min() > 0.0


@pytest.mark.row("D07.7")
def test_naf_entries_by_place(build, box):
    built = build(NAFHeadParameters(), box([-1.0] * 3, [1.0] * 3))
    built.set_constant(naf_head_diagonal=np.log([1.0, 2.0, 3.0]), naf_head_below=[4.0, 5.0, 6.0])
    expected = [[1.0, 0.0, 0.0], [4.0, 2.0, 0.0], [5.0, 6.0, 3.0]]
    np.testing.assert_allclose(built.outputs(observation=ROWS[:1])["naf/lower"][0], expected, rtol=1e-6)


@pytest.mark.row("D07.9")
def test_value_of_state_and_action_depends_on_the_action(build, box):
    built = build(QValueHeadParameters(units=(8,)), box([-2.0] * 2, [2.0] * 2))
    actions = tf.constant(ACTIONS)
    with tf.GradientTape() as tape:
        tape.watch(actions)
        value = built.model({"observation": tf.constant(ROWS), "action": actions})["q_value"]
    assert value.shape == (3,)
    assert np.abs(tape.gradient(value, actions).numpy()).max(axis=-1).min() > 1e-3
    targets = np.array([1.0, 2.0, 3.0], np.float32)
    expected = 0.5 * (targets - np.asarray(value)) ** 2
    np.testing.assert_allclose(built.loss(targets, observation=ROWS, action=ACTIONS), expected, rtol=1e-5)


def test_quantiles_of_state_and_action_by_hand(build, box):
    """Quantiles 1 and 4 at .25 and .75, samples 0 and 2: each quantile's loss is a mean over samples, then summed.

    Of 1: (|.25 - 1| .5 + .25 x .5) / 2 = .25. Of 4: errors -4 and -2, (.25 x 3.5 + .25 x 1.5) / 2 = .625.
    """
    built = build(QuantileQValueHeadParameters(quantiles=2, units=(8,)), box([-2.0] * 2, [2.0] * 2))
    free = built.outputs(observation=ROWS, action=ACTIONS)["quantile_q_value"]
    assert free.shape == (3, 2)
    assert np.abs(free - built.outputs(observation=ROWS, action=-ACTIONS)["quantile_q_value"]).min() > 1e-4
    built.set_constant(quantile_q_value_head=[1.0, 4.0])
    loss = built.loss(np.array([[0.0, 2.0]], np.float32), observation=ROWS[:1], action=ACTIONS[:1])
    np.testing.assert_allclose(loss, [0.25 + 0.625], rtol=1e-6)


@pytest.mark.row("D07.10", "D07.12")
def test_twins_are_summed_in_the_loss_and_the_smaller_is_the_target(build, box):
    built = build(TwinQHeadParameters(units=(8,)), box([-2.0] * 2, [2.0] * 2))
    built.set_constant(twin_q_head_1=3.0, twin_q_head_2=2.0)
    outputs = built.outputs(observation=ROWS[:1], action=ACTIONS[:1])
    assert {name: float(value[0]) for name, value in outputs.items()} == {
        "twin_q/1": 3.0,
        "twin_q/2": 2.0,
        "twin_q/min": 2.0,
    }
    loss = built.loss(np.array([4.0], np.float32), observation=ROWS[:1], action=ACTIONS[:1])
    np.testing.assert_allclose(loss, [0.5 * 1.0 + 0.5 * 4.0])


@pytest.mark.row("D07.10", "D07.12")
def test_both_twins_receive_gradient_and_start_apart(build, box):
    built = build(TwinQHeadParameters(units=(8,)), box([-2.0] * 2, [2.0] * 2))
    inputs = {"observation": ROWS, "action": ACTIONS}
    outputs = built.outputs(**inputs)
    assert np.abs(outputs["twin_q/1"] - outputs["twin_q/2"]).min() > 1e-3
    np.testing.assert_array_equal(outputs["twin_q/min"], np.minimum(outputs["twin_q/1"], outputs["twin_q/2"]))
    gradients = built.gradients(lambda given: built.head.loss(given, np.full(3, 9.0, np.float32)), **inputs)
    for part in ("1_hidden_0", "1", "2_hidden_0", "2"):
        assert np.abs(gradients[f"main/twin_q_head_{part}/kernel"]).max() > 1e-3, part


@pytest.mark.row("D07.17")
def test_tanh_scaled_to_the_bounds():
    low, high = np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32)
    preactivation = np.array([[0.0, 0.0], [np.inf, np.inf], [-np.inf, -np.inf]], np.float32)
    computed = np.asarray(within_bounds(preactivation, low, high))
    np.testing.assert_allclose(computed, [[0.0, 0.5], [2.0, 1.0], [-2.0, 0.0]])


@pytest.mark.row("D07.17")
@pytest.mark.parametrize(("bias", "expected"), [(0.0, 0.0), (1e9, 2.0), (-1e9, -2.0), (1.0, 2.0 * np.tanh(1.0))])
def test_deterministic_policy_stays_within_the_bounds(build, box, bias, expected):
    built = build(DeterministicPolicyHeadParameters(), box([-2.0], [2.0]))
    built.set_constant(deterministic_policy_head=bias)
    outputs = built.outputs(observation=ROWS[:1])
    np.testing.assert_allclose(outputs["deterministic_policy"], [[expected]], rtol=1e-6)


@pytest.mark.row("D07.17")
def test_batch_normalisation_before_the_tanh(build, box):
    built = build(DeterministicPolicyHeadParameters(batchnorm=True), box([-2.0], [2.0]))
    built.set_constant(deterministic_policy_head=3.0)
    mean, variance, scale = (
        next(weight for weight in built.model.weights if weight.path.endswith(f"batchnorm/{name}"))
        for name in ("moving_mean", "moving_variance", "gamma")
    )
    mean.assign([1.0])
    variance.assign([4.0 - 1e-3])  # Keras adds 1e-3
    scale.assign([1.0])
    np.testing.assert_allclose(
        built.outputs(observation=ROWS[:1])["deterministic_policy"], [[2.0 * np.tanh((3.0 - 1.0) / 2.0)]], rtol=1e-5
    )


@pytest.mark.row("D07.17")
def test_loss_follows_the_gradient_of_the_value(build, box):
    built = build(DeterministicPolicyHeadParameters(), box([-2.0] * 2, [2.0] * 2))
    slopes = np.array([[1.0, -3.0], [0.5, 0.0], [2.0, 2.0]], np.float32)
    mu = built.outputs(observation=ROWS)["deterministic_policy"]
    np.testing.assert_allclose(built.loss(slopes, observation=ROWS), -(slopes * mu).sum(axis=-1), rtol=1e-4, atol=1e-6)
    gradients = built.gradients(lambda outputs: built.head.loss(outputs, slopes), observation=ROWS)
    np.testing.assert_array_equal(gradients["deterministic_policy"], -slopes)


@pytest.mark.parametrize("parameters", [NAFHeadParameters(), DeterministicPolicyHeadParameters()])
def test_what_cannot_be_scaled_is_refused(build, box, choices, parameters):
    with pytest.raises(ConfigError, match="needs a lower and an upper bound"):
        build(parameters, box([-1.0, None], [1.0, 1.0]))
    with pytest.raises(ConfigError, match=r"to be scaled by, and number 1 has \[-3e\+38, 3e\+38\]"):
        build(parameters, box([-1.0, -3e38], [1.0, 3e38]))
    with pytest.raises(ConfigError, match="needs a continuous action; Choices-v0 has one of kind discrete"):
        build(parameters, choices(2))
