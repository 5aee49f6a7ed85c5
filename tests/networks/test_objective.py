from typing import ClassVar

import numpy as np
import pytest
from keras import ops

from distrl.config.heads import QHeadParameters, ValueHeadParameters
from distrl.networks.framework.backend import Gradients
from distrl.networks.objective import (
    after_rows,
    outputs_of,
    over_unrolls,
    regularization,
)

HEADS = (ValueHeadParameters(loss_weight=3.0), QHeadParameters(loss_weight=0.5))


def terms(outputs, batch):
    return {"value": ops.mean(outputs["value"] - 2.0), "q": ops.mean(outputs["q/q"])}, {"rows": outputs["value"][:, 0]}


@pytest.mark.row("A13")
def test_terms_of_unrolls_are_weighted_summed_and_regularised(build, batch_for):
    network = build(heads=HEADS, l2_regularization=0.1)
    batch = batch_for(network)
    total, metrics = over_unrolls(network, terms)(batch)
    outputs = network.unroll(batch.observations, {}, batch.valid)
    squares = sum(np.square(weight).sum() for weight in network.get_weights())
    expected = 3.0 * np.mean(np.asarray(outputs["value"]) - 2.0) + 0.5 * np.mean(np.asarray(outputs["q/q"]))
    assert float(total) == pytest.approx(expected + 0.05 * squares, rel=1e-5)
    np.testing.assert_allclose(np.asarray(metrics["rows"]), np.asarray(outputs["value"])[:, 0], atol=1e-6)


@pytest.mark.parametrize("names", [["value"], ["value", "q", "policy"]])
def test_a_loss_must_be_of_the_networks_heads(build, batch_for, names):
    network = build(heads=HEADS)
    objective = over_unrolls(network, lambda outputs, batch: (dict.fromkeys(names, 0.0), {}))
    with pytest.raises(KeyError, match=r"the network has \['q', 'value'\]"):
        objective(batch_for(network))


@pytest.mark.row("A07", "B05")
def test_the_order_of_regularisation(build):
    """That of all weights first, then what single layers ask for."""
    scheme = [{"units": 3, "l1": 0.1}, {"units": 2, "l2": 0.2}]
    network = build(middleware_parameters={"scheme": scheme}, l2_regularization=0.3)
    first, second = (network.named_weights()[f"main/middleware_dense_{index}/kernel"] for index in (0, 1))
    everything = sum(np.square(weight).sum() for weight in network.get_weights())
    told = [float(term) for term in regularization(network)]
    assert told == pytest.approx(
        [0.15 * everything, 0.1 * np.abs(first).sum(), 0.1 * np.square(second).sum()], rel=1e-5
    )
    assert regularization(build()) == []


class TestBurnIn:
    """Five rows, of which the first two only bring the state up to date."""

    LSTM: ClassVar = {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 5}}

    @pytest.fixture
    def networks(self, build, disturb):
        online, target = build(**self.LSTM), build(seed=2, **self.LSTM)
        for seed, network in enumerate((online, target)):
            disturb(network, seed)
        return online, target

    def batch(self, batch_for, network):
        return batch_for(network, 5, 3, seed=4)._replace(importance_weights=np.float32([1.0, 0.5, 0.2]))

    def test_outputs_are_the_last_rows_of_a_full_unroll(self, networks, batch_for):
        batch = self.batch(batch_for, networks[0])
        whole, _ = outputs_of(networks[0], batch, networks[1], training=True)
        cut, rest = outputs_of(networks[0], batch, networks[1], training=True, burn_in_steps=2)
        assert cut.keys() == whole.keys() >= {"value", "target/value"}
        for name, rows in cut.items():
            np.testing.assert_allclose(np.asarray(rows), np.asarray(whole[name])[2:], atol=1e-6)
        for name in ("rewards", "valid", "terminated"):
            assert np.array_equal(getattr(rest, name), getattr(batch, name)[2:])
        assert np.array_equal(rest.observations["observation"], batch.observations["observation"][2:])
        assert rest.importance_weights is batch.importance_weights
        assert rest.recurrent_state == {}  # that before row 2 is each copy's own

    def test_the_gradient_is_that_of_rows_that_start_from_a_constant_state(self, networks, batch_for):
        """The twin starts from the state that single steps of the model lead to, as a number."""
        network = networks[0]
        batch = self.batch(batch_for, network)

        def loss(outputs, batch):
            errors = outputs["value"][:-1] - batch.rewards
            policy = ops.mean(ops.square(outputs["policy/action"]))
            return {"policy": policy, "value": ops.mean(ops.square(errors))}, {}

        state = batch.recurrent_state
        for row in range(2):
            inputs = {"observation": batch.observations["observation"][row], **state}
            outputs = network.predict(inputs, [f"next_{name}" for name in state])
            state = dict(zip(state, (np.where(batch.valid[row][:, None], each, 0.0) for each in outputs), strict=True))
        twin = after_rows(batch, 2)._replace(recurrent_state=state)
        gradients = [
            Gradients(
                over_unrolls(network, loss, None, burn_in_steps),
                network.model.trainable_variables,
                [],
            )(given)[2]
            for given, burn_in_steps in ((batch, 2), (twin, 0), (batch, 0))
        ]
        cut, expected, whole = gradients
        for mine, theirs in zip(cut, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-5)
        assert any(np.abs(mine - theirs).max() > 1e-3 for mine, theirs in zip(cut, whole, strict=True))
