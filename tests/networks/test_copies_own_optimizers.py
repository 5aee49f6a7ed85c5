"""One optimizer for each worker: moments of its own, groups of its own in checkpoints."""

import keras
import numpy as np

from distrl.config.optimizers import OptimizerParameters
from distrl.networks.copies import OwnOptimizers

ONE = [np.ones(1, np.float32)]


def make():
    weight = keras.Variable(np.zeros(1, np.float32), name="weight")
    parameters = OptimizerParameters(learning_rate=0.1, adam_optimizer_beta2=0.999, optimizer_epsilon=1e-7)
    return OwnOptimizers(parameters, [weight]), weight


def test_every_worker_has_moments_of_its_own():
    optimizers, weight = make()
    for _ in range(2):
        optimizers.apply(3, ONE, 1.0)
    optimizers.apply(0, ONE, 2.0)
    assert [int(optimizers.optimizer(worker).iterations) for worker in (3, 0)] == [2, 1]
    momentum = {worker: float(optimizers.optimizer(worker).variables[2][0]) for worker in (3, 0)}
    np.testing.assert_allclose([momentum[3], momentum[0]], [0.19, 0.2], rtol=1e-6)  # 0.1 + 0.9 x 0.1; 0.1 x 2
    np.testing.assert_allclose(np.asarray(weight.value), [-0.3], rtol=1e-4)  # Adam's first steps are one rate each


def test_groups_are_those_that_exist_and_those_that_a_checkpoint_has():
    optimizers, _ = make()
    assert optimizers.groups() == {}
    optimizers.apply(2, ONE, 1.0)
    assert list(optimizers.groups()) == ["optimizer_2"]
    like = optimizers.like(["online", "optimizer", "optimizer_2", "optimizer_10", "optimizer_x", "xoptimizer_1"])
    assert list(optimizers.groups()) == ["optimizer_2"]  # nothing was added
    groups = like.groups()
    assert sorted(groups) == ["optimizer", "optimizer_10", "optimizer_2"]
    assert groups["optimizer_2"] is optimizers.optimizer(2)
    assert int(groups["optimizer_2"].iterations) == 1
    assert int(groups["optimizer_10"].iterations) == 0


def test_a_rate_that_changes_is_everybodys_and_of_those_that_come():
    optimizers, _ = make()
    optimizers.apply(2, ONE, 1.0)
    optimizers.set_learning_rate(0.25)
    like = optimizers.like(["optimizer_2", "optimizer_5"])
    rates = [float(like.optimizer(worker).learning_rate) for worker in (2, 5)]
    assert (rates, float(optimizers.optimizer(7).learning_rate)) == ([0.25, 0.25], 0.25)
