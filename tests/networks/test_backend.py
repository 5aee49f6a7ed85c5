import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
from keras import ops

from distrl.networks.backend import CompiledStep
from distrl.types import Batch


def batch(value=1.0, rows=3, sequences=2):
    """Observations hold `value`; everything else is empty of meaning."""
    shape = (rows, sequences)
    return Batch(
        observations={"x": np.full((rows + 1, sequences), value, np.float32)},
        actions=np.zeros(shape, np.int32),
        rewards=np.zeros(shape, np.float32),
        terminated=np.zeros(shape, bool),
        truncated=np.zeros(shape, bool),
        valid=np.ones(shape, bool),
        behaviour_log_probabilities=np.zeros(shape, np.float32),
        recurrent_state={},
    )


class Line:
    """loss = mean(slope * x) + 0 * unused, so the gradient of slope is mean(x)."""

    def __init__(self, optimizer=None, loss_function=None, with_global=False):
        self.slope = keras.Variable(np.float32(2.0), name="slope")
        self.unused = keras.Variable(np.float32(7.0), name="unused")
        self.shared = [keras.Variable(np.float32(v), name=f"shared_{i}") for i, v in enumerate((2.0, 7.0))]
        self.optimizer = optimizer or keras.optimizers.SGD(0.5)
        self.optimizer.build(self.shared if with_global else [self.slope, self.unused])
        self.step = CompiledStep(
            unroll=lambda observations, recurrent_state, valid: {"y": self.slope * observations["x"]},
            variables=[self.slope, self.unused],
            optimizer=self.optimizer,
            loss_function=loss_function
            or (lambda outputs, batch: (ops.mean(outputs["y"]), {"top": ops.max(outputs["y"])})),
            global_variables=self.shared if with_global else None,
        )


def test_one_step_by_hand():
    line = Line()
    metrics = line.step(batch(value=3.0))
    assert metrics == {"top": 6.0, "loss": 6.0, "gradient_norm": 3.0, "learning_rate": 0.5, "finite": True}
    assert float(line.slope) == 0.5  # 2 - 0.5 * 3
    assert float(line.unused) == 7.0
    assert int(line.optimizer.iterations) == 1


def test_the_loss_sees_unroll_outputs_and_the_whole_batch():
    def loss(outputs, batch):
        weights = ops.cast(batch.valid, "float32") * (batch.rewards + ops.cast(batch.actions, "float32"))
        return ops.sum(outputs["y"][:-1] * weights), {}

    line = Line(loss_function=loss)
    given = batch()._replace(
        rewards=np.array([[1, 2], [3, 4], [5, 6]], np.float32),
        actions=np.ones((3, 2), np.int32),
        valid=np.array([[1, 0], [0, 0], [0, 1]], bool),
    )
    assert line.step(given)["loss"] == 2.0 * ((1 + 1) + (6 + 1))


def test_the_norm_is_reported_before_clipping():
    line = Line(keras.optimizers.SGD(1.0, global_clipnorm=1.0))
    assert line.step(batch(value=5.0))["gradient_norm"] == 5.0
    assert float(line.slope) == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_an_update_that_is_not_finite_changes_nothing(bad):
    line = Line(keras.optimizers.Adam(0.1))
    line.step(batch())
    before = [np.array(np.asarray(variable)) for variable in (line.slope, line.unused, *line.optimizer.variables)]
    metrics = line.step(batch(value=bad))
    assert metrics["finite"] is False
    after = [np.asarray(variable) for variable in (line.slope, line.unused, *line.optimizer.variables)]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    assert line.step(batch())["finite"] is True
    assert float(line.slope) != before[0]


def test_with_a_global_copy_it_moves_and_online_follows():
    line = Line(with_global=True)
    line.shared[0].assign(10.0)
    line.step(batch(value=3.0))
    assert float(line.shared[0]) == 8.5  # 10 - 0.5 * 3, the gradient of online
    assert float(line.slope) == 8.5
    assert float(line.unused) == 7.0


def test_traced_once_per_shape():
    line = Line()
    assert line.step.traces == 0
    for value in range(5):
        line.step(batch(value=float(value)))
    assert line.step.traces == 1
    line.step(batch(rows=4))
    line.step(batch())
    assert line.step.traces == 2


def test_the_learning_rate_is_that_of_the_update():
    schedule = keras.optimizers.schedules.ExponentialDecay(1.0, decay_steps=1, decay_rate=0.5, staircase=True)
    line = Line(keras.optimizers.SGD(schedule))
    assert [line.step(batch())["learning_rate"] for _ in range(3)] == [1.0, 0.5, 0.25]


def run_configured(body):
    code = "from distrl.networks import backend\n" + textwrap.dedent(body)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_configure_sets_threads_determinism_and_hides_gpus():
    finished = run_configured(
        """
        import tensorflow as tf
        backend.configure(device="cpu", threads=1, deterministic=True, seed=1)
        backend.configure(device="cpu", threads=1, deterministic=True, seed=1)
        print(tf.config.threading.get_intra_op_parallelism_threads(),
              tf.config.threading.get_inter_op_parallelism_threads(), tf.config.get_visible_devices("GPU"))
        first = float(tf.random.uniform(()))
        backend.configure(device="cpu", threads=1, deterministic=True, seed=1)
        assert first == float(tf.random.uniform(()))
        try:
            tf.random.experimental.Generator.from_non_deterministic_state()
        except RuntimeError as error:
            print("deterministic:", "determinism" in str(error))
        backend.configure(device="cpu", threads=2, deterministic=False, seed=1)
        print(tf.config.threading.get_intra_op_parallelism_threads())
        """
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == ["1 1 []", "deterministic: True", "1"]
    assert "which stay" in finished.stderr


@pytest.mark.slow
def test_a_gpu_that_is_not_there_is_refused():
    finished = run_configured(
        """
        import tensorflow as tf
        tf.config.list_physical_devices = lambda kind: []
        from distrl.errors import ConfigError
        try:
            backend.configure(device="gpu", threads=1, deterministic=False, seed=1)
        except ConfigError as error:
            print(error)
        """
    )
    assert finished.stdout.startswith("learner.device: gpu, but TensorFlow sees no GPU"), finished.stderr
