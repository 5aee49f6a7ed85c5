"""Errors and losses of curiosity: hand numbers, and slow twins. Runs on every Keras backend (see test_backends.py)."""

import math

import numpy as np
import pytest
from keras import ops

from distrl.algorithms.maths.curiosity import distillation_errors, forward_errors, inverse_losses

RNG = np.random.default_rng(0)


def numbers(tensor):
    return ops.convert_to_numpy(tensor)


@pytest.mark.row("D175")
def test_errors_by_hand():
    predicted, wanted = np.float32([[1.0, 2.0], [0.0, 0.0]]), np.float32([[0.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(numbers(distillation_errors(predicted, wanted)), [2.5, 0.0])  # (1 + 4) / 2
    np.testing.assert_allclose(numbers(forward_errors(predicted, wanted)), [2.5, 0.0])
    wide = np.ones((1, 8), np.float32)
    np.testing.assert_allclose(numbers(distillation_errors(wide, 0.0 * wide)), [1.0])
    np.testing.assert_allclose(numbers(forward_errors(wide, 0.0 * wide)), [4.0])


def test_an_inverse_model_by_hand():
    """A coin at even odds, one of three with odds 1 : 2 : 1, and two numbers that are off by 1 and 2."""
    outputs = np.float32([[0.0, 0.0, 0.0, math.log(2.0), 0.0, 1.0, -1.0]])
    taken = np.float32([[0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]])
    expected = math.log(2.0) + math.log(2.0) + 0.5 * (1.0 + 4.0)
    np.testing.assert_allclose(numbers(inverse_losses(outputs, taken, (2, 3))), [expected], rtol=1e-6)


def slow_inverse_loss(outputs, taken, choices):
    loss, place = 0.0, 0
    for options in choices:
        logits = [float(number) for number in outputs[place : place + options]]
        chosen = [index for index in range(options) if taken[place + index] == 1.0]
        loss -= logits[chosen[0]] - math.log(sum(math.exp(logit) for logit in logits))
        place += options
    for number, wanted in zip(outputs[place:], taken[place:], strict=True):
        loss += (float(number) - float(wanted)) ** 2 / 2
    return loss


@pytest.mark.parametrize("choices", [(4,), (2, 3), (2, 2, 2), ()])
def test_an_inverse_model_against_a_slow_twin(choices):
    rows, width = 6, sum(choices) + 2
    outputs = RNG.standard_normal((rows, width)).astype("float32")
    one_hot = [np.eye(options, dtype="float32")[RNG.integers(0, options, rows)] for options in choices]
    taken = np.concatenate([*one_hot, RNG.standard_normal((rows, 2)).astype("float32")], axis=-1)
    expected = [slow_inverse_loss(*row, choices) for row in zip(outputs, taken, strict=True)]
    np.testing.assert_allclose(numbers(inverse_losses(outputs, taken, choices)), expected, rtol=1e-5)
