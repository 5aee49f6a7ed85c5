"""Statistics of a network: from batches and from others, the same in every copy, saved and restored."""

import numpy as np
import pytest

from distrl.config.algorithms import RewardNormalizationParameters
from distrl.errors import CheckpointError
from distrl.networks.parts.normalization import RunningMoments, Statistics
from distrl.types import ArraySpec

OBSERVATIONS = {"observation": ArraySpec((4,), "float32")}
NORMALIZED = {"input_embedders_parameters": {"observation": {"scheme": [4], "normalize": True}}}
MOMENTS = {"count": np.float64([2.0]), "mean": np.float64([3.0]), "squares": np.float64([8.0])}


@pytest.fixture
def copies(build):
    return [build(seed=seed, **NORMALIZED) for seed in (1, 2)]


@pytest.fixture
def statistics(copies):
    return Statistics([layer for copy in copies for layer in copy.normalizations], OBSERVATIONS, None)


def in_force(copies):
    """(mean, variance) of every copy's only layer."""
    layers = [layer for copy in copies for _, layer in copy.normalizations]
    return [(np.array(layer.mean).tolist(), np.array(layer.variance).tolist()) for layer in layers]


def test_valid_rows_count_and_the_last_row_does_not(copies, statistics, batch_for):
    """Valid rows are [0, 2, 4, 6] and [2, 2, 8, 6]: means [1, 2, 6, 6], variances [1, 0, 4, 0]."""
    batch = batch_for(copies[0], steps=2, sequences=2)
    batch.valid[:] = [[True, False], [False, True]]
    batch.observations["observation"][:] = 1e6
    batch.observations["observation"][0, 0] = [0.0, 2.0, 4.0, 6.0]
    batch.observations["observation"][1, 1] = [2.0, 2.0, 8.0, 6.0]
    assert in_force(copies) == [([0.0] * 4, [1.0] * 4)] * 2
    statistics.observe(batch)
    assert in_force(copies) == [([1.0, 2.0, 6.0, 6.0], [1.0, 0.0, 4.0, 0.0])] * 2
    assert statistics.moments["observation"].count == 2


def test_what_others_tell_is_merged(copies, statistics, batch_for):
    batch, rows = batch_for(copies[0]), np.random.default_rng(1).standard_normal((5, 4))
    statistics.observe(batch)
    told = RunningMoments((4,))
    told.add(rows)
    statistics.observe_moments({"observation": told.state()})
    seen = np.concatenate([batch.observations["observation"][:-1][batch.valid].astype(np.float64), rows])
    for mean, variance in in_force(copies):
        np.testing.assert_allclose(mean, seen.mean(axis=0), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(variance, seen.var(axis=0), rtol=1e-5)


def test_rewards_are_taken_note_of_where_they_are_normalised(copies, statistics, batch_for):
    rewarded = Statistics(
        [layer for copy in copies for layer in copy.normalizations], OBSERVATIONS, RewardNormalizationParameters()
    )
    batch = batch_for(copies[0])._replace(reward_moments=MOMENTS)
    for one in (statistics, rewarded):
        one.observe(batch)
        one.observe_rewards(MOMENTS)
    assert statistics.rewards is None
    assert rewarded.rewards.moments.count == 4  # by the batch, and by hand
    assert set(rewarded.state_arrays()) == {"statistics", "rewards"}


def test_without_normalised_inputs_there_is_nothing_to_tell(build, batch_for):
    network = build()
    statistics = Statistics(network.normalizations, OBSERVATIONS, None)
    statistics.observe(batch_for(network))
    assert statistics.state_arrays() == {"statistics": {}}


@pytest.mark.row("Q04")
def test_moments_come_back_exactly(copies, batch_for):
    one, other = (
        Statistics(
            [layer for copy in copies for layer in copy.normalizations], OBSERVATIONS, RewardNormalizationParameters()
        )
        for _ in range(2)
    )
    one.observe(batch_for(copies[0])._replace(reward_moments=MOMENTS))
    state = one.state_arrays()
    other.check("main", state)
    other.restore(state)
    for group, arrays in other.state_arrays().items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, state[group][name])
    assert other.rewards.deviation == one.rewards.deviation != 1.0


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("other/mean", np.zeros(4), "main/statistics: other/mean: the checkpoint normalises other inputs"),
        ("observation/mean", np.zeros(3), "observation/mean must be finite and of shape \\(4,\\)"),
        ("observation/squares", np.full(4, np.nan), "observation/squares must be finite and of shape \\(4,\\)"),
    ],
)
def test_other_checkpoints_are_refused(statistics, name, array, message):
    state = statistics.state_arrays()
    state["statistics"][name] = array
    with pytest.raises(CheckpointError, match=message):
        statistics.check("main", state)
