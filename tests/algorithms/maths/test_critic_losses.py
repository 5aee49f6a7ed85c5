"""Soft values, smoothed actions, targets and the temperature's loss by hand. Runs on every Keras backend."""

import numpy as np
import pytest
from keras import ops

from distrl.algorithms.maths.critic_losses import (
    critic_targets,
    expected,
    expected_soft_value,
    smallest,
    smoothed_actions,
    soft_value,
    temperature_loss,
    truncated_mixture,
    weighted_mean,
)


def array(*numbers):
    return ops.convert_to_tensor(np.array(numbers, np.float32))


@pytest.mark.row("D168")
def test_the_smallest_critic_counts_and_entropy_is_worth_its_temperature():
    value = smallest([array(3.0, -1.0), array(2.0, 5.0), array(9.0, 0.0)])
    np.testing.assert_allclose(np.asarray(value), [2.0, -1.0])
    values = soft_value(value, array(-0.87253, 0.5), array(0.5)[0])
    np.testing.assert_allclose(np.asarray(values), [2.0 + 0.436265, -1.0 - 0.25], rtol=1e-6)


def test_the_share_of_the_entropy_is_the_same_for_every_atom():
    atoms = ops.convert_to_tensor(np.array([[1.0, 2.0, 4.0], [0.0, 0.0, 3.0]], np.float32))
    values = soft_value(atoms, array(-1.0, 2.0), array(0.5)[0])
    np.testing.assert_allclose(np.asarray(values), [[1.5, 2.5, 4.5], [-1.0, -1.0, 2.0]])
    np.testing.assert_allclose(np.asarray(expected(values)), [8.5 / 3.0, 0.0], atol=1e-7)
    np.testing.assert_allclose(np.asarray(expected(array(2.0, 3.0))), [2.0, 3.0])


def test_the_soft_value_of_a_state_is_the_expectation_over_its_choices():
    """pi [.8, .2], Q [1, 3], alpha .5: .8 + .6 + .5 H, H = .500402; a choice of probability 0 adds nothing."""
    with np.errstate(divide="ignore"):
        log_pi = np.maximum(np.log(np.float32([[0.8, 0.2], [1.0, 0.0]])), -1e9).astype("float32")
    values = ops.convert_to_tensor(np.float32([[1.0, 3.0], [2.0, 7.0]]))
    found = expected_soft_value(values, ops.convert_to_tensor(log_pi), array(0.5)[0])
    np.testing.assert_allclose(np.asarray(found), [1.4 + 0.5 * 0.500402, 2.0], rtol=1e-5)


def test_the_temperature_may_have_a_target_for_each_state():
    losses = temperature_loss(array(0.2)[0], array(-0.5, -0.5), array(0.6, 0.1))
    np.testing.assert_allclose(np.asarray(losses), [-0.02, 0.08], rtol=1e-5)


def test_targets_are_rewards_and_what_follows_where_something_does():
    """r 1, gamma .9: after two steps 1 + .81 x 2; after termination r alone. So for every atom of a distribution."""
    targets = critic_targets(array(1.0, 1.0), array(0.81, 0.0), array(2.0, 100.0))
    np.testing.assert_allclose(np.asarray(targets), [2.62, 1.0], rtol=1e-6)
    atoms = ops.convert_to_tensor(np.array([[2.0, -1.0], [100.0, 7.0]], np.float32))
    targets = critic_targets(array(1.0, 1.0), array(0.81, 0.0), atoms)
    np.testing.assert_allclose(np.asarray(targets), [[2.62, 0.19], [1.0, 1.0]], rtol=1e-6)


def test_the_temperature_loses_what_entropy_has_beyond_its_target():
    """alpha .2, target -1: log pi .5 is an entropy of -.5, .5 above; log pi 3 is one of -3, 2 below."""
    losses = temperature_loss(array(0.2)[0], array(0.5, 3.0), -1.0)
    np.testing.assert_allclose(np.asarray(losses), [0.1, -0.4], rtol=1e-6)


def test_means_are_weighed_and_divided_by_the_number_of_items():
    values, weights = array(1.0, 2.0, 6.0), array(1.0, 0.5, 0.0)
    assert float(weighted_mean(values, None)) == 3.0
    assert float(weighted_mean(values, weights)) == pytest.approx(2.0 / 3.0)


@pytest.mark.parametrize(
    ("action", "noise", "expected"),
    [(0.0, 0.3, 0.3), (0.0, -0.7, -0.5), (0.2, 0.9, 0.7), (0.8, 0.4, 1.0), (-0.9, -0.5, -1.0), (-1.0, 0.25, -0.75)],
)
def test_noise_of_smoothed_actions_is_clipped_and_then_the_action(action, noise, expected):
    """c is .5: first the noise is cut to +- .5, then the action to [-1, 1]."""
    smoothed = smoothed_actions(array(action)[None], array(noise)[None], 0.5)
    np.testing.assert_allclose(np.asarray(smoothed), [[expected]], rtol=1e-6)


def test_the_largest_atoms_of_all_critics_together_are_dropped():
    """Two critics of three atoms, one dropped for each: the four smallest of six, whichever critic they are of."""
    first = ops.convert_to_tensor(np.array([[3.0, 1.0, 2.0], [0.0, 0.0, 0.0]], np.float32))
    second = ops.convert_to_tensor(np.array([[9.0, 7.0, 8.0], [5.0, -1.0, 2.0]], np.float32))
    mixture = truncated_mixture([first, second], 1)
    np.testing.assert_array_equal(np.asarray(mixture), [[1.0, 2.0, 3.0, 7.0], [-1.0, 0.0, 0.0, 0.0]])
    whole = truncated_mixture([first, second], 0)
    np.testing.assert_array_equal(np.asarray(whole)[0], [1.0, 2.0, 3.0, 7.0, 8.0, 9.0])


@pytest.mark.parametrize(("critics", "quantiles", "dropped"), [(1, 4, 3), (2, 3, 1), (5, 7, 2)])
def test_the_truncated_mixture_is_that_of_a_slow_twin(critics, quantiles, dropped):
    atoms = np.random.default_rng(critics).standard_normal((critics, 6, quantiles)).astype("float32")
    mixture = np.asarray(truncated_mixture([ops.convert_to_tensor(own) for own in atoms], dropped))
    for row in range(6):
        left = sorted(float(atom) for critic in atoms for atom in critic[row])
        for _ in range(critics * dropped):
            left.remove(max(left))
        np.testing.assert_array_equal(mixture[row], np.float32(left))
