"""Items of a memory are exactly those that are there, and hold what went in: a twin keeps a list of unrolls.

Stacks of frames are those that the policy saw.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl import buffers, frames
from distrl.config.replay import ReplayParameters
from distrl.config.schedules import Progress
from distrl.replay import ring
from distrl.replay.memory import Replay
from distrl.replay.ring import UnrollRing, slot_forms
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, Unroll, UnrollHeader
from distrl.unroll_schema import UnrollSchema, bytes_of

SPEC = EnvSpec(
    "Toy",
    {"picture": ArraySpec((2, 6), "uint8", frames=3), "position": ArraySpec((2,), "float32")},
    {"turn": DiscreteSpec(3), "push": BoxSpec((2,), (None, None), (None, None))},
)
STATE = {"h": ArraySpec((4,), "float32")}


def random_unroll(rng, length, environments, states=0, share=None):
    """Any numbers; episodes end as environments end them, or a row is valid as it happens."""
    shape = (length, environments)
    terminated, truncated = rng.random(shape) < 0.2, rng.random(shape) < 0.15
    valid = np.ones(shape, np.bool_)
    for t in range(1, length):
        valid[t] = ~((terminated | truncated)[t - 1] & valid[t - 1])
        terminated[t] &= valid[t]
        truncated[t] &= valid[t]
    if share is not None:
        valid = rng.random(shape) < share
    return Unroll(
        header=UnrollHeader(0, 1, 0, 1, int(valid.sum())),
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
        recurrent_state={"h": rng.standard_normal((states, environments, 4)).astype(np.float32)} if states else {},
        episode_returns=np.zeros(0, np.float32),
        episode_lengths_steps=np.zeros(0, np.int32),
    )


def make(item, kind, length, environments):
    parameters = {"capacity_steps": 3 * length * environments, "min_size_steps": 1}
    given = ReplayParameters.model_validate({**parameters, "item": item, "sampler": {"kind": kind, **PLAIN[kind]}})
    states = len(given.item.state_rows(length)) if item["kind"] == "sequence" else 1
    schema = UnrollSchema.of(SPEC, length, environments, STATE if item["kind"] == "sequence" else {}, states=states)
    return Replay(given, schema, discount=0.9, seeds=np.random.SeedSequence(0)), states


PLAIN = {"uniform": {}, "prioritized": {"alpha": 1.0, "epsilon": 0.0}}
CASES = [
    ({"kind": "transition"}, 5),
    ({"kind": "transition", "n_step": 3}, 7),
    ({"kind": "transition", "n_step": 9}, 4),
    ({"kind": "transition", "terminations": False}, 5),
    ({"kind": "transition", "terminations": False, "n_step": 3}, 7),
    ({"kind": "sequence"}, 6),
    ({"kind": "sequence", "length_steps": 2}, 6),
    ({"kind": "sequence", "length_steps": 4, "overlap_steps": 2}, 8),
    ({"kind": "sequence", "length_steps": 5, "overlap_steps": 4, "burn_in_steps": 3}, 7),
    ({"kind": "sequence", "length_steps": 3, "burn_in_steps": 2}, 6),
]


@pytest.mark.row("J09")
@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
@pytest.mark.parametrize(("item", "length"), CASES)
@given(
    seed=st.integers(0, 2**32 - 1),
    environments=st.integers(1, 3),
    unrolls=st.integers(1, 5),
    share=st.none() | st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
@settings(max_examples=12)
def test_items_are_those_of_a_list_of_unrolls(item, length, kind, seed, environments, unrolls, share):
    rng = np.random.default_rng(seed)
    replay, states = make(item, kind, length, environments)
    kept = []
    for _ in range(unrolls):
        kept.append(random_unroll(rng, length, environments, states if item["kind"] == "sequence" else 0, share))
        assert replay.insert(kept[-1]) == kept[-1].header.env_steps
    twin = TWINS[item["kind"]]
    expected = {
        number: (unroll, place)
        for index, unroll in enumerate(kept)
        if index >= unrolls - 3
        for number, place in twin.places(item, unroll, index, length, environments)
    }
    assert replay.is_empty == (not expected)
    if not expected:
        with pytest.raises(ValueError, match="is empty"):
            replay.sample(1, Progress())
        return
    # Stratified draws over equal priorities find each item once; so many uniform ones miss none.
    sample = replay.sample(len(expected) * (1 if kind == "prioritized" else 60), Progress())
    assert set(sample.items.tolist()) == set(expected)
    trained = sample.batch.valid[item.get("burn_in_steps", 0) :]
    assert sample.steps == replay.limiter.sampled_steps == trained.sum()
    assert sample.batch.valid.shape[0] - item.get("burn_in_steps", 0) == replay.steps_of(1)
    for number, column in zip(*np.unique(sample.items, return_index=True), strict=True):
        unroll, (start, environment) = expected[number]
        twin.check(item, sample.batch, column, unroll, start, environment, (number // environments) % states)


class Transition:
    @staticmethod
    def places(item, unroll, index, length, environments):
        for t, b in np.argwhere(unroll.valid):
            if item.get("terminations", True) or not Transition.terminates(item, unroll, t, b):
                yield (index * length + t) * environments + b, (t, b)

    @staticmethod
    def terminates(item, unroll, t, b):
        for row in range(t, min(t + item.get("n_step", 1), len(unroll.valid))):
            if not unroll.valid[row, b]:
                return False
            if unroll.terminated[row, b] or unroll.truncated[row, b]:
                return unroll.terminated[row, b]
        return False

    @staticmethod
    def check(item, batch, column, unroll, t, b, number):
        assert batch.recurrent_state == {}
        k = batch.bootstrap_steps[0, column]
        assert 1 <= k <= item.get("n_step", 1)
        ended = unroll.terminated[t + k - 1, b] or unroll.truncated[t + k - 1, b]
        assert k == item.get("n_step", 1) or t + k == len(unroll.valid) or ended or not unroll.valid[t + k, b]
        for row, time in ((0, t), (1, t + k)):
            check_observations(batch, unroll, (row, column), (time, b))
        check_steps(batch, unroll, (0, column), (t, b), ("valid", "behaviour_log_probabilities"))
        between = slice(t, t + k)
        total = sum(0.9**i * reward for i, reward in enumerate(unroll.rewards[between, b].tolist()))
        assert batch.rewards[0, column] == pytest.approx(total, rel=1e-5, abs=1e-6)
        assert unroll.valid[between, b].all()  # never across episodes
        assert batch.terminated[0, column] == unroll.terminated[between, b].any()
        assert batch.truncated[0, column] == unroll.truncated[between, b].any()


class Sequence:
    @staticmethod
    def places(item, unroll, index, length, environments):
        rows = item.get("length_steps", length)
        starts = range(0, length - rows + 1, rows - item.get("overlap_steps", 0))
        for number, start in enumerate(starts):
            for b in range(environments):
                if unroll.valid[start + item.get("burn_in_steps", 0) : start + rows, b].any():
                    yield (index * len(starts) + number) * environments + b, (start, b)

    @staticmethod
    def check(item, batch, column, unroll, start, b, number):
        assert batch.bootstrap_steps is None
        rows = item.get("length_steps", len(unroll.valid))
        assert batch.valid.shape[0] == rows
        assert np.array_equal(batch.recurrent_state["h"][column], unroll.recurrent_state["h"][number, b])
        for row in range(rows + 1):
            check_observations(batch, unroll, (row, column), (start + row, b))
        names = ("rewards", "terminated", "truncated", "valid", "behaviour_log_probabilities")
        for row in range(rows):
            check_steps(batch, unroll, (row, column), (start + row, b), names)


TWINS = {"transition": Transition, "sequence": Sequence}


def check_observations(batch, unroll, mine, theirs):
    pictures = frames.rebuilt(unroll.observations["picture"], unroll.valid, 3)
    assert np.array_equal(batch.observations["picture"][mine], pictures[theirs])
    assert np.array_equal(batch.observations["position"][mine], unroll.observations["position"][theirs])


def check_steps(batch, unroll, mine, theirs, names):
    for name in ("turn", "push"):
        assert np.array_equal(batch.actions[name][mine], unroll.actions[name][theirs])
    for name in names:
        assert getattr(batch, name)[mine] == getattr(unroll, name)[theirs]


@pytest.mark.parametrize(("item", "length"), [CASES[1], CASES[-2]])
def test_large_arrays_are_the_same_in_memory_that_is_used_again(item, length, monkeypatch):
    def samples(replay):
        return [replay.sample(6, Progress()).batch for _ in range(5)]

    def filled():
        replay, states = make(item, "uniform", length, 2)
        for seed in range(3):
            replay.insert(random_unroll(np.random.default_rng(seed), length, 2, states))
        return replay

    small = samples(filled())
    for module in (ring, buffers):
        monkeypatch.setattr(module, "LEAST_BYTES", 1)
    replay, kept = filled(), []
    for expected in small:
        batch = replay.sample(6, Progress()).batch
        for name, rows in expected.observations.items():
            np.testing.assert_array_equal(batch.observations[name], rows, strict=True)
        np.testing.assert_array_equal(batch.actions["push"], expected.actions["push"], strict=True)
        kept.append(batch.observations["picture"])  # and is never written to
    for rows, expected in zip(kept, small, strict=True):
        np.testing.assert_array_equal(rows, expected.observations["picture"])
    places = {rows.ctypes.data for rows in kept}
    del batch, rows, kept
    assert replay.sample(6, Progress()).batch.observations["picture"].ctypes.data in places
    with pytest.raises(AssertionError):
        replay._ring.taken("valid", np.array([3]), np.array([0]), np.array([0]))


def test_first_priorities_of_sequences_by_hand():
    """Two sequences of three steps, the first burnt in: .9 x 4 + .1 x 3, and the size of the only valid one, 6."""
    item = {"kind": "sequence", "length_steps": 3, "burn_in_steps": 1}
    replay, _ = make(item, "prioritized", 6, 1)
    unroll = random_unroll(np.random.default_rng(0), 6, 1, 2)
    valid = np.array([[True], [True], [True], [True], [False], [True]])
    priorities = np.float32([[9.0], [2.0], [4.0], [9.0], [np.nan], [6.0]])
    replay.insert(dataclasses.replace(unroll, valid=valid, extras={"priorities": priorities}))
    np.testing.assert_allclose(replay.state_arrays()["sampler/weights"][:2], [3.9, 6.0], rtol=1e-6)


def test_every_frame_is_there_once():
    """T = 10, B = 2: 13 x 2 pictures of 4 bytes and 11 x 2 positions of 8; per step 4 + 8 of actions, 11 besides; the
    state is 16 bytes."""
    schema = UnrollSchema.of(SPEC, 10, 2, STATE, states=3)
    further = {"bootstrap_steps": (np.dtype("int32"), (10, 2))}
    assert bytes_of(slot_forms(schema, {})) == 26 * 4 + 22 * 8 + 20 * (12 + 11) + 3 * 2 * 16
    assert bytes_of(slot_forms(schema, further)) == bytes_of(slot_forms(schema, {})) + 20 * 4
    ring = UnrollRing(schema, 5, further)
    assert sum(array.nbytes for array in ring.arrays.values()) == 5 * bytes_of(slot_forms(schema, further))
