import numpy as np
import pytest
from keras import ops

from distrl.config.heads import QHeadParameters, ValueHeadParameters
from distrl.networks.objective import RANDOM_STATES, over_rows, over_unrolls, regularization

HEADS = (ValueHeadParameters(loss_weight=3.0), QHeadParameters(loss_weight=0.5))


def terms(outputs, batch):
    return {"value": ops.mean(outputs["value"] - 2.0), "q": ops.mean(outputs["q/q"])}, {"rows": outputs["value"][:, 0]}


@pytest.mark.row("A13")
def test_terms_of_unrolls_are_weighted_summed_and_regularised(build, batch_for):
    network = build(heads=HEADS, l2_regularization=0.1)
    batch = batch_for(network)
    total, metrics = over_unrolls(network.assembly, network.parameters, terms)(batch)
    outputs = network.unroll(batch.observations, {}, batch.valid)
    squares = sum(np.square(weight).sum() for weight in network.get_weights())
    expected = 3.0 * np.mean(np.asarray(outputs["value"]) - 2.0) + 0.5 * np.mean(np.asarray(outputs["q/q"]))
    assert float(total) == pytest.approx(expected + 0.05 * squares, rel=1e-5)
    np.testing.assert_allclose(np.asarray(metrics["rows"]), np.asarray(outputs["value"])[:, 0], atol=1e-6)


@pytest.mark.parametrize("names", [["value"], ["value", "q", "policy"]])
def test_a_loss_must_be_of_the_networks_heads(build, batch_for, names):
    network = build(heads=HEADS)
    objective = over_unrolls(
        network.assembly, network.parameters, lambda outputs, batch: (dict.fromkeys(names, 0.0), {})
    )
    with pytest.raises(KeyError, match=r"the network has \['q', 'value'\]"):
        objective(batch_for(network))


def test_rows_are_weighted_by_importance_and_heads_by_their_weight(build, inputs_for, vector):
    network = build(heads=HEADS)
    inputs, weights = inputs_for(vector, 4), np.float32([1.0, 0.0, 2.0, 0.5])
    targets = {0: np.zeros(4, np.float32), 1: {"actions": np.zeros(4, np.int32), "targets": np.zeros(4, np.float32)}}
    data = {"inputs": inputs, "targets": targets, "weights": weights}
    total, named = over_rows(network.assembly, network.parameters, (), ())(data)
    value, q, _ = network.predict(inputs)
    expected = [3.0 * np.mean(weights * value**2 / 2), 0.5 * np.mean(weights * q[:, 0] ** 2 / 2)]
    np.testing.assert_allclose(np.asarray(named["losses"]), expected, rtol=1e-5)
    assert float(total) == pytest.approx(sum(expected), rel=1e-5)
    assert list(named) == ["losses"]


def test_states_of_generators_are_told(build, inputs_for, vector):
    network = build(heads=HEADS[:1], middleware_parameters={"scheme": [8], "dropout_rate": 0.5})
    data = {"inputs": inputs_for(vector, 2), "targets": {0: np.zeros(2, np.float32)}, "weights": np.ones(2, np.float32)}
    (state,) = network.random_states
    before = np.array(np.asarray(state))
    _, named = over_rows(network.assembly, network.parameters, (), network.random_states)(data)
    assert (np.asarray(named[RANDOM_STATES]) != before).any()


@pytest.mark.row("A07", "B05")
def test_the_order_of_regularisation(build):
    """That of all weights first, then what single layers ask for."""
    scheme = [{"units": 3, "l1": 0.1}, {"units": 2, "l2": 0.2}]
    network = build(middleware_parameters={"scheme": scheme}, l2_regularization=0.3)
    first, second = (network.named_weights()[f"main/middleware_dense_{index}/kernel"] for index in (0, 1))
    everything = sum(np.square(weight).sum() for weight in network.get_weights())
    told = [float(term) for term in regularization(network.assembly, network.parameters)]
    assert told == pytest.approx(
        [0.15 * everything, 0.1 * np.abs(first).sum(), 0.1 * np.square(second).sum()], rel=1e-5
    )
    assert regularization(build().assembly, build().parameters) == []
