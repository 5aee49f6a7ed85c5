import numpy as np
import pytest

from distrl.networks.parts.own_layers import SequenceLSTM

RNG = np.random.default_rng(0)


def built(**arguments):
    layer = SequenceLSTM(3, seed=1, name="layer", **arguments)
    layer(np.zeros((1, 2, 2), np.float32))
    for weight in layer.weights:
        weight.assign(np.random.default_rng(1).standard_normal(weight.shape) / 2)
    return layer


def twin(layer, sequence):
    """The cell by hand: gates i, f, c, o side by side; the outputs after every row."""
    kernel, recurrent, bias = (np.asarray(weight, np.float64) for weight in layer.weights)
    h, c, outputs = np.zeros(3), np.zeros(3), []
    for row in sequence:
        i, f, g, o = np.split(row @ kernel + h @ recurrent + bias, 4)
        sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs).reshape(-1, 3)


def test_it_is_an_lstm():
    layer, x = built(), RNG.standard_normal((2, 4, 2)).astype(np.float32)
    for sequence, output in zip(x, np.asarray(layer(x)), strict=True):
        np.testing.assert_allclose(output, twin(layer, sequence)[-1], rtol=1e-4, atol=1e-5)
    assert [weight.path for weight in layer.weights] == [
        f"layer/lstm/lstm_cell/{name}" for name in ("kernel", "recurrent_kernel", "bias")
    ]


@pytest.mark.row("L12.12")
@pytest.mark.parametrize("length", [0, 1, 3, 5])
def test_padding_after_the_length_is_ignored(length):
    x = RNG.standard_normal((1, 5, 2)).astype(np.float32)
    x[:, length:] = -7.0
    layer = built(mask_value=-7.0)
    expected = twin(layer, x[0, :length])
    last = expected[-1] if length else np.zeros(3)
    np.testing.assert_allclose(np.asarray(layer(x))[0], last, rtol=1e-4, atol=1e-5)
    rows = np.asarray(built(mask_value=-7.0, return_sequences=True)(x))[0]
    np.testing.assert_allclose(rows[:length], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(rows[length:], 0.0)


def test_a_row_that_holds_the_mask_value_only_in_part_is_no_padding():
    x = RNG.standard_normal((1, 3, 2)).astype(np.float32)
    x[0, 1, 0] = 0.0
    layer = built(mask_value=0.0)
    np.testing.assert_allclose(np.asarray(layer(x))[0], twin(layer, x[0])[-1], rtol=1e-4, atol=1e-5)


def test_dropout_is_of_the_input_and_in_training_alone():
    layer, x = built(dropout=0.5), RNG.standard_normal((1, 4, 2)).astype(np.float32)
    np.testing.assert_allclose(np.asarray(layer(x))[0], twin(layer, x[0])[-1], rtol=1e-4, atol=1e-5)
    assert np.abs(np.asarray(layer(x, training=True)) - np.asarray(layer(x))).max() > 1e-3
    padded = np.zeros((1, 4, 2), np.float32)
    masked = built(dropout=0.5, mask_value=0.0)
    np.testing.assert_array_equal(np.asarray(masked(padded, training=True)), 0.0)
