"""CrossQ's batch renormalisation beside sb3-contrib's: values, gradients, running moments."""

import numpy as np
import pytest
import tensorflow as tf
import torch
from sb3_contrib.common.torch_layers import BatchRenorm1d

from benchmarks.references.figures import agree
from distrl.networks.parts.own_layers import BatchRenormalization

UNITS, ROWS, BATCHES = 5, 32, 10


@pytest.mark.parametrize(("warm_up", "epsilon"), [(100, 1e-3), (0, 1e-8)], ids=["warm-up", "after it"])
def test_batch_renormalization(monkeypatch, request, warm_up, epsilon):
    variance = torch.Tensor.var
    monkeypatch.setattr(torch.Tensor, "var", lambda self, dim: variance(self, dim, unbiased=False))
    ours = BatchRenormalization(momentum=0.9, epsilon=epsilon, warm_up_updates=warm_up, name="renorm")
    theirs = BatchRenorm1d(UNITS, momentum=0.1, eps=epsilon, warmup_steps=warm_up - 1)
    ours.build((None, UNITS))
    random = np.random.default_rng(0)
    for own, other in ((ours.gamma, theirs.scale), (ours.beta, theirs.bias)):
        own.assign(random.standard_normal(UNITS).astype(np.float32))
        other.data = torch.from_numpy(np.array(own))
    found, expected = {"values": [], "gradients": []}, {"values": [], "gradients": []}
    for index in range(BATCHES):
        rows = (index * 0.3 + (1.0 + index) * random.standard_normal((ROWS, UNITS))).astype(np.float32)
        weights = random.standard_normal((ROWS, UNITS)).astype(np.float32)
        given = tf.Variable(rows)
        with tf.GradientTape() as tape:
            values = ours(given, training=True)
            total = tf.reduce_sum(weights * values)
        found["values"].append(values.numpy())
        gradients = tape.gradient(total, [given, ours.gamma.value, ours.beta.value])
        found["gradients"] += [gradient.numpy() for gradient in gradients]
        theirs.zero_grad()
        other = torch.from_numpy(rows).requires_grad_()
        made = theirs(other)
        (made * torch.from_numpy(weights)).sum().backward()
        expected["values"].append(made)
        expected["gradients"] += [other.grad, theirs.scale.grad.clone(), theirs.bias.grad.clone()]
    when, name = request.node.callspec.id, "sb3-contrib BatchRenorm1d"
    note = "variance of the population" + ("" if warm_up else "; epsilon 1e-8")
    for what in ("values", "gradients"):
        agree(
            "CrossQ", f"{what} of {BATCHES} batches, {when}", name, found[what], expected[what], allowed=5e-5, note=note
        )
    moments = [np.array(ours.moving_mean), np.array(ours.moving_variance)]
    agree("CrossQ", f"running moments, {when}", name, moments, [theirs.ra_mean, theirs.ra_var], allowed=1e-5, note=note)
