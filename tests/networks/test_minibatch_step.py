"""Several steps on one batch: the same as the steps one after the other."""

import numpy as np
import pytest
from keras import ops

from distrl.networks.minibatch_step import sequences_of
from distrl.types import Batch

T, N = 3, 6
LSTM = {"middleware_parameters": {"scheme": [4], "kind": "lstm"}}


def loss(outputs, batch):
    error = ops.where(batch.valid, outputs["value"][:-1] - batch.rewards, 0.0)
    terms = {"value": ops.mean(error * error), "policy": ops.mean(outputs["policy/action"] ** 2)}
    return terms, {"error": ops.mean(error)}


def make_batch(state=()):
    rng = np.random.default_rng(0)

    def numbers(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    return Batch(
        observations={"observation": numbers(T + 1, N, 4)},
        actions={"action": rng.integers(0, 2, (T, N)).astype(np.int32)},
        rewards=numbers(T, N),
        terminated=np.zeros((T, N), bool),
        truncated=np.zeros((T, N), bool),
        valid=rng.random((T, N)) < 0.8,
        behaviour_log_probabilities=numbers(T, N),
        recurrent_state={name: numbers(N, 256) for name in state},
        reward_moments={"count": np.ones(1)},
    )


@pytest.mark.parametrize(("parameters", "state"), [({}, ()), (LSTM, ("lstm_h", "lstm_c"))])
def test_minibatches_are_steps_one_after_the_other(wrap, parameters, state):
    batch, whole, split = make_batch(state), wrap(**parameters), wrap(**parameters)
    assert set(split.online.assembly.recurrent_state) == set(state)
    step = whole.train_step(loss)
    told = [step(sequences_of(batch, np.arange(first, first + 2))) for first in (0, 2, 4)]
    metrics = split.train_step(loss, minibatches=3)(batch)
    for one, other in zip(whole.online.get_weights(), split.online.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert metrics["optimizer_steps"] == 3
    assert metrics["finite"]
    for name in ("loss", "error", "gradient_norm"):
        assert metrics[name] == pytest.approx(np.mean([one[name] for one in told]), rel=1e-5)


def test_a_minibatch_that_is_not_finite_refuses_the_whole_update(wrap):
    batch, network = make_batch(), wrap()
    before = network.online.get_weights()
    batch.rewards[0, N - 1] = np.nan
    batch.valid[0, N - 1] = True
    metrics = network.train_step(loss, minibatches=2)(batch)
    assert not metrics["finite"]
    for one, other in zip(before, network.online.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_sequences_keep_their_rows_and_their_state():
    batch = make_batch(("h",))
    taken = sequences_of(batch, np.int32([4, 1]))
    np.testing.assert_array_equal(taken.observations["observation"], batch.observations["observation"][:, [4, 1]])
    np.testing.assert_array_equal(taken.rewards, batch.rewards[:, [4, 1]])
    np.testing.assert_array_equal(taken.recurrent_state["h"], batch.recurrent_state["h"][[4, 1]])
    assert (taken.reward_moments, taken.bootstrap_steps, taken.importance_weights) == ({}, None, None)
