"""Unrolls hold what happened, rows join without a seam, and episodes are counted at their true ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.actors.unroll import UnrollBuilder
from distrl.environments.vector import Step
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, Unroll

SPEC = EnvSpec("toy", {"observation": ArraySpec((1,), "float32")}, DiscreteSpec(4))


def observe(*values: float) -> dict[str, np.ndarray]:
    return {"observation": np.array(values, np.float32)[:, None]}


def a_step(observations, rewards, ended=(), valid=None) -> Step:
    count = len(rewards)
    terminated = np.isin(np.arange(count), ended)
    return Step(
        observe(*observations),
        np.array(rewards, np.float32),
        terminated,
        np.zeros(count, bool),
        np.ones(count, bool) if valid is None else np.array(valid),
    )


def fill(builder: UnrollBuilder, steps: list[Step]) -> None:
    for row, step in enumerate(steps):
        count = len(step.rewards)
        builder.add(np.full(count, row, np.int32), np.full(count, -0.5 * row, np.float32), step)


def test_rows_hold_what_happened():
    builder = UnrollBuilder(SPEC, 2, 2)
    builder.begin(observe(0, 10), {})
    fill(builder, [a_step([1, 11], [0.5, 1.5]), a_step([2, 12], [2.5, 3.5])])
    unroll = builder.close((3, 2), 7, 5, {})
    assert unroll.observations["observation"][..., 0].tolist() == [[0, 10], [1, 11], [2, 12]]
    assert unroll.actions.tolist() == [[0, 0], [1, 1]]
    assert unroll.behaviour_log_probabilities.tolist() == [[0, 0], [-0.5, -0.5]]
    assert unroll.rewards.tolist() == [[0.5, 1.5], [2.5, 3.5]]
    header = unroll.header
    assert (header.actor, header.incarnation, header.sequence, header.weights_version, header.env_steps) == (
        3,
        2,
        7,
        5,
        4,
    )


def test_the_next_unroll_begins_with_the_last_row_and_leaves_the_first_untouched():
    builder = UnrollBuilder(SPEC, 1, 1)
    builder.begin(observe(0), {})
    fill(builder, [a_step([1], [1])])
    first = builder.close((0, 1), 0, 1, {"h": np.array([[2.0]])})
    fill(builder, [a_step([2], [1])])
    second = builder.close((0, 1), 1, 1, {})
    assert first.observations["observation"][:, 0, 0].tolist() == [0, 1]
    assert second.observations["observation"][:, 0, 0].tolist() == [1, 2]
    assert first.recurrent_state == {}
    assert second.recurrent_state["h"].tolist() == [[2.0]]


def test_closing_early_is_refused():
    builder = UnrollBuilder(SPEC, 2, 1)
    builder.begin(observe(0), {})
    fill(builder, [a_step([1], [1])])
    with pytest.raises(ValueError, match="2 steps holds 1"):
        builder.close((0, 1), 0, 1, {})


def test_padding_rows_are_not_environment_steps():
    builder = UnrollBuilder(SPEC, 3, 1)
    builder.begin(observe(0), {})
    fill(builder, [a_step([1], [1], ended=[0]), a_step([0], [0], valid=[False]), a_step([1], [1])])
    assert builder.close((0, 1), 0, 1, {}).header.env_steps == 2


def test_an_episode_over_two_unrolls_is_counted_once_and_whole():
    builder = UnrollBuilder(SPEC, 2, 1)
    builder.begin(observe(0), {})
    fill(builder, [a_step([1], [1]), a_step([2], [2])])
    assert builder.close((0, 1), 0, 1, {}).episode_returns.tolist() == []
    fill(builder, [a_step([3], [4], ended=[0]), a_step([0], [0], valid=[False])])
    unroll = builder.close((0, 1), 1, 1, {})
    assert unroll.episode_returns.tolist() == [7]
    assert unroll.episode_lengths_steps.tolist() == [3]


def test_begin_forgets_open_episodes():
    builder = UnrollBuilder(SPEC, 1, 1)
    builder.begin(observe(0), {})
    fill(builder, [a_step([1], [100])])
    builder.close((0, 1), 0, 1, {})
    builder.begin(observe(0), {})
    fill(builder, [a_step([1], [1], ended=[0])])
    assert builder.close((0, 1), 1, 1, {}).episode_returns.tolist() == [1]


def slow_episodes(ended, valid, rewards) -> list[tuple[int, int, float, int]]:
    """(end time, environment, return, length), by walking every environment step by step."""
    found = []
    for environment in range(ended.shape[1]):
        total, length = 0.0, 0
        for time in range(ended.shape[0]):
            total += rewards[time, environment]
            length += int(valid[time, environment])
            if ended[time, environment]:
                found.append((time, environment, total, length))
                total, length = 0.0, 0
    return sorted(found)


@given(st.data())
def test_episode_statistics_equal_the_slow_walk(data):
    length, count, unrolls = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    seed = data.draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    total = length * unrolls
    ended = random.random((total, count)) < 0.3
    valid = np.ones((total, count), bool)
    for time in range(1, total):  # the row after an end is padding, and ends nothing
        valid[time] = ~ended[time - 1]
        ended[time] &= valid[time]
    rewards = np.where(valid, random.integers(-3, 4, (total, count)), 0).astype(np.float32)
    builder = UnrollBuilder(SPEC, length, count)
    builder.begin(observe(*np.zeros(count)), {})
    collected: list[Unroll] = []
    for time in range(total):
        step = Step(observe(*np.zeros(count)), rewards[time], ended[time], ended[time] & False, valid[time])
        builder.add(np.zeros(count, np.int32), np.zeros(count, np.float32), step)
        if builder.full:
            collected.append(builder.close((0, 1), len(collected), 1, {}))
    expected = slow_episodes(ended, valid, rewards)
    assert [float(value) for unroll in collected for value in unroll.episode_returns] == [row[2] for row in expected]
    assert [int(value) for unroll in collected for value in unroll.episode_lengths_steps] == [
        row[3] for row in expected
    ]
