import keras
import numpy as np
import pytest
from keras import ops

from distrl.config.optimizers import OptimizerParameters
from distrl.networks.framework.lbfgs import FullBatchStep
from tests.traces import traces


class Line:
    """loss = mean((slope x - y)^2); `average` takes on the mean of x, as moving averages do."""

    def __init__(self, slope=5.0, **parameters):
        self.slope = keras.Variable(np.float32(slope), name="slope")
        self.average = keras.Variable(np.float32(0.0), name="average", trainable=False)
        options = OptimizerParameters(optimizer_type="LBFGS", **parameters)
        self.step = FullBatchStep(self.loss, [self.slope], [self.average], options)

    def loss(self, data):
        self.average.assign(0.5 * self.average + 0.5 * ops.mean(data["x"]))
        error = self.slope.value * data["x"] - data["y"]
        return ops.mean(error * error), {"error": ops.mean(error)}


X = np.float32([1.0, 2.0, 3.0])


@pytest.mark.row("A15")
def test_one_update_finds_the_minimum():
    """Slope 5 against 2 x: errors 3, 6, 9, so the loss is 42 and its gradient 2 * (3 + 12 + 27) / 3 = 28."""
    line = Line()
    metrics = line.step({"x": X, "y": 2.0 * X})
    assert float(line.slope.value) == pytest.approx(2.0, abs=1e-4)
    assert metrics == {
        "error": 6.0,
        "loss": pytest.approx(42.0),
        "gradient_norm": pytest.approx(28.0),
        "learning_rate": 0.0,
        "finite": True,
    }
    again = line.step({"x": X, "y": 2.0 * X})
    assert again["loss"] == pytest.approx(0.0, abs=1e-6)
    assert traces(line.step) == 1


def test_averages_move_once_for_each_update():
    line = Line()
    for expected in (1.0, 1.5):
        line.step({"x": X, "y": 2.0 * X})
        assert float(line.average.value) == expected


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_changes_nothing(bad):
    line = Line()
    metrics = line.step({"x": X, "y": np.float32([1.0, bad, 1.0])})
    assert metrics["finite"] is False
    assert (float(line.slope.value), float(line.average.value)) == (5.0, 0.0)


def test_iterations_are_limited():
    def rosenbrock(iterations):
        weights = [keras.Variable(np.float32(value), name=name) for name, value in (("a", -1.2), ("b", 1.0))]
        a, b = weights

        def loss(data):
            return (1.0 - a.value) ** 2 + 100.0 * (b.value - a.value**2) ** 2, {}

        options = OptimizerParameters(optimizer_type="LBFGS", lbfgs_max_iterations=iterations)
        step = FullBatchStep(loss, weights, [], options)
        step(np.float32(0.0))
        return step(np.float32(0.0))["loss"]

    assert 0.0 <= rosenbrock(100) < 1e-3 < rosenbrock(2)
