"""ReluZeros: the share of zeros of every relu layer, over valid rows, by hand-set weights; on every backend."""

import numpy as np
import pytest

from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.networks.inspection import ReluZeros
from distrl.types import Batch
from tests.traces import traces

T, N = 2, 2
HIDDEN, HEAD = "middleware_dense_0_activation", "value_head_hidden_0"
HEADS = (PolicyHeadParameters(), ValueHeadParameters(units=(2,)))


def batch_of(observations, valid, recurrent_state=None):
    """Unrolls of these observations [T+1, N, 4]; nothing else of them is looked at."""
    nothing = np.zeros((T, N), np.float32)
    return Batch(
        observations={"observation": np.asarray(observations, np.float32)},
        actions={"action": np.zeros((T, N), np.int32)},
        rewards=nothing,
        terminated=nothing,
        truncated=nothing,
        valid=np.asarray(valid, np.bool_),
        behaviour_log_probabilities=nothing,
        recurrent_state=recurrent_state or {},
    )


def set_layer(network, name, kernel, bias):
    for variable in network.model.weights:
        if variable.path.endswith((f"{name}/kernel", f"{name}/bias")):
            variable.assign(np.asarray(kernel if variable.path.endswith("kernel") else bias, np.float32))


@pytest.fixture
def by_hand(build):
    """Three hidden units max(x0, 0), max(x1, 0) and max(0 - 1, 0); the value head's: their sum, and its negative."""
    network = build(heads=HEADS, middleware_parameters={"scheme": [3], "activation": "relu"})
    kernel = np.zeros((4, 3))
    kernel[0, 0] = kernel[1, 1] = 1.0
    set_layer(network, "middleware_dense_0", kernel, [0.0, 0.0, -1.0])
    set_layer(network, HEAD, np.outer(np.ones(3), [1.0, -1.0]), [0.0, 0.0])
    return network


ROWS = np.zeros((T + 1, N, 4))
ROWS[..., :2] = [[[1, 1], [1, -1]], [[-1, -1], [5, 5]], [[9, 9], [9, 9]]]
VALID = [[True, True], [True, False]]


@pytest.mark.row("L16")
def test_the_share_of_zeros_by_hand(by_hand):
    shares = ReluZeros(by_hand)(batch_of(ROWS, VALID))
    # Valid rows are (1, 1), (1, -1) and (-1, -1): 1, 2 and 3 of 3 hidden units are zero; of the head's two units the
    # first is zero where no hidden one is on, the second everywhere.
    assert shares == {HIDDEN: pytest.approx(6 / 9), HEAD: pytest.approx(4 / 6)}
    assert list(shares) == [HIDDEN, HEAD]


def test_rows_that_are_not_valid_and_the_last_one_do_not_count(by_hand):
    zeros = ReluZeros(by_hand)
    other = ROWS.copy()
    other[1, 1] = other[2] = -7.0
    assert zeros(batch_of(other, VALID)) == zeros(batch_of(ROWS, VALID))
    assert zeros(batch_of(ROWS, np.zeros((T, N)))) == {}


def test_it_is_compiled_once_and_sees_the_weights_of_the_moment(by_hand):
    zeros = ReluZeros(by_hand)
    assert traces(zeros) == 0
    zeros(batch_of(ROWS, VALID))
    set_layer(by_hand, "middleware_dense_0", np.zeros((4, 3)), [1.0, 1.0, 1.0])
    assert zeros(batch_of(ROWS, VALID)) == {HIDDEN: 0.0, HEAD: 0.5}
    assert traces(zeros) == 1


def test_behind_memory_the_features_are_those_of_the_unroll(build):
    network = build(heads=HEADS, middleware_parameters={"kind": "lstm", "scheme": [3], "number_of_lstm_cells": 5})
    rng = np.random.default_rng(0)
    state = {name: rng.standard_normal((N, 5)).astype(np.float32) for name in network.recurrent_state}
    batch = batch_of(rng.standard_normal((T + 1, N, 4)), np.ones((T, N)), state)
    shares = ReluZeros(network)(batch)
    assert list(shares) == [HIDDEN, HEAD]
    # Step by step, by the model of one step: its features go into the head's hidden layer.
    layers = {layer.name: layer for layer in network.model.layers}
    features = []
    for row in range(T):
        after = network.model({"observation": batch.observations["observation"][row], **state})
        state = {name: np.asarray(after[f"next_{name}"]) for name in state}
        features.append(state["lstm_h"])
    hidden = np.asarray(layers[HEAD](np.concatenate(features)))
    assert shares[HEAD] == pytest.approx(np.mean(hidden == 0.0))


@pytest.mark.parametrize(
    "options",
    [
        {"middleware_parameters": {"scheme": [3], "activation": "tanh"}},
        {"middleware_parameters": {"scheme": [3], "activation": "leaky_relu"}},
    ],
)
def test_without_relu_there_is_nothing_to_tell_and_nothing_is_compiled(build, options):
    zeros = ReluZeros(build(**options))
    assert (zeros(batch_of(ROWS, VALID)), traces(zeros)) == ({}, 0)


def test_every_layer_of_every_trunk_is_looked_at(build):
    network = build(
        heads=HEADS,
        use_separate_networks_per_head=True,
        input_embedders_parameters={"observation": {"scheme": [4]}},
        middleware_parameters={"scheme": [3], "dropout_rate": 0.5, "batchnorm": True, "dense_layer": "noisy_dense"},
    )
    before = [np.asarray(variable) for variable in network.model.variables]
    shares = ReluZeros(network)(batch_of(ROWS, VALID))
    trunk = ("embedder_observation_dense_0_activation", "middleware_noisy_dense_0_activation")
    assert sorted(shares) == sorted([HEAD, *(f"{head}_{name}" for head in ("policy", "value") for name in trunk)])
    assert all(0.0 <= share <= 1.0 for share in shares.values())
    for variable, array in zip(network.model.variables, before, strict=True):  # averages and generators among them
        np.testing.assert_array_equal(np.asarray(variable), array, err_msg=variable.path)
