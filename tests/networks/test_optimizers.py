import keras
import numpy as np
import pytest

from distrl.config.network import NetworkParameters
from distrl.networks.optimizers import create_optimizer


def moved(parameters, gradients, start=None, steps=1):
    """Values of the variables after each step with the same gradients."""
    start = start or [np.zeros_like(gradient) for gradient in gradients]
    variables = [keras.Variable(value, name=f"v{index}") for index, value in enumerate(start)]
    optimizer = create_optimizer(parameters)
    optimizer.build(variables)
    history = []
    for _ in range(steps):
        optimizer.apply([keras.ops.convert_to_tensor(gradient) for gradient in gradients], variables)
        history.append([np.array(np.asarray(variable)) for variable in variables])
    return history


def array(*values):
    return np.array(values, np.float32)


def clipped(method, gradients, threshold=1.0):
    """SGD with learning rate 1 moves by the clipped gradient."""
    parameters = NetworkParameters(
        optimizer_type="SGD", learning_rate=1.0, clip_gradients=threshold, gradients_clipping_method=method
    )
    return [-value for value in moved(parameters, gradients)[0]]


@pytest.mark.row("A08")
def test_default_learning_rate():
    assert float(create_optimizer(NetworkParameters()).learning_rate) == pytest.approx(2.5e-4)


@pytest.mark.row("A16", "A17")
def test_adam_takes_its_parameters():
    parameters = NetworkParameters(learning_rate=0.1)
    first, second = moved(parameters, [array(1.0)], steps=2)
    assert first[0][0] == pytest.approx(-0.0999000, abs=2e-7)
    assert second[0][0] == pytest.approx(-0.1998291, abs=2e-7)
    plain = moved(NetworkParameters(learning_rate=0.1, adam_optimizer_beta2=0.999), [array(1.0)], steps=2)
    assert abs(plain[1][0][0] - second[0][0]) > 1e-5


def test_rmsprop_takes_its_parameters():
    parameters = NetworkParameters(optimizer_type="RMSProp", learning_rate=0.1)
    assert moved(parameters, [array(1.0)])[0][0][0] == pytest.approx(-0.3160698, abs=2e-6)


def test_sgd_is_plain():
    parameters = NetworkParameters(optimizer_type="SGD", learning_rate=0.1)
    assert moved(parameters, [array(2.0)], steps=2)[1][0][0] == pytest.approx(-0.4)


@pytest.mark.row("A09")
def test_learning_rate_staircase():
    parameters = NetworkParameters(
        optimizer_type="SGD", learning_rate=0.1, learning_rate_decay_rate=0.5, learning_rate_decay_steps=10
    )
    history = [value[0][0] for value in moved(parameters, [array(1.0)], steps=26)]
    steps = np.diff([0.0, *history])
    np.testing.assert_allclose(-steps[[0, 9, 10, 19, 20, 25]], [0.1, 0.1, 0.05, 0.05, 0.025, 0.025], rtol=1e-4)


@pytest.mark.row("A09")
@pytest.mark.parametrize("half", [{"learning_rate_decay_rate": 0.5}, {"learning_rate_decay_steps": 10}])
def test_half_a_staircase_is_refused(half):
    with pytest.raises(ValueError, match="must be set together"):
        NetworkParameters(**half)


@pytest.mark.row("A05")
def test_no_clipping_unless_asked():
    parameters = NetworkParameters(optimizer_type="SGD", learning_rate=1.0)
    np.testing.assert_array_equal(moved(parameters, [array(300.0, -400.0)])[0][0], [-300.0, 400.0])
    with pytest.raises(ValueError, match="greater than 0"):
        NetworkParameters(clip_gradients=0.0)


@pytest.mark.row("A06")
@pytest.mark.parametrize(
    ("method", "gradients", "expected"),
    [
        ("ClipByGlobalNorm", [[3.0], [4.0]], [[0.6], [0.8]]),
        ("ClipByGlobalNorm", [[0.3], [0.4]], [[0.3], [0.4]]),
        ("ClipByNorm", [[3.0], [4.0]], [[1.0], [1.0]]),
        ("ClipByNorm", [[3.0, 4.0]], [[0.6, 0.8]]),
        ("ClipByValue", [[3.0], [4.0]], [[1.0], [1.0]]),
        ("ClipByValue", [[-3.0, 0.5]], [[-1.0, 0.5]]),
    ],
)
def test_clipping(method, gradients, expected):
    for computed, wanted in zip(clipped(method, [array(*values) for values in gradients]), expected, strict=True):
        np.testing.assert_allclose(computed, wanted, rtol=1e-6)
