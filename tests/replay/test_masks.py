"""Bootstrap masks: the generator's published numbers, shares and independence, and the masks of a memory's items."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.config.replay import ReplayParameters
from distrl.config.schedules import Progress
from distrl.replay.masks import BootstrapMasks, split_mix
from distrl.replay.memory import Replay
from distrl.types import BOOTSTRAP_MASKS
from distrl.unroll_schema import UnrollSchema
from tests.replay.test_memory import SPEC, restore, unroll_of


def masks(members=4, probability=0.5, seed=0):
    return BootstrapMasks(members, probability, np.random.SeedSequence(seed))


def slow_split_mix(key, number):
    """The generator as published: the state moves once for each output."""
    state, output = key, 0
    for _ in range(number + 1):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        output = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        output = ((output ^ (output >> 27)) * 0x94D049BB133111EB) % 2**64
        output ^= output >> 31
    return output


def test_the_generator_has_the_published_outputs():
    """The first three outputs of SplitMix64 with seed 0."""
    found = split_mix(np.zeros(1, np.uint64), np.arange(3, dtype=np.uint64))
    assert [int(bits) for bits in found] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@given(st.integers(0, 2**64 - 1), st.integers(0, 50))
def test_an_output_depends_on_its_number_alone(key, number):
    found = split_mix(np.array([key], np.uint64), np.array([number], np.uint64))
    assert int(found[0]) == slow_split_mix(key, number)


@pytest.mark.row("D156")
@settings(max_examples=20)
@given(st.floats(0.05, 1.0), st.integers(2, 12), st.integers(0, 2**32), st.integers(0, 2**40))
def test_members_learn_from_their_share_each_independently(probability, members, seed, first):
    """Within five standard deviations, for the share of each member and for the agreement of each pair."""
    found = masks(members, probability, seed).of(first + np.arange(4_000))
    assert found.shape == (1, 4_000, members)
    assert found.dtype == np.float32
    assert set(np.unique(found)) <= {0.0, 1.0}
    bound = 5.0 * np.sqrt(0.25 / 4_000)
    np.testing.assert_allclose(found[0].mean(axis=0), probability, atol=bound)
    both = found[0].T @ found[0] / 4_000
    np.testing.assert_allclose(both[~np.eye(members, dtype=bool)], probability**2, atol=bound)


def test_a_seed_has_masks_of_its_own():
    items = np.arange(100)
    assert np.array_equal(masks(seed=1).of(items), masks(seed=1).of(items))
    assert not np.array_equal(masks(seed=1).of(items), masks(seed=2).of(items))


def memory():
    given = ReplayParameters.model_validate({"capacity_steps": 8, "min_size_steps": 1})
    schema = UnrollSchema.of(SPEC, 2, 1, {}, states=0)
    return Replay(given, schema, discount=0.9, seeds=np.random.SeedSequence(0), masks=masks(members=20))


def by_item(replay):
    """Number of each drawn item -> its masks; each draw of an item must have the same ones."""
    found = {}
    for _ in range(3):
        sample = replay.sample(40, Progress())
        drawn = sample.batch.extras[BOOTSTRAP_MASKS]
        assert drawn.shape == (1, 40, 20)
        for number, mask in zip(sample.items.tolist(), drawn[0].tolist(), strict=True):
            assert found.setdefault(number, mask) == mask
    return found


@pytest.mark.row("D156")
def test_an_item_keeps_its_mask_and_equal_transitions_have_their_own(tmp_path):
    replay = memory()
    for _ in range(3):
        replay.insert(unroll_of([[1.0], [1.0]]))  # six equal transitions
    before = by_item(replay)
    assert sorted(before) == list(range(6))
    assert len({tuple(mask) for mask in before.values()}) == 6
    resumed = memory()
    restore(resumed, replay.state_arrays(), tmp_path)
    assert by_item(resumed) == before
    for _ in range(4):
        replay.insert(unroll_of([[1.0], [1.0]]))
    after = by_item(replay)
    assert sorted(after) == list(range(6, 14))  # in the same places, with masks of their own
    assert not {tuple(mask) for mask in after.values()} & {tuple(mask) for mask in before.values()}


def test_other_memories_add_none():
    given = ReplayParameters.model_validate({"capacity_steps": 8, "min_size_steps": 1})
    replay = Replay(given, UnrollSchema.of(SPEC, 2, 1, {}, states=0), discount=0.9, seeds=np.random.SeedSequence(0))
    replay.insert(unroll_of([[1.0], [1.0]]))
    assert replay.sample(4, Progress()).batch.extras == {}
