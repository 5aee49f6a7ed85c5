import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.config.network import GRUMiddlewareParameters, LSTMMiddlewareParameters
from distrl.networks.parts.middlewares import RecurrentMiddleware

WIDTH, CELLS = 3, 4
KINDS = {
    "lstm": LSTMMiddlewareParameters(number_of_lstm_cells=CELLS),
    "gru": GRUMiddlewareParameters(number_of_gru_cells=CELLS),
}


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def lstm_step(x, state, kernel, recurrent, bias):
    """Hochreiter & Schmidhuber 1997 with forget gates (Gers et al. 2000); Keras' order of gates: i, f, g, o."""
    h, c = state
    i, f, g, o = np.split(x @ kernel + h @ recurrent + bias, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return (sigmoid(o) * np.tanh(c), c)


def gru_step(x, state, kernel, recurrent, bias):
    """Cho et al. 2014, in the variant that resets after the product; Keras' order of gates: z, r, candidate."""
    (h,) = state
    xz, xr, xh = np.split(x @ kernel + bias[0], 3, axis=-1)
    hz, hr, hh = np.split(h @ recurrent + bias[1], 3, axis=-1)
    z, r = sigmoid(xz + hz), sigmoid(xr + hr)
    return (z * h + (1.0 - z) * np.tanh(xh + r * hh),)


STEPS = {"lstm": lstm_step, "gru": gru_step}


def build(kind, prefix=""):
    """The middleware, its weights all drawn anew so that biases count, and those weights."""
    middleware = RecurrentMiddleware(KINDS[kind], prefix=prefix, seed=1)
    zeros = {name: np.zeros((1, width), np.float32) for name, width in middleware.state.items()}
    middleware.step(np.zeros((1, WIDTH), np.float32), zeros)
    rng = np.random.default_rng(0)
    for weight in middleware._cell.weights:
        weight.assign(rng.normal(0.0, 0.7, weight.shape))
    return middleware, [np.asarray(weight) for weight in middleware._cell.weights]


@pytest.fixture(scope="module")
def built():
    return {kind: build(kind) for kind in KINDS}


def test_states_are_named_and_sized(built):
    assert built["lstm"][0].state == {"lstm_h": CELLS, "lstm_c": CELLS}
    assert built["gru"][0].state == {"gru_h": CELLS}
    assert build("lstm", "value_")[0].state == {"value_lstm_h": CELLS, "value_lstm_c": CELLS}


@pytest.mark.row("L05")
def test_the_forget_gate_starts_open_and_seeds_decide_every_bit():
    cells = []
    for seed in (1, 1, 2):
        middleware = RecurrentMiddleware(KINDS["lstm"], prefix="", seed=seed)
        zeros = np.zeros((1, CELLS), np.float32)
        middleware.step(np.zeros((1, WIDTH), np.float32), {"lstm_h": zeros, "lstm_c": zeros})
        cells.append([np.asarray(weight) for weight in middleware._cell.weights])
    kernel, recurrent, bias = cells[0]
    np.testing.assert_array_equal(bias, np.repeat(np.float32([0, 1, 0, 0]), CELLS))
    np.testing.assert_allclose(recurrent @ recurrent.T, np.eye(CELLS), atol=1e-6)
    for one, again in zip(cells[0], cells[1], strict=True):
        np.testing.assert_array_equal(one, again)
    assert not np.array_equal(kernel, cells[2][0])


@pytest.mark.row("L05")
@pytest.mark.parametrize("kind", KINDS)
def test_one_step_is_the_papers(built, kind):
    middleware, weights = built[kind]
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, WIDTH)).astype(np.float32)
    state = {name: rng.standard_normal((5, CELLS)).astype(np.float32) for name in middleware.state}
    features, after = middleware.step(x, state)
    expected = STEPS[kind](x, tuple(state.values()), *weights)
    np.testing.assert_allclose(np.asarray(features), expected[0], atol=1e-5)
    assert list(after) == list(state)
    for name, array in zip(after, expected, strict=True):
        np.testing.assert_allclose(np.asarray(after[name]), array, atol=1e-5)


def slow(kind, weights, embeddings, state, valid):
    """Row by row; after a row that is not valid the state is zero."""
    state, features = tuple(state.values()), []
    for row, x in enumerate(embeddings):
        state = STEPS[kind](x, state, *weights)
        features.append(state[0])
        if row < len(valid):
            state = tuple(np.where(valid[row][:, None], array, 0.0) for array in state)
    return np.stack(features)


@pytest.mark.row("D05", "L05", "L13")
@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 7), sequences=st.integers(1, 3), share=st.floats(0.0, 1.0))
@settings(max_examples=15)
def test_a_sequence_is_its_steps_with_restarts_where_episodes_begin(built, kind, seed, steps, sequences, share):
    middleware, weights = built[kind]
    rng = np.random.default_rng(seed)
    embeddings = rng.standard_normal((steps + 1, sequences, WIDTH)).astype(np.float32)
    state = {name: rng.standard_normal((sequences, CELLS)).astype(np.float32) for name in middleware.state}
    valid = rng.random((steps, sequences)) < share
    features = np.asarray(middleware.sequence(embeddings, state, valid))
    np.testing.assert_allclose(features, slow(kind, weights, embeddings, state, valid), atol=1e-5)


@pytest.mark.row("D05")
@pytest.mark.parametrize("kind", KINDS)
def test_one_call_equals_two_with_the_state_passed_on(built, kind):
    middleware, _ = built[kind]
    rng = np.random.default_rng(2)
    embeddings = rng.standard_normal((9, 2, WIDTH)).astype(np.float32)
    state = {name: rng.standard_normal((2, CELLS)).astype(np.float32) for name in middleware.state}
    whole = np.asarray(middleware.sequence(embeddings, state, np.ones((8, 2), bool)))
    first = np.asarray(middleware.sequence(embeddings[:4], state, np.ones((3, 2), bool)))
    for x in embeddings[:4]:
        _, state = middleware.step(x, state)
    second = np.asarray(middleware.sequence(embeddings[4:], state, np.ones((4, 2), bool)))
    np.testing.assert_allclose(np.concatenate([first, second]), whole, atol=1e-5)


def test_a_sequence_trains_the_cell_that_steps():
    middleware, _ = build("gru")
    state = {"gru_h": np.zeros((1, CELLS), np.float32)}
    x = np.ones((2, 1, WIDTH), np.float32)
    before = np.asarray(middleware.sequence(x, state, np.ones((1, 1), bool)))
    for weight in middleware._cell.weights:
        weight.assign(0.5 * weight)
    after = np.asarray(middleware.sequence(x, state, np.ones((1, 1), bool)))
    assert np.abs(before - after).max() > 1e-3
    np.testing.assert_allclose(after[0], np.asarray(middleware.step(x[0], state)[0]), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_after_rows_is_that_before_the_next_one(built, kind):
    """The rows go on from it as they do in one call; the second sequence begins an episode there."""
    middleware, _ = built[kind]
    rng = np.random.default_rng(3)
    embeddings = rng.standard_normal((6, 2, WIDTH)).astype(np.float32)
    state = {name: rng.standard_normal((2, CELLS)).astype(np.float32) for name in middleware.state}
    valid = np.array([[True, True], [True, False], [False, True], [True, True], [True, True]])
    whole = np.asarray(middleware.sequence(embeddings, state, valid))
    after = middleware.state_after(embeddings[:2], state, valid[:2])
    assert after.keys() == state.keys()
    assert all(np.asarray(array)[0].any() and not np.asarray(array)[1].any() for array in after.values())
    rest = np.asarray(middleware.sequence(embeddings[2:], after, valid[2:]))
    np.testing.assert_allclose(rest, whole[2:], atol=1e-6)
