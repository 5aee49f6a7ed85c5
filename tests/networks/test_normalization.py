import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from distrl.networks.normalization import CLIP, EPSILON, ObservationNormalization, RunningMoments

NUMBERS = st.floats(-1e3, 1e3, width=32)
ROWS = arrays(np.float32, st.tuples(st.integers(0, 40), st.just(3)), elements=NUMBERS)


def moments_of(*parts, shape=(3,)):
    moments = RunningMoments(shape)
    for part in parts:
        moments.add(part)
    return moments


def test_the_layer_by_hand():
    layer = ObservationNormalization(name="n")
    model_input = np.float32([[3.0, 100.0], [0.0, -100.0]])
    np.testing.assert_allclose(np.asarray(layer(model_input)), [[3.0, CLIP], [0.0, -CLIP]], rtol=1e-6)
    layer.mean.assign([1.0, 40.0])
    layer.variance.assign([4.0, 3600.0])
    expected = [[1.0, 1.0], [-0.5, -140.0 / 60.0]]
    np.testing.assert_allclose(np.asarray(layer(model_input)), expected, rtol=1e-6)
    layer.variance.assign([0.0, 1.0])
    np.testing.assert_allclose(
        np.asarray(layer(np.float32([[1.0 + 1e-4, 40.0]])))[0, 0], 1e-4 / EPSILON**0.5, rtol=1e-3
    )


def test_its_weights_are_not_trained_and_have_the_observations_shape():
    layer = ObservationNormalization(name="n")
    layer.build((None, 2, 3))
    assert layer.trainable_weights == []
    assert [(weight.path, tuple(weight.shape)) for weight in layer.weights] == [
        ("n/mean", (2, 3)),
        ("n/variance", (2, 3)),
    ]


def test_it_computes_in_float32_whatever_the_network_does():
    """In bfloat16 1000.5 is 1000: nothing would be left of it once the mean is taken away."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        layer = ObservationNormalization(name="n")
    finally:
        keras.config.set_dtype_policy(before)
    layer.build((None, 1))
    layer.mean.assign([1000.0])
    np.testing.assert_allclose(np.asarray(layer(np.float32([[1000.5]]))), [[0.5]], rtol=1e-4)


def test_moments_by_hand():
    moments = moments_of(np.float32([[1, 2, 3]]), np.float32([[3, 2, 9], [5, 2, 0]]))
    assert moments.count == 3.0
    np.testing.assert_allclose(moments.mean, [3, 2, 4])
    np.testing.assert_allclose(moments.variance, [8 / 3, 0, 14])


def test_before_two_rows_the_variance_is_one():
    assert moments_of().variance.tolist() == [1, 1, 1]
    once = moments_of(np.float32([[7, 8, 9]]), np.zeros((0, 3), np.float32))
    assert (once.count, once.mean.tolist(), once.variance.tolist()) == (1.0, [7, 8, 9], [1, 1, 1])


@given(ROWS, st.integers(0, 40), st.randoms(use_true_random=False))
def test_order_and_batches_do_not_matter(rows, cut, random):
    shuffled = list(range(len(rows)))
    random.shuffle(shuffled)
    one = moments_of(rows)
    other = moments_of(rows[shuffled][:cut], rows[shuffled][cut:])
    assert one.count == other.count == len(rows)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-6)
    np.testing.assert_allclose(one.variance, other.variance, rtol=1e-9, atol=1e-6)
    if len(rows) > 1:
        np.testing.assert_allclose(one.mean, rows.astype(np.float64).mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(one.variance, rows.astype(np.float64).var(axis=0), rtol=1e-9, atol=1e-6)


def test_many_rows_of_large_numbers_lose_nothing():
    """Bytes of images: 1000 rows in float32 around 1e6, whose squares float32 could not tell apart."""
    rng = np.random.default_rng(0)
    rows = (1e6 + rng.standard_normal((1000, 3))).astype(np.float32)
    moments = moments_of(rows)
    np.testing.assert_allclose(moments.variance, rows.astype(np.float64).var(axis=0), rtol=1e-9)
    images = rng.integers(0, 256, (300, 2, 2), np.uint8)
    np.testing.assert_allclose(moments_of(images, shape=(2, 2)).mean, images.mean(axis=0), rtol=1e-12)


def test_merging_the_moments_of_others_equals_their_rows():
    rng = np.random.default_rng(1)
    left, right = rng.standard_normal((5, 3)), rng.standard_normal((9, 3)) + 4.0
    merged, other = moments_of(left), moments_of(right)
    merged.merge(other.count, other.mean, other.squares)
    np.testing.assert_allclose(merged.mean, np.concatenate([left, right]).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(merged.variance, np.concatenate([left, right]).var(axis=0), rtol=1e-12)
    before = merged.mean
    merged.merge(0.0, np.full(3, 9.0), np.zeros(3))
    np.testing.assert_array_equal(merged.mean, before)


def test_state_is_a_copy_and_comes_back_exactly():
    moments = moments_of(np.float32([[1, 2, 3], [4, 5, 7]]))
    state = moments.state()
    again = moments_of()
    again.restore(state)
    state["mean"][...] = 0.0
    assert again.count == 2.0
    np.testing.assert_array_equal(again.mean, moments.mean)
    np.testing.assert_array_equal(again.squares, moments.squares)
    assert moments.mean.dtype == moments.squares.dtype == np.float64


@pytest.mark.parametrize("shape", [(), (2, 2, 1)])
def test_any_shape_of_observation(shape):
    rows = np.random.default_rng(0).standard_normal((7, *shape))
    moments = moments_of(rows, shape=shape)
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=1e-12)
    assert np.shape(moments.variance) == shape
