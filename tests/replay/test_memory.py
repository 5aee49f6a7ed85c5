"""The replay memory as a whole. With T = B = 1 every unroll is one step, and its reward is its name."""

import dataclasses
import itertools
import json
import tracemalloc

import numpy as np
import pytest

from distrl import nest
from distrl.config.replay import ReplayParameters
from distrl.config.schedules import Progress
from distrl.data_store import npz
from distrl.errors import CheckpointError
from distrl.replay.memory import Replay, batch_bytes, replay_bytes
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, Unroll, UnrollHeader
from distrl.unroll_schema import UnrollSchema

SPEC = EnvSpec("Toy", {"observation": ArraySpec((1,), "float32")}, {"action": DiscreteSpec(2)})
STATE = {"h": ArraySpec((1,), "float32")}


def unroll_of(rewards, valid=None, state=None, truncated=None):
    """rewards: [T, B]; the observation of a row is 100 x its reward."""
    rewards = np.array(rewards, np.float32)
    valid = np.ones(rewards.shape, np.bool_) if valid is None else np.array(valid, np.bool_)
    rows = np.concatenate([rewards, rewards[-1:] + 1])
    return Unroll(
        header=UnrollHeader(0, 1, 0, 1, int(valid.sum())),
        observations={"observation": 100 * rows[..., None]},
        actions={"action": np.zeros(rewards.shape, np.int32)},
        rewards=rewards,
        terminated=np.zeros(rewards.shape, np.bool_),
        truncated=np.zeros(rewards.shape, np.bool_) if truncated is None else np.array(truncated, np.bool_),
        valid=valid,
        behaviour_log_probabilities=np.zeros(rewards.shape, np.float32),
        recurrent_state={"h": np.full((1, rewards.shape[1], 1), state, np.float32)} if state is not None else {},
        episode_returns=np.zeros(0, np.float32),
        episode_lengths_steps=np.zeros(0, np.int32),
    )


def make(capacity, length=1, environments=1, seed=0, discount=0.9, refills=False, **parameters):
    given = ReplayParameters.model_validate({"capacity_steps": capacity, "min_size_steps": 1, **parameters})
    state = STATE if given.item.kind == "sequence" else {}
    schema = UnrollSchema.of(SPEC, length, environments, state, states=len(given.item.state_rows(length)))
    return Replay(given, schema, discount=discount, seeds=np.random.SeedSequence(seed), refills=refills)


def restore(replay, arrays, tmp_path):
    """By way of a file, as a learner does."""
    with (tmp_path / "replay.npz").open("wb") as file:
        npz.write(file, arrays)
    with (tmp_path / "replay.npz").open("rb") as stored, npz.opened(stored) as saved:
        replay.restore(saved)


def prioritized(capacity, **more):
    return make(capacity, sampler={"kind": "prioritized", "alpha": 1.0, "beta": 1.0, "epsilon": 0.0}, **more)


def filled(replay, rewards):
    for reward in rewards:
        replay.insert(unroll_of([[reward]]))
    return replay


def drawn(replay, draws=200):
    """Rewards among so many draws."""
    return set(replay.sample(draws, Progress()).batch.rewards[0].tolist())


@pytest.mark.row("D134")
def test_a_balanced_memory_samples_each_choice_as_often():
    replay = make(40, 2, 2, sampler={"kind": "balanced"})
    for number in range(12):  # the first two make room
        unroll = unroll_of([[number, number], [number, number]], [[True, True], [True, False]])
        unroll.actions["action"][:] = [[0, 0], [number % 5 == 4, 1]]  # the last one is not valid
        replay.insert(unroll)
    batch = replay.sample(100, Progress()).batch
    chosen = batch.actions["action"][0]
    assert np.bincount(chosen).tolist() == [50, 50]
    assert set(batch.rewards[0, chosen == 1].tolist()) == {4, 9}
    assert set(batch.rewards[0].tolist()) == {*range(2, 12)}


@pytest.mark.row("J10")
def test_a_memory_samples_each_new_item_before_any_again():
    replay = make(12, 2, 1, sampler={"kind": "prioritized", "new_items_first": True})
    for number in range(8):  # two items come and two are sampled
        replay.insert(unroll_of([[2 * number], [2 * number + 1]]))
        assert replay.sample(2, Progress()).batch.rewards[0].tolist() == [2 * number, 2 * number + 1]
    replay.insert(unroll_of([[16], [17]], [[True], [False]]))
    assert replay.sample(5, Progress()).batch.rewards[0, 0] == 16
    assert replay.sample(5, Progress()).batch.rewards[0].min() >= 6  # the others have made room


@pytest.mark.row("J01")
def test_three_in_two_out():
    replay = filled(make(1000), [1, 2, 3])
    sample = replay.sample(2, Progress())
    assert replay.size_steps == 3
    assert sample.steps == 2
    assert set(sample.batch.rewards[0].tolist()) <= {1, 2, 3}
    now, then = sample.batch.observations["observation"][..., 0]
    assert now.tolist() == (100 * sample.batch.rewards[0]).tolist()
    assert then.tolist() == (now + 100).tolist()
    assert sample.batch.bootstrap_steps.tolist() == [[1, 1]]


@pytest.mark.row("D130", "J02")
@pytest.mark.parametrize(("last", "left"), [(3, {1, 2, 3}), (4, {2, 3, 4}), (5, {3, 4, 5})])
def test_the_oldest_makes_room(last, left):
    replay = filled(make(3), range(1, last + 1))
    assert (drawn(replay), replay.size_steps) == (left, 3)


def test_an_unroll_makes_room_as_a_whole():
    """Three of two rows and two environments; of the first nothing is left when the fourth comes."""
    replay = make(12, 2, 2)
    for number in range(4):
        replay.insert(unroll_of(10 * number + np.arange(4).reshape(2, 2)))
    assert drawn(replay, 500) == {10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33}


def test_rows_that_are_not_valid_are_neither_counted_nor_drawn():
    replay = make(8, 2, 2)
    assert replay.insert(unroll_of([[1, 2], [3, 4]], [[True, False], [False, True]])) == 2
    assert (replay.size_steps, drawn(replay)) == (2, {1, 4})
    assert replay.limiter.inserted_steps == 2


@pytest.mark.row("J03")
def test_priorities_reach_the_item_they_are_of():
    replay = filled(prioritized(4), [1, 2, 3])
    sample = replay.sample(3, Progress())  # stratified over equal priorities: each once
    assert sample.batch.rewards[0].tolist() == [1, 2, 3]
    assert sample.batch.importance_weights.tolist() == [1, 1, 1]
    replay.reprioritise(sample.items, np.float32([0, 10, 0]))
    assert drawn(replay) == {2}
    replay.insert(unroll_of([[4]]))  # as likely as the highest ever
    counts = np.bincount(replay.sample(1000, Progress()).batch.rewards[0].astype(int), minlength=5)
    assert counts.tolist() == [0, 0, 500, 0, 500]


def test_what_is_told_of_items_that_have_made_room_reaches_nobody():
    replay = filled(prioritized(2), [1, 2])
    old = replay.sample(2, Progress())
    filled(replay, [3])  # in the place of 1
    replay.reprioritise(old.items, np.float32([1000, 5]))
    weights = replay.state_arrays()["sampler/weights"]
    assert weights.tolist() == [1.0, 5.0]  # of 3 and of 2
    assert replay.sample(6, Progress()).items.tolist() == [2, 1, 1, 1, 1, 1]  # 3 is in the first place


@pytest.mark.row("J08")
def test_nothing_is_told_of_items_before_they_were_there():
    replay = prioritized(4)
    with pytest.raises(ValueError, match="were never in the replay memory"):
        replay.reprioritise(np.array([0]), np.float32([1]))
    with pytest.raises(ValueError, match="is empty"):
        replay.sample(1, Progress())
    filled(replay, [1])
    for item in (1, -1):
        with pytest.raises(ValueError, match="were never in the replay memory"):
            replay.reprioritise(np.array([item]), np.float32([1]))
    with pytest.raises(ValueError, match="items"):
        replay.reprioritise(np.array([0]), np.float32([1, 2]))


@pytest.mark.row("J09")
def test_sequences_are_consecutive_and_never_reach_from_the_newest_unroll_to_the_oldest():
    """Four unrolls of three rows and two environments in a ring of three."""
    replay = make(18, 3, 2, item={"kind": "sequence"})
    for number in range(4):
        rows = 100 * number + np.arange(3)[:, None] + np.array([[0, 50]])
        replay.insert(unroll_of(rows, state=number))
    sample = replay.sample(400, Progress())
    rewards = sample.batch.rewards  # [3, 400]
    assert np.array_equal(np.diff(rewards, axis=0), np.ones((2, 400)))
    assert set(rewards[0].tolist()) == {100, 150, 200, 250, 300, 350}
    assert np.array_equal(sample.batch.recurrent_state["h"][:, 0], rewards[0] // 100)
    assert sample.batch.observations["observation"].shape == (4, 400, 1)
    assert (sample.steps, replay.limiter.sampled_steps, replay.steps_of(400)) == (1200, 1200, 1200)


@pytest.mark.row("J09")
@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_a_memory_without_terminations_samples_all_other_steps(tmp_path, kind):
    """Episodes of rewards 1 to 3, 4 and 5 (which hits a limit), and 6, which terminates at once."""

    def made():
        return make(8, 8, 1, item={"terminations": False}, sampler={"kind": kind})

    replay = made()
    unroll = unroll_of(
        [[1], [2], [3], [0], [4], [5], [0], [6]], [[True]] * 3 + [[False]] + [[True]] * 2 + [[False], [True]]
    )
    unroll.terminated[[2, 7]] = True
    unroll.truncated[5] = True
    assert replay.insert(unroll) == 6
    assert drawn(replay) == {1, 2, 4, 5}
    other = made()
    restore(other, replay.state_arrays(), tmp_path)
    assert drawn(other) == {1, 2, 4, 5}
    assert other.size_steps == replay.size_steps == 6
    assert other.size_episodes == replay.size_episodes == 3


@pytest.mark.row("P07.1")
def test_it_counts_the_ends_of_episodes_that_it_holds(tmp_path):
    """The row after an end is not valid; it may be the first of the next unroll. An agent may wait over their seam."""
    replay = make(8, 2, 2)  # two unrolls
    assert replay.size_episodes == 0
    replay.insert(unroll_of([[1, 1], [0, 1]], [[True, True], [False, True]]))
    assert replay.size_episodes == 1
    waits = [[False, False], [False, True]]  # the first agent, from one unroll into the next
    replay.insert(unroll_of([[0, 0], [0, 1]], waits, truncated=[[False, False], [False, True]]))
    assert replay.size_episodes == 2
    restored = make(8, 2, 2)
    restored.insert(unroll_of([[0, 0], [1, 1]], [[False, False], [True, True]]))
    restore(restored, replay.state_arrays(), tmp_path)
    assert restored.size_episodes == 2
    replay.insert(unroll_of([[1, 1], [1, 1]]))
    assert replay.size_episodes == 1


def test_a_memory_of_terminations_alone_stays_empty():
    replay = make(2, item={"terminations": False})
    unroll = unroll_of([[1]])
    unroll.terminated[:] = True
    replay.insert(unroll)
    assert replay.is_empty


def test_a_column_without_a_valid_row_is_not_drawn():
    replay = make(4, 1, 2, item={"kind": "sequence"})
    replay.insert(unroll_of([[1, 2]], [[False, True]], state=0))
    assert drawn(replay) == {2}


@pytest.mark.row("J13", "Q05")
@pytest.mark.parametrize(
    ("item", "sampler"),
    [
        *itertools.product(
            ({"n_step": 2}, {"kind": "sequence"}),
            ({"kind": "uniform"}, {"kind": "prioritized"}, {"kind": "prioritized", "new_items_first": True}),
        ),
        ({"n_step": 2}, {"kind": "balanced"}),
    ],
)
@pytest.mark.parametrize("unrolls", [2, 7])  # before and after the ring is full
def test_a_restored_memory_goes_on_bit_by_bit_and_what_was_there_is_gone(tmp_path, item, sampler, unrolls):
    def unroll(number):
        return unroll_of(100 * number + np.arange(6).reshape(3, 2), state=number if "kind" in item else None)

    def made(seed):
        return make(30, 3, 2, seed, sampler=sampler, item=item)

    one, other = made(0), made(1)
    for number in range(unrolls):
        one.insert(unroll(number))
    for number in range(3):
        other.insert(unroll(1000 + number))
    sample = one.sample(4, Progress())
    one.reprioritise(sample.items, np.float32([1, 5, 2, 7]))
    restore(other, one.state_arrays(), tmp_path)
    assert other.size_steps == one.size_steps == 6 * min(unrolls, 5)
    assert (other.limiter.inserted_steps, other.limiter.sampled_steps) == (6 * unrolls, sample.steps)
    for step in range(3):
        mine, theirs = one.sample(16, Progress()), other.sample(16, Progress())
        assert np.array_equal(mine.items, theirs.items)
        pairs = zip(nest.leaves(mine.batch._asdict()), nest.leaves(theirs.batch._asdict()), strict=True)
        for (name, left), (_, right) in pairs:
            assert left.tobytes() == right.tobytes(), name
        for replay in (one, other):
            replay.reprioritise(mine.items, np.arange(16, dtype=np.float32))
            replay.insert(unroll(50 + step))
    assert theirs.batch.rewards.max() < 100_000
    states = [replay.state_arrays() for replay in (one, other)]
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[0])


def test_what_is_saved_is_numbers_and_only_what_is_there():
    replay = filled(make(1000), [1, 2])
    state = replay.state_arrays()
    assert {array.dtype.kind for array in state.values()} <= set("biuf")
    assert state["ring/rewards"].shape == (2, 1, 1)
    assert json.loads(state["generator"].tobytes())["bit_generator"] == "PCG64"


@pytest.mark.parametrize(
    "other",
    [
        {"capacity": 5},
        {"length": 2},
        {"sampler": {"kind": "prioritized"}},
        {"item": {"n_step": 3}},
        {"item": {"kind": "sequence"}},
        {"discount": 0.5},
        {"item": {"terminations": False}},
    ],
)
def test_a_memory_of_another_kind_is_refused(tmp_path, other):
    state = filled(make(4), [1]).state_arrays()
    with pytest.raises(CheckpointError, match="configure it as it was, or remove the file"):
        restore(make(**{"capacity": 4, **other}), state, tmp_path)


def test_a_memory_of_other_spaces_is_refused(tmp_path):
    state = filled(make(4), [1]).state_arrays()
    state["ring/observations/0"] = state["ring/observations/0"].astype(np.float64)
    with pytest.raises(CheckpointError, match=r"observations/0 of float64 \(1, 2, 1, 1\), not of float32"):
        restore(make(4), state, tmp_path)


def test_sequences_hold_no_sums_so_that_their_discount_may_change(tmp_path):
    one = make(4, item={"kind": "sequence"})
    one.insert(unroll_of([[1]], state=0))
    other = make(4, item={"kind": "sequence"}, discount=0.5)
    restore(other, one.state_arrays(), tmp_path)
    assert other.size_steps == 1


def test_a_memory_of_other_sequences_is_refused(tmp_path):
    """Sequences of six steps each, the same number of them with and without a burn-in."""
    state = make(12, 6, item={"kind": "sequence", "length_steps": 4, "overlap_steps": 2}).state_arrays()
    for other in ({"length_steps": 2}, {"length_steps": 4, "overlap_steps": 2, "burn_in_steps": 1}):
        with pytest.raises(CheckpointError, match="configure it as it was, or remove the file"):
            restore(make(12, 6, item={"kind": "sequence", **other}), state, tmp_path)


def test_what_does_not_fit_changes_nothing(tmp_path):
    state = filled(make(4), [1, 2]).state_arrays()
    state["ring/valid"] = state["ring/valid"].astype(np.uint8)  # after rewards, say
    replay = filled(make(4), [7, 8])
    with pytest.raises(CheckpointError, match="ring/valid of uint8"):
        restore(replay, state, tmp_path)
    assert drawn(replay) == {7, 8}


def test_a_memory_that_refills_is_saved_without_unrolls(tmp_path):
    """The memory holds the steps 3 ... 6 of 0 ... 6, in the slots 3, 0, 1, 2."""
    replay = filled(prioritized(4, refills=True), range(7))
    items = np.arange(3, 7)
    replay.reprioritise(items, np.array([0.0, 0.0, 9.0, 1.0], np.float32))
    saved = replay.state_arrays()
    assert not [name for name in saved if name.startswith("ring/")]
    other = prioritized(4, refills=True)
    restore(other, saved, tmp_path)
    assert other.begin_at(0) == 3
    filled(other, [3, 4, 5])
    assert drawn(other) == {3, 4, 5}  # not all of them are there yet
    filled(other, [6])
    assert np.array_equal(other.state_arrays()["sampler/weights"], saved["sampler/weights"])
    assert drawn(other) == {5, 6}
    filled(other, [7])  # in place of 3
    assert drawn(other) == {5, 6, 7}
    assert prioritized(4, refills=True).begin_at(5) == 5


def test_priorities_of_other_steps_are_refused(tmp_path):
    saved = filled(prioritized(2, refills=True), [1, 2]).state_arrays()
    replay = prioritized(2, refills=True)
    restore(replay, saved, tmp_path)
    filled(replay, [1])
    with pytest.raises(CheckpointError, match=r"priorities or choices are not of this data: .*; resume with the data"):
        replay.insert(unroll_of([[2]], valid=[[False]]))


def test_restoring_takes_no_second_copy_of_the_ring(tmp_path):
    spec = EnvSpec("Wide", {"observation": ArraySpec((1000,), "float32")}, {"action": DiscreteSpec(2)})
    schema = UnrollSchema.of(spec, 10, 1, {})
    parameters = ReplayParameters(capacity_steps=2000, min_size_steps=1)

    def empty():
        return Replay(parameters, schema, discount=0.9, seeds=np.random.SeedSequence(0))

    unroll = unroll_of(np.zeros((10, 1)))
    unroll = dataclasses.replace(unroll, observations={"observation": np.ones((11, 1, 1000), np.float32)})
    one, other = empty(), empty()
    for _ in range(200):
        one.insert(unroll)
    assert replay_bytes(parameters, schema) > 8_800_000
    restore(empty(), one.state_arrays(), tmp_path)
    tracemalloc.start()
    try:
        with (tmp_path / "replay.npz").open("rb") as stored, npz.opened(stored) as saved:
            other.restore(saved)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4_000_000  # pieces of 1 MiB
    assert other.size_steps == 2000


@pytest.mark.parametrize(
    ("item", "sampler", "of_sampler"),
    [
        ("transition", {"kind": "uniform"}, 8000),
        # Nodes of 16 on four levels, of sums and of least weights.
        ("transition", {"kind": "prioritized"}, 2 * 8 * 16 * (500 + 32 + 2 + 1)),
        ("transition", {"kind": "prioritized", "new_items_first": True}, 2 * 8 * 16 * (500 + 32 + 2 + 1) + 8000),
        ("sequence", {"kind": "uniform"}, 2000),
        ("sequence", {"kind": "prioritized"}, 2 * 8 * 16 * (125 + 8 + 1)),
    ],
)
def test_what_a_full_memory_takes(item, sampler, of_sampler):
    """1,000 unrolls of T = 4, B = 2: 5 x 2 observations of 4 bytes, and per step 4 of action and 11 or 15 besides."""
    schema = UnrollSchema.of(SPEC, 4, 2, {})
    parameters = ReplayParameters.model_validate({"capacity_steps": 8005, "item": {"kind": item}, "sampler": sampler})
    of_step = 15 if item == "sequence" else 19
    assert parameters.slots(8) == 1000
    expected = 1000 * (40 + 8 * of_step + 24) + of_sampler
    assert replay_bytes(parameters, schema) == expected
    replay = Replay(parameters, schema, discount=0.9, seeds=np.random.SeedSequence(0))
    assert sum(array.nbytes for array in arrays_in(replay)) == expected


@pytest.mark.parametrize("item", ["transition", "sequence"])
def test_what_a_batch_takes_at_least(item):
    """Stacks of 3 frames are whole in every row of a batch; only the length of each bootstrap is not counted."""
    stacks = ArraySpec((2, 2, 3), "uint8", frames=3)
    schema = UnrollSchema.of(dataclasses.replace(SPEC, observations={"observation": stacks}), 4, 2, {})
    parameters = ReplayParameters.model_validate({"capacity_steps": 80, "item": {"kind": item}, "min_size_steps": 1})
    replay = Replay(parameters, schema, discount=0.9, seeds=np.random.SeedSequence(0))
    frames = np.zeros((7, 2, 2, 2, 1), np.uint8)
    replay.insert(dataclasses.replace(unroll_of(np.zeros((4, 2))), observations={"observation": frames}))
    batch = replay.sample(5, Progress()).batch._replace(bootstrap_steps=None)
    assert sum(array.nbytes for _, array in nest.leaves(batch)) == batch_bytes(parameters, schema, 5)


def test_what_a_balanced_memory_takes_whatever_comes():
    """Classes that grow and shrink again; `arrays_in` finds no more than was counted."""
    parameters = ReplayParameters.model_validate(
        {"capacity_steps": 800, "min_size_steps": 1, "sampler": {"kind": "balanced"}}
    )
    schema = UnrollSchema.of(SPEC, 4, 2, {})
    replay, rng, most = (
        Replay(parameters, schema, discount=0.9, seeds=np.random.SeedSequence(0)),
        np.random.default_rng(0),
        0,
    )
    for number in range(400):
        unroll = unroll_of(np.zeros((4, 2)))
        unroll.actions["action"][:] = rng.random((4, 2)) < (0.01 if number // 100 % 2 else 0.99)
        replay.insert(unroll)
        most = max(most, sum(array.nbytes for array in arrays_in(replay)))
    assert 0.8 * replay_bytes(parameters, schema) < most <= replay_bytes(parameters, schema)


def arrays_in(held):
    """All arrays that an object of this package holds, at any depth."""
    if isinstance(held, np.ndarray):
        yield held
    elif isinstance(held, dict | list):
        for each in held.values() if isinstance(held, dict) else held:
            yield from arrays_in(each)
    elif type(held).__module__.startswith("distrl.") and hasattr(held, "__dict__"):
        yield from arrays_in(vars(held))
