"""The ring: what comes out is what went in, and stacks of frames are those that the policy saw."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl import frames
from distrl.replay.ring import UnrollRing, slot_bytes
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, Unroll, UnrollHeader, UnrollSchema

SPEC = EnvSpec(
    "Toy",
    {"picture": ArraySpec((2, 6), "uint8", frames=3), "position": ArraySpec((2,), "float32")},
    {"turn": DiscreteSpec(3), "push": BoxSpec((2,), (None, None), (None, None))},
)
STATE = {"h": ArraySpec((4,), "float32")}


def random_unroll(rng, length, environments, number=0):
    """Any numbers; episodes end as environments end them."""
    shape = (length, environments)
    terminated, truncated = rng.random(shape) < 0.2, rng.random(shape) < 0.15
    valid = np.ones(shape, np.bool_)
    for t in range(1, length):
        valid[t] = ~((terminated | truncated)[t - 1] & valid[t - 1])
        terminated[t] &= valid[t]
        truncated[t] &= valid[t]
    return Unroll(
        header=UnrollHeader(0, 1, number, 1, int(valid.sum())),
        observations={
            "picture": rng.integers(256, size=(length + 3, environments, 2, 2)).astype(np.uint8),
            "position": rng.standard_normal((length + 1, environments, 2)).astype(np.float32),
        },
        actions={
            "turn": rng.integers(3, size=shape).astype(np.int32),
            "push": rng.standard_normal((*shape, 2)).astype(np.float32),
        },
        rewards=np.where(valid, rng.standard_normal(shape), 0).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        valid=valid,
        behaviour_log_probabilities=rng.standard_normal(shape).astype(np.float32),
        recurrent_state={"h": rng.standard_normal((environments, 4)).astype(np.float32)},
        episode_returns=np.zeros(0, np.float32),
        episode_lengths_steps=np.zeros(0, np.int32),
    )


@given(
    seed=st.integers(0, 2**32 - 1),
    length=st.integers(1, 7),
    environments=st.integers(1, 3),
    n=st.integers(1, 5),
)
def test_transitions_are_rows_of_the_unrolls_that_went_in(seed, length, environments, n):
    rng = np.random.default_rng(seed)
    schema = UnrollSchema.of(SPEC, length, environments, {})
    ring = UnrollRing(schema, 3, sequences=False, discount=0.9, n_step=n)
    unrolls = [random_unroll(rng, length, environments) for _ in range(3)]
    for slot, unroll in enumerate(unrolls):
        ring.put(slot, unroll)
    valid = np.stack([unroll.valid for unroll in unrolls])
    positions = rng.permutation(np.flatnonzero(valid))
    batch = ring.transitions(positions, None)
    assert batch.valid.all()
    assert batch.recurrent_state == {}
    for item, position in enumerate(positions):
        slot, t, b = np.unravel_index(position, valid.shape)
        unroll = unrolls[slot]
        k = batch.bootstrap_steps[0, item]
        pictures = frames.rebuilt(unroll.observations["picture"], unroll.valid, 3)
        for row, time in ((0, t), (1, t + k)):
            assert np.array_equal(batch.observations["picture"][row, item], pictures[time, b])
            assert np.array_equal(batch.observations["position"][row, item], unroll.observations["position"][time, b])
        for name in ("turn", "push"):
            assert np.array_equal(batch.actions[name][0, item], unroll.actions[name][t, b])
        assert batch.behaviour_log_probabilities[0, item] == unroll.behaviour_log_probabilities[t, b]
        between = slice(t, t + k)
        total = sum(0.9**i * reward for i, reward in enumerate(unroll.rewards[between, b].tolist()))
        assert batch.rewards[0, item] == pytest.approx(total, rel=1e-5, abs=1e-6)
        assert unroll.valid[between, b].all()  # never across episodes
        assert batch.terminated[0, item] == unroll.terminated[between, b].any()
        assert batch.truncated[0, item] == unroll.truncated[between, b].any()


@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 6))
def test_columns_are_unrolls_of_one_environment(seed, length):
    rng = np.random.default_rng(seed)
    schema = UnrollSchema.of(SPEC, length, 2, STATE)
    ring = UnrollRing(schema, 2, sequences=True, discount=0.9, n_step=1)
    unrolls = [random_unroll(rng, length, 2) for _ in range(2)]
    for slot, unroll in enumerate(unrolls):
        ring.put(slot, unroll)
    batch = ring.columns(np.array([3, 0, 3]), np.ones(3, np.float32))
    assert batch.bootstrap_steps is None
    assert batch.importance_weights.tolist() == [1, 1, 1]
    for item, (slot, b) in enumerate([(1, 1), (0, 0), (1, 1)]):
        unroll = unrolls[slot]
        pictures = frames.rebuilt(unroll.observations["picture"], unroll.valid, 3)
        assert np.array_equal(batch.observations["picture"][:, item], pictures[:, b])
        assert np.array_equal(batch.observations["position"][:, item], unroll.observations["position"][:, b])
        assert np.array_equal(batch.recurrent_state["h"][item], unroll.recurrent_state["h"][b])
        assert np.array_equal(batch.actions["push"][:, item], unroll.actions["push"][:, b])
        for name in ("rewards", "terminated", "truncated", "valid", "behaviour_log_probabilities"):
            assert np.array_equal(getattr(batch, name)[:, item], getattr(unroll, name)[:, b])


def test_every_frame_is_there_once():
    """T = 10, B = 2: 13 x 2 pictures of 4 bytes and 11 x 2 positions of 8; per step 4 + 8 of actions, 15 besides."""
    schema = UnrollSchema.of(SPEC, 10, 2, STATE)
    assert slot_bytes(schema, sequences=False) == 26 * 4 + 22 * 8 + 20 * (12 + 15)
    assert slot_bytes(schema, sequences=True) == 26 * 4 + 22 * 8 + 20 * (12 + 11) + 2 * 16
    ring = UnrollRing(schema, 5, sequences=False, discount=0.9, n_step=1)
    assert sum(array.nbytes for array in ring.arrays.values()) == 5 * slot_bytes(schema, sequences=False)
