"""Hindsight: goals of the same episode, and rewards as the environment pays them.

Goals are numbers of one dimension. Every achieved goal has its own, so that its row is known wherever it turns up.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.config.replay import ReplayParameters
from distrl.config.schedules import Progress
from distrl.data_store import npz
from distrl.errors import CheckpointError, ConfigError
from distrl.replay.hindsight import episode_bounds
from distrl.replay.memory import Replay, replay_bytes
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, OneHot, Unroll, UnrollHeader
from distrl.unroll_schema import UnrollSchema

GOAL = ArraySpec((1,), "float32")
SPEC = EnvSpec(
    "Goals",
    {"achieved_goal": GOAL, "desired_goal": GOAL, "observation": ArraySpec((1,), "float32")},
    {"action": DiscreteSpec(2)},
)
NOWHERE = -1.0
"""A goal that is never achieved."""


def unroll_of(ended, valid=None, terminated=None, first=0, desired=NOWHERE, rewards=None):
    """Episodes truncated where `ended`, [T, B]. Row t of environment b achieves first + 100 b + t, or what is given."""
    ended = np.array(ended, np.bool_)
    length, environments = ended.shape
    valid = np.ones(ended.shape, np.bool_) if valid is None else np.array(valid, np.bool_)
    terminated = np.zeros(ended.shape, np.bool_) if terminated is None else np.array(terminated, np.bool_)
    achieved = first + np.arange(length + 1)[:, None] + 100 * np.arange(environments)
    desired = np.broadcast_to(np.float32(desired), achieved.shape)
    if rewards is None:
        rewards = np.where(achieved[1:] == desired[1:], 0.0, -1.0)
    return Unroll(
        header=UnrollHeader(0, 1, 0, 1, int(valid.sum())),
        observations={
            "achieved_goal": achieved[..., None].astype(np.float32),
            "desired_goal": desired[..., None].astype(np.float32),
            "observation": -achieved[..., None].astype(np.float32),
        },
        actions={"action": np.zeros(ended.shape, np.int32)},
        rewards=np.where(valid, rewards, 0.0).astype(np.float32),
        terminated=terminated,
        truncated=ended & ~terminated,
        valid=valid,
        behaviour_log_probabilities=np.zeros(ended.shape, np.float32),
        recurrent_state={},
        episode_returns=np.zeros(0, np.float32),
        episode_lengths_steps=np.zeros(0, np.int32),
    )


def make(length, environments=1, slots=1, seed=0, sampler="uniform", **hindsight):
    schema = UnrollSchema.of(SPEC, length, environments, {})
    parameters = ReplayParameters.model_validate(
        {
            "capacity_steps": slots * length * environments,
            "min_size_steps": 1,
            "sampler": {"kind": sampler},
            "hindsight": None if hindsight.get("strategy", 0) is None else hindsight,
        }
    )
    return Replay(parameters, schema, discount=0.9, seeds=np.random.SeedSequence(seed), goal=GOAL)


def columns(sample):
    """For each sampled transition: its row (by what it achieved before), and its goal."""
    now, goal = (sample.batch.observations[name][0, :, 0] for name in ("achieved_goal", "desired_goal"))
    assert np.array_equal(sample.batch.observations["desired_goal"][1, :, 0], goal)
    return now.astype(int), goal.astype(int)


# -------------------------------------------------------------------------------------------------- bounds of episodes


def slow_bounds(ends, valid, t, b):
    """First and last row of the episode of row t, step by step."""
    first = last = t
    while first > 0 and valid[first - 1, b] and not ends[first - 1, b]:
        first -= 1
    while last + 1 < len(ends) and valid[last + 1, b] and not ends[last, b]:
        last += 1
    return first, last


def random_flags(seed, length, environments):
    """Episodes end at random, mostly with a row that is not valid after them, as a lost life has none."""
    rng = np.random.default_rng(seed)
    terminated, truncated, valid = (np.zeros((length, environments), np.bool_) for _ in range(3))
    for b in range(environments):
        resets = rng.random() < 0.3
        for t in range(length):
            valid[t, b] = not resets
            terminated[t, b], truncated[t, b] = (valid[t, b] and rng.random() < share for share in (0.2, 0.15))
            resets = (terminated[t, b] or truncated[t, b]) and rng.random() < 0.8
    return terminated, truncated, valid


@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 12), environments=st.integers(1, 3))
@settings(max_examples=60)
def test_bounds_of_episodes_are_those_of_the_slow_twin(seed, length, environments):
    terminated, truncated, valid = random_flags(seed, length, environments)
    before = (terminated.copy(), truncated.copy(), valid.copy())
    first, last = episode_bounds(terminated, truncated, valid)
    assert first.dtype == last.dtype == np.int32
    for t, b in np.argwhere(valid):
        assert (first[t, b], last[t, b]) == slow_bounds(terminated | truncated, valid, t, b)
    assert all(map(np.array_equal, before, (terminated, truncated, valid)))


def test_bounds_by_hand():
    """Two steps and the end, a row that resets, an episode that the unroll cuts; and an episode without any end."""
    ended = np.array([[0, 0], [1, 0], [0, 0], [0, 0], [0, 0]], np.bool_)
    valid = np.array([[1, 1], [1, 1], [0, 1], [1, 1], [1, 1]], np.bool_)
    first, last = episode_bounds(np.zeros_like(ended), ended, valid)
    at = [0, 1, 3, 4]
    assert (first[at, 0].tolist(), last[at, 0].tolist()) == ([0, 0, 3, 3], [1, 1, 4, 4])
    assert (first[:, 1].tolist(), last[:, 1].tolist()) == ([0] * 5, [4] * 5)


# ----------------------------------------------------------------------------------------------------------- strategies


def allowed(strategy, unroll, t, b):
    """The rows in which the new goal of row t may have been achieved; after its step, so that t becomes t + 1."""
    first, last = slow_bounds(unroll.terminated | unroll.truncated, unroll.valid, t, b)
    rows = {"final": range(last, last + 1), "future": range(t, last + 1), "episode": range(first, last + 1)}[strategy]
    return [row + 1 for row in rows]


@pytest.mark.row("D135")
def test_three_steps_and_the_final_goal():
    """k = 4: of 15 sampled transitions 12 have the last achieved goal on average, 3 their own."""
    replay = make(4, strategy="final", ratio=4)
    replay.insert(unroll_of([[0], [0], [1], [0]], [[1], [1], [1], [0]]))
    row, goal = columns(replay.sample(15_000, Progress()))
    assert set(row.tolist()) == {0, 1, 2}
    assert set(goal.tolist()) == {3, -1}
    assert (goal == 3).sum() == pytest.approx(12_000, abs=4 * np.sqrt(15_000 * 0.8 * 0.2))


@pytest.mark.row("D135")
@pytest.mark.parametrize("ratio", [0.25, 1.0, 4.0, 1e9])
def test_so_many_transitions_have_another_goal_for_each_with_its_own(ratio):
    replay = make(10, ratio=ratio)
    replay.insert(unroll_of([[0]] * 10))
    _, goal = columns(replay.sample(20_000, Progress()))
    share = ratio / (ratio + 1.0)
    assert np.mean(goal != -1) == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 20_000) + 1e-9)


@pytest.mark.row("D135")
@pytest.mark.parametrize("strategy", ["final", "future", "episode"])
def test_all_goals_of_a_strategy_are_equally_likely(strategy):
    """Two episodes of 3 and 4 steps; 4 deviations of a binomial distribution."""
    unroll = unroll_of([[t == 2] for t in range(8)], [[t != 3] for t in range(8)])
    replay = make(8, strategy=strategy, ratio=1e9)
    replay.insert(unroll)
    row, goal = columns(replay.sample(30_000, Progress()))
    for t in (0, 1, 2, 4, 5, 6, 7):
        found = goal[row == t]
        rows = allowed(strategy, unroll, t, 0)
        assert set(found.tolist()) == set(rows)
        share, most = 1.0 / len(rows), 4.0 * np.sqrt(0.25 / len(found))
        for each in rows:
            assert np.mean(found == each) == pytest.approx(share, abs=most)


@pytest.mark.row("D135")
def test_random_goals_are_those_of_any_stored_step():
    """Three of four unrolls are left, with a row that resets in each."""
    replay = make(4, slots=3, strategy="random", ratio=1e9)
    for number in range(4):
        replay.insert(unroll_of([[0], [1], [0], [0]], [[1], [1], [0], [1]], first=1000 * number))
    _, goal = columns(replay.sample(5_000, Progress()))
    expected = {1000 * number + row + 1 for number in (1, 2, 3) for row in (0, 1, 3)}
    assert set(goal.tolist()) == expected
    counts = [np.mean(goal == each) for each in expected]
    np.testing.assert_allclose(counts, 1 / 9, atol=4 * np.sqrt(8 / 81 / 5_000))


def test_random_goals_before_the_memory_is_full_are_of_what_is_there():
    replay = make(2, slots=5, strategy="random", ratio=1e9)
    replay.insert(unroll_of([[0], [0]]))
    assert set(columns(replay.sample(500, Progress()))[1].tolist()) == {1, 2}


@pytest.mark.row("D135")
@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
@pytest.mark.parametrize("strategy", ["final", "future", "episode"])
@given(seed=st.integers(0, 2**32 - 1), terminates=st.booleans())
@settings(max_examples=15)
def test_relabelled_transitions_are_what_the_environment_would_have_shown(strategy, sampler, seed, terminates):
    """Never across an episode's end; reward and termination anew; all else as it was stored, also in the memory."""
    rng = np.random.default_rng(seed)
    kept = []
    replay = make(9, 2, slots=2, sampler=sampler, strategy=strategy, ratio=2.0, terminates=terminates)
    for number in range(3):
        terminated, truncated, valid = random_flags(rng.integers(2**32), 9, 2)
        # One of the states that are visited is the goal; where goals end episodes, this ends there.
        desired = rng.integers(10) + 100 * np.arange(2) + 1000 * number
        reached = (np.arange(1, 10)[:, None] + 100 * np.arange(2) + 1000 * number) == desired
        terminated |= reached & valid & terminates
        kept.append(unroll_of(terminated | truncated, valid, terminated, first=1000 * number, desired=desired))
        replay.insert(kept[-1])
    if replay.is_empty:
        return
    sample = replay.sample(64, Progress())
    batch, (now, goal) = sample.batch, columns(sample)
    for column in range(64):
        number, rest = divmod(now[column], 1000)
        b, t = divmod(rest, 100)
        unroll = kept[number]
        achieved, own = t + 1 + 100 * b + 1000 * number, unroll.observations["desired_goal"][t, b, 0]
        if goal[column] != own:
            rows = allowed(strategy, unroll, t, b)
            assert goal[column] in [row + 100 * b + 1000 * number for row in rows]
        assert batch.rewards[0, column] == (0.0 if achieved == goal[column] else -1.0)
        for_another_reason = unroll.terminated[t, b] and not (terminates and achieved == own)
        expected = for_another_reason or (terminates and achieved == goal[column])
        assert batch.terminated[0, column] == expected
        assert batch.truncated[0, column] == unroll.truncated[t, b]
        assert batch.observations["achieved_goal"][:, column, 0].tolist() == [achieved - 1, achieved]
        assert batch.observations["observation"][:, column, 0].tolist() == [1 - achieved, -achieved]
        assert sample.items[column] == (number * 9 + t) * 2 + b
    ring = replay._ring.arrays
    for number in (1, 2):
        assert np.array_equal(ring["observations/1"][number % 2], kept[number].observations["desired_goal"])
        assert np.array_equal(ring["rewards"][number % 2], kept[number].rewards)


# --------------------------------------------------------------------------------------------------------- state, size


def restored(replay, arrays, tmp_path):
    with (tmp_path / "replay.npz").open("wb") as file:
        npz.write(file, arrays)
    with (tmp_path / "replay.npz").open("rb") as stored, npz.opened(stored) as saved:
        replay.restore(saved)
    return replay


@pytest.mark.row("D135")
@pytest.mark.parametrize("strategy", ["final", "future", "episode", "random"])
@pytest.mark.parametrize("unrolls", [2, 5])  # before and after the ring is full
def test_a_restored_memory_goes_on_bit_by_bit(tmp_path, strategy, unrolls):
    one = make(6, 2, slots=3, strategy=strategy)
    for number in range(unrolls):
        ended, valid = (
            [[0, 0], [1, 0], [0, 0], [0, 1], [0, 0], [0, 0]],
            [[1, 1], [1, 1], [0, 1], [1, 1], [1, 0], [1, 1]],
        )
        one.insert(unroll_of(ended, valid, first=1000 * number))
    one.sample(7, Progress())
    other = restored(make(6, 2, slots=3, seed=1, strategy=strategy), one.state_arrays(), tmp_path)
    for number in range(3):
        mine, theirs = one.sample(32, Progress()), other.sample(32, Progress())
        assert np.array_equal(mine.items, theirs.items)
        for name, array in mine.batch.observations.items():
            assert array.tobytes() == theirs.batch.observations[name].tobytes()
        assert mine.batch.rewards.tobytes() == theirs.batch.rewards.tobytes()
        for replay in (one, other):
            replay.insert(unroll_of([[0, 0]] * 6, first=5000 + 1000 * number))


def test_a_saved_memory_may_lose_hindsight_and_not_gain_it(tmp_path):
    with_it, without = make(2, strategy="final"), make(2, strategy=None)
    for replay in (with_it, without):
        replay.insert(unroll_of([[0], [0]]))
    assert set(
        columns(restored(make(2, strategy=None), with_it.state_arrays(), tmp_path).sample(99, Progress()))[1]
    ) == {-1}
    with pytest.raises(CheckpointError, match="configure it as it was, or remove the file"):
        restored(make(2, strategy="final"), without.state_arrays(), tmp_path)


def test_bounds_take_eight_bytes_a_step():
    schema = UnrollSchema.of(SPEC, 4, 2, {})
    sizes = [
        replay_bytes(ReplayParameters.model_validate({"capacity_steps": 80, "min_size_steps": 1} | more), schema)
        for more in ({}, {"hindsight": {}})
    ]
    assert sizes[1] - sizes[0] == 80 * 8
    replay = make(4, 2, slots=10, strategy="future")
    assert sum(array.nbytes for array in replay._ring.arrays.values()) + 10 * 24 + 80 == sizes[1]


# ------------------------------------------------------------------------------------------- the environment's own pay


def test_a_reward_that_the_environment_does_not_pay_ends_the_training():
    replay = make(8)
    with pytest.raises(ConfigError) as error:
        replay.insert(unroll_of([[0]] * 8, rewards=np.full((8, 1), 0.5), desired=[6.0]))
    assert str(error.value) == (
        "algorithm.replay.hindsight.reward: kind sparse makes -1 of a step for which the environment pays 0.5, 5 from "
        "its goal; 8 of 8 steps differ: set reward and tolerance (0) as its compute_reward has them, or hindsight "
        "to null"
    )
    assert replay.is_empty


def test_one_step_in_a_thousand_may_fall_on_the_other_side_of_the_tolerance():
    """Three in addition; so the sixth of 2,000 steps is one too many."""
    replay = make(1000)
    rewards = np.full((1000, 1), -1.0)
    rewards[[10, 20, 30, 40]] = 0.0
    replay.insert(unroll_of([[0]] * 1000, rewards=rewards))
    rewards[40] = -1.0
    with pytest.raises(ConfigError, match="7 of 2000 steps differ"):
        replay.insert(unroll_of([[0]] * 1000, rewards=rewards + 0.0))


def test_rewards_of_rows_that_are_not_valid_are_not_compared():
    valid = [[t % 2 == 0] for t in range(16)]
    ended = [[t % 2 == 0] for t in range(16)]
    replay = make(16)
    assert replay.insert(unroll_of(ended, valid)) == 8
    assert replay.insert(unroll_of(ended, np.zeros((16, 1)))) == 0


def test_dense_rewards_are_compared_with_the_precision_of_their_goals():
    """float32 numbers around 4000 are 2^-12 apart; the environment pays for exact ones."""
    replay = make(8, reward={"kind": "distance"})
    exact = np.arange(4097, 4105)[:, None] - 4000.123456789
    unroll = unroll_of([[0]] * 8, first=4096, desired=[4000.123456789], rewards=-exact)
    replay.insert(unroll)
    too_low = unroll_of([[0]] * 8, first=4096, desired=[4000.0], rewards=-exact - 0.5)
    with pytest.raises(
        ConfigError, match=r"kind distance makes -97 of a step for which the environment pays -97\.3765"
    ):
        make(8, reward={"kind": "distance"}).insert(too_low)


def test_goals_that_do_not_end_episodes_are_noticed():
    replay = make(2, slots=9, terminates=True)
    unroll = unroll_of([[0], [0]], desired=[1.0])  # reached by the first of two steps
    for _ in range(3):
        replay.insert(unroll)
    with pytest.raises(ConfigError, match="terminates: true, and 4 steps reached their goal without the end of the"):
        replay.insert(unroll)


def test_a_limit_at_the_goal_is_no_contradiction():
    replay = make(1, slots=9, terminates=True)
    for _ in range(9):
        replay.insert(unroll_of([[1]], desired=[1.0]))  # truncated


def test_goals_that_end_episodes_are_noticed():
    def inserted(*unrolls):
        replay = make(1, slots=20)
        for unroll in unrolls:
            replay.insert(unroll)

    at_goal = unroll_of([[1]], terminated=[[1]], desired=[1.0])
    elsewhere = unroll_of([[1]], terminated=[[1]])
    without_end = unroll_of([[0]], desired=[1.0])
    inserted(*[at_goal] * 9)
    inserted(elsewhere, *[at_goal] * 15)
    inserted(without_end, *[at_goal] * 15)
    with pytest.raises(
        ConfigError, match="terminates: false, and the environment ends episodes at their goal, 10 so far"
    ):
        inserted(*[at_goal] * 10)


@pytest.mark.parametrize(("tolerance", "reward"), [(0.0, -1.0), (1.4, -1.0), (1.5, 0.0)])
def test_goals_that_are_categories_are_compared_one_hot(tolerance, reward):
    """Neighbouring numbers are no nearer than others: different goals are sqrt(2) apart, as one-hot rows are."""
    goal = ArraySpec((1,), "uint8", 0.0, 8.0, one_hot=OneHot((), (9,), (0,)))
    schema = UnrollSchema.of(replace(SPEC, observations=dict.fromkeys(SPEC.observations, goal)), 2, 1, {})
    parameters = ReplayParameters.model_validate(
        {
            "capacity_steps": 2,
            "min_size_steps": 1,
            "hindsight": {"ratio": 1e9, "strategy": "final", "tolerance": tolerance},
        }
    )
    replay = Replay(parameters, schema, discount=0.9, seeds=np.random.SeedSequence(0), goal=goal)
    unroll = unroll_of([[False], [True]], desired=8.0, rewards=np.full((2, 1), reward))
    whole = {name: np.abs(rows).astype(np.uint8) for name, rows in unroll.observations.items()}
    replay.insert(replace(unroll, observations=whole))
    batch = replay.sample(50, Progress()).batch
    assert batch.observations["desired_goal"].dtype == np.uint8
    assert set(batch.observations["desired_goal"].flat) == {2}  # achieved in the last step
    reached = batch.observations["achieved_goal"][1, :, 0] == 2
    assert 0 < reached.sum() < 50
    np.testing.assert_array_equal(batch.rewards[0], np.where(reached, 0.0, reward))
