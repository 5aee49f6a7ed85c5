import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from distrl.config.algorithms import RewardNormalizationParameters
from distrl.config.network import EmbedderParameters
from distrl.networks.parts.embedders import embed
from distrl.networks.parts.normalization import (
    CLIP,
    EPSILON,
    ObservationNormalization,
    RewardNormalization,
    RunningMoments,
)
from distrl.networks.policy.description import RewardStatistics
from distrl.types import Batch

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


@pytest.mark.row("D104")
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


@pytest.mark.row("D104", "L10.2", "T21")
def test_what_was_seen_scales_what_comes_next():
    """Two workers saw one row each. The ancestor divided by the deviation of the newest row instead."""
    moments, other = moments_of(np.float32([[0]]), shape=(1,)), moments_of(np.float32([[2]]), shape=(1,))
    moments.merge(other.count, other.mean, other.squares)
    assert (moments.mean.tolist(), moments.variance.tolist()) == ([1], [1])
    layer = ObservationNormalization(name="n")
    layer.build((None, 1))
    layer.mean.assign(moments.mean)
    layer.variance.assign(moments.variance)
    np.testing.assert_allclose(np.asarray(layer(np.float32([[4]]))), [[3]], rtol=1e-6)


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


def rewards_batch(rewards, valid=None, moments=None):
    rows = np.float32(rewards)[:, None]
    shown = np.ones(rows.shape, bool) if valid is None else np.array(valid)[:, None]
    return Batch({}, {}, rows, ~shown, ~shown, shown, rows, {}, moments or {})


def of_rewards(kind, *parts, clip=5.0):
    """Return the normalisation of rewards after these unrolls' numbers: discounted returns, or rewards."""
    normalization = RewardNormalization(RewardNormalizationParameters(kind=kind, clip=clip))
    for part in parts:
        told = moments_of(np.float64(part), shape=()).state()
        normalization.observe(told)
    return normalization


def normalised(normalization, rewards, valid=None):
    return normalization(rewards_batch(rewards, valid)).rewards[:, 0].tolist()


@pytest.mark.row("D113")
def test_rewards_less_their_mean_by_their_deviation():
    """Coach's example: seen 0 and 2, then 4 is (4 - 1) / 1 = 3; and nothing is beyond 5."""
    normalization = of_rewards("reward", [0.0, 2.0])
    assert normalised(normalization, [4.0, 1.0, 9.0, -9.0]) == pytest.approx([3.0, 0.0, 5.0, -5.0])
    assert normalised(of_rewards("reward", [0.0, 2.0], clip=None), [9.0]) == pytest.approx([8.0])


@pytest.mark.row("D113")
def test_rewards_by_the_deviation_of_the_discounted_return_alone():
    """Their mean stays, so that a reward of 0 stays worth nothing."""
    normalization = of_rewards("discounted_return", [0.0, 4.0])
    assert normalised(normalization, [4.0, 0.0, -1.0, 30.0]) == pytest.approx([2.0, 0.0, -0.5, 5.0])


@pytest.mark.parametrize("kind", ["discounted_return", "reward"])
def test_before_two_steps_rewards_are_only_cut(kind):
    for normalization in (of_rewards(kind), of_rewards(kind, [7.0]), of_rewards(kind, [])):
        assert normalised(normalization, [3.0, -9.0]) == [3.0, -5.0]
        assert (normalization.mean, normalization.deviation) == (0.0, 1.0)


def test_returns_that_never_differ_give_finite_rewards():
    normalization = of_rewards("discounted_return", [0.0, 0.0, 0.0])
    assert normalization.deviation == 1.0
    assert normalised(normalization, [0.0, 1.0, 9.0]) == [0.0, 1.0, 5.0]


def test_rows_that_are_no_steps_stay_0_and_the_loss_sees_no_moments():
    normalization = of_rewards("reward", [0.0, 2.0])
    batch = normalization(rewards_batch([4.0, 0.0], [True, False], {"count": np.ones(1)}))
    assert (batch.rewards.tolist(), batch.rewards.dtype.name) == ([[3.0], [0.0]], "float32")
    assert batch.reward_moments == {}


@given(st.lists(st.lists(NUMBERS, max_size=6), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_neither_the_order_of_unrolls_nor_who_made_them_matters(unrolls, random):
    """Two actors' unrolls, in any order, as many in a batch as may be: the statistics of one actor that made all."""
    one = of_rewards("reward", [number for unroll in unrolls for number in unroll])
    shuffled = [moments_of(np.float64(unroll), shape=()).state() for unroll in unrolls]
    random.shuffle(shuffled)
    other = of_rewards("reward")
    other.observe({name: np.array([told[name] for told in shuffled]) for name in ("count", "mean", "squares")})
    assert one.moments.count == other.moments.count
    np.testing.assert_allclose(other.mean, one.mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(other.deviation, one.deviation, rtol=1e-6, atol=1e-6)


def test_what_is_published_is_what_another_one_normalises_by():
    learner, actor = of_rewards("reward", [0.0, 6.0]), of_rewards("reward")
    actor.take(learner.published() | {"main/kernel": np.zeros(2)})
    assert normalised(actor, [4.0, -2.0]) == normalised(learner, [4.0, -2.0]) == pytest.approx([1 / 3, -5 / 3])


def test_moments_of_rewards_come_back_exactly_and_are_in_force_at_once():
    one, other = of_rewards("reward", [0.1, 0.7, -3.0]), of_rewards("reward")
    other.restore(one.moments.state())
    assert (other.mean, other.deviation) == (one.mean, one.deviation)
    assert one.described() == RewardStatistics("reward", 5.0, one.mean, one.deviation, 3)


@pytest.mark.row("D104")
def test_an_observation_less_its_mean_by_its_deviation_and_cut_where_the_embedder_says():
    """Coach's example: seen 0 and 2, then 4 is (4 - 1) / 1 = 3; its bound of 5 is `input_clipping`."""
    layer = ObservationNormalization(name="n")
    observation = keras.Input((1,), name="x")
    parameters = EmbedderParameters(normalize=True, input_clipping=(-5.0, 5.0))
    embedded = embed(observation, parameters, name="x", seed=1, normalization=layer)
    model = keras.Model({"x": observation}, {"y": embedded})
    moments = moments_of(np.float32([[0.0], [2.0]]), shape=(1,))
    layer.mean.assign(moments.mean)
    layer.variance.assign(moments.variance)
    seen = np.asarray(model({"x": np.float32([[4.0], [1.0], [99.0], [-99.0]])})["y"])
    np.testing.assert_allclose(seen, [[3.0], [0.0], [5.0], [-5.0]], rtol=1e-6)
