"""Unrolls hold what happened, rows join without a seam, and episodes are counted at their true ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.actors.unroll import UnrollBuilder, restarted
from distrl.environments.vector import EnvironmentStep
from distrl.errors import EnvironmentFailedError
from distrl.types import (
    STEP_FIELDS,
    ArraySpec,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    Unroll,
)

SPEC = EnvSpec("toy", {"observation": ArraySpec((1,), "float32")}, {"action": DiscreteSpec(4)})


def observe(*values: float) -> dict[str, np.ndarray]:
    return {"observation": np.array(values, np.float32)[:, None]}


def a_step(observations, rewards, ended=(), valid=None, raw_rewards=None, life_lost=False) -> EnvironmentStep:
    count = len(rewards)
    terminated = np.isin(np.arange(count), ended)
    return EnvironmentStep(
        observe(*observations),
        np.array(rewards, np.float32),
        terminated,
        np.zeros(count, bool),
        np.ones(count, bool) if valid is None else np.array(valid),
        np.array(rewards if raw_rewards is None else raw_rewards, np.float32),
        terminated & (not life_lost),
    )


def fill(
    builder: UnrollBuilder, steps: list[EnvironmentStep], states: list[dict[str, np.ndarray]] | None = None
) -> None:
    """`states`: after each step."""
    for row, step in enumerate(steps):
        count = len(step.rewards)
        actions, log_probabilities = {"action": np.full(count, row, np.int32)}, np.full(count, -0.5 * row, np.float32)
        builder.add(actions, log_probabilities, step, {} if states is None else states[row])


def test_rows_hold_what_happened():
    builder = UnrollBuilder(SPEC, 2, 2)
    builder.begin(observe(0, 10), {})
    fill(builder, [a_step([1, 11], [0.5, 1.5]), a_step([2, 12], [2.5, 3.5])])
    unroll = builder.close((3, 2), 7, 5)
    assert unroll.observations["observation"][..., 0].tolist() == [[0, 10], [1, 11], [2, 12]]
    assert unroll.actions["action"].tolist() == [[0, 0], [1, 1]]
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


def test_every_field_of_an_unroll_is_one_that_the_actor_records():
    recorded = {*EnvironmentStep._fields, "behaviour_log_probabilities"}
    assert {entry.name for entry in STEP_FIELDS} <= recorded


def test_actions_of_every_kind_are_recorded_by_name_and_copied():
    kinds = {
        "symbol": DiscreteSpec(3, start=1),
        "choices": MultiDiscreteSpec((2, 3), (0, 5)),
        "lamps": MultiBinarySpec((2, 1)),
        "force": BoxSpec((1, 2), (-1.0, None), (1.0, None)),
    }
    builder = UnrollBuilder(EnvSpec("toy", SPEC.observations, kinds), 2, 1)
    builder.begin(observe(0), {})
    given = {
        "symbol": np.int32([2]),
        "choices": np.int32([[1, 2]]),
        "lamps": np.int32([[1, 0]]),
        "force": np.float32([[-7.5, 0.25]]),
    }
    for _ in range(2):
        builder.add(given, np.float32([-1.0]), a_step([1], [0]), {})
        for array in given.values():
            array[:] = 0
    unroll = builder.close((0, 1), 0, 1)
    assert list(unroll.actions) == ["symbol", "choices", "lamps", "force"]
    assert {name: array.dtype.name for name, array in unroll.actions.items()} == {
        "symbol": "int32",
        "choices": "int32",
        "lamps": "int32",
        "force": "float32",
    }
    assert unroll.actions["symbol"].tolist() == [[2], [0]]
    assert unroll.actions["choices"].tolist() == [[[1, 2]], [[0, 0]]]
    assert unroll.actions["lamps"].tolist() == [[[1, 0]], [[0, 0]]]
    assert unroll.actions["force"].tolist() == [[[-7.5, 0.25]], [[0.0, 0.0]]]


def test_the_state_restarts_after_rows_that_were_not_valid():
    state = {"h": np.float32([[1, 2], [3, np.nan], [5, 6]]), "c": np.int32([7, 8, 9])}
    kept = {name: array.copy() for name, array in state.items()}
    for array in state.values():
        array.flags.writeable = False  # as ONNX Runtime's may be
    after = restarted(state, np.array([True, False, True]))
    np.testing.assert_array_equal(after["h"], np.float32([[1, 2], [0, 0], [5, 6]]), strict=True)
    np.testing.assert_array_equal(after["c"], np.int32([7, 0, 9]), strict=True)
    for name, array in kept.items():
        np.testing.assert_array_equal(state[name], array)


def test_where_nothing_ended_the_state_goes_on_uncopied():
    state = {"h": np.ones((2, 1), np.float32)}
    assert restarted(state, np.array([True, True])) is state
    assert restarted({}, np.array([True, False])) == {}


def test_the_next_unroll_begins_with_the_last_row_and_leaves_the_first_untouched():
    builder = UnrollBuilder(SPEC, 1, 1)
    builder.begin(observe(0), {"h": np.array([[1.0]])})
    fill(builder, [a_step([1], [1])], [{"h": np.array([[2.0]])}])
    first = builder.close((0, 1), 0, 1)
    fill(builder, [a_step([2], [1])], [{"h": np.array([[3.0]])}])
    second = builder.close((0, 1), 1, 1)
    assert first.observations["observation"][:, 0, 0].tolist() == [0, 1]
    assert second.observations["observation"][:, 0, 0].tolist() == [1, 2]
    assert first.recurrent_state["h"].tolist() == [[[1.0]]]
    assert second.recurrent_state["h"].tolist() == [[[2.0]]]


def test_an_unroll_holds_the_states_before_the_rows_at_which_sequences_start():
    """Six rows, of which 0, 2 and 4 are asked for; the state after row t is t + 1."""
    builder = UnrollBuilder(SPEC, 6, 2, state_rows=range(0, 5, 2))
    builder.begin(observe(0, 0), {"h": np.zeros((2, 1))})
    for number in range(2):
        rows = range(6 * number, 6 * number + 6)
        fill(builder, [a_step([0, 0], [0, 0])] * 6, [{"h": np.array([[row + 1.0], [-row - 1.0]])} for row in rows])
        unroll = builder.close((0, 1), number, 1)
        expected = [[[row], [-row]] for row in (6 * number, 6 * number + 2, 6 * number + 4)]
        assert unroll.recurrent_state["h"].tolist() == expected


def test_closing_early_is_refused():
    builder = UnrollBuilder(SPEC, 2, 1)
    builder.begin(observe(0), {})
    fill(builder, [a_step([1], [1])])
    with pytest.raises(ValueError, match="2 steps holds 1"):
        builder.close((0, 1), 0, 1)


def test_padding_rows_are_not_environment_steps():
    builder = UnrollBuilder(SPEC, 3, 1)
    builder.begin(observe(0), {})
    fill(builder, [a_step([1], [1], ended=[0]), a_step([0], [0], valid=[False]), a_step([1], [1])])
    assert builder.close((0, 1), 0, 1).header.env_steps == 2


def test_an_episode_over_two_unrolls_is_counted_once_and_whole():
    builder = UnrollBuilder(SPEC, 2, 1)
    builder.begin(observe(0), {})
    fill(builder, [a_step([1], [1]), a_step([2], [2])])
    assert builder.close((0, 1), 0, 1).episode_returns.tolist() == []
    fill(builder, [a_step([3], [4], ended=[0]), a_step([0], [0], valid=[False])])
    unroll = builder.close((0, 1), 1, 1)
    assert unroll.episode_returns.tolist() == [7]
    assert unroll.episode_lengths_steps.tolist() == [3]


@pytest.mark.parametrize(
    ("discount", "paid", "what"),
    [
        (1.0, [3e38, 3e38], "return"),
        (0.5, [3e38, -3e38, 3e38, -3e38] * 2, None),
        (0.5, [3e38, 3e38, -3e38], "discounted return"),
    ],
)
def test_a_return_beyond_float32_is_the_environments_failure(discount, paid, what):
    builder = UnrollBuilder(SPEC, len(paid), 1, discount=discount)
    builder.begin(observe(0), {})
    last = len(paid) - 1
    fill(
        builder,
        [a_step([1], [0], raw_rewards=[reward], ended=[0] if row == last else ()) for row, reward in enumerate(paid)],
    )
    if what is None:
        assert builder.close((0, 1), 0, 1).episode_returns.tolist() == [0.0]
        return
    with pytest.raises(EnvironmentFailedError) as caught:
        builder.close((0, 1), 0, 1)
    assert str(caught.value) == (
        f"environment toy: the {what} of an episode exceeds 3.4e+38, the largest number of float32; "
        "let the environment pay smaller rewards"
    )


@pytest.mark.row("P07.1")
def test_discounted_returns_count_from_the_first_step_of_the_episode():
    """Gamma .5: 8 + .5 x 4 + .25 x 4 over the seam, then 6 + .5 x 2 of an episode after the row that is not valid."""
    builder = UnrollBuilder(SPEC, 2, 1, discount=0.5)
    builder.begin(observe(0), {})
    fill(builder, [a_step([1], [1], raw_rewards=[8]), a_step([2], [1], raw_rewards=[4])])
    assert builder.close((0, 1), 0, 1).episode_discounted_returns.tolist() == []
    fill(builder, [a_step([3], [4], ended=[0]), a_step([0], [0], valid=[False])])
    assert builder.close((0, 1), 1, 1).episode_discounted_returns.tolist() == [11]
    fill(builder, [a_step([1], [6]), a_step([2], [2], ended=[0])])
    assert builder.close((0, 1), 2, 1).episode_discounted_returns.tolist() == [7]


def test_episodes_return_what_the_environment_paid_not_what_is_learned_from():
    builder = UnrollBuilder(SPEC, 2, 1)
    builder.begin(observe(0), {})
    fill(builder, [a_step([1], [1], raw_rewards=[10]), a_step([2], [-1], ended=[0], raw_rewards=[-3])])
    unroll = builder.close((0, 1), 0, 1)
    assert unroll.rewards[:, 0].tolist() == [1, -1]
    assert unroll.episode_returns.tolist() == [7]


def test_begin_forgets_open_episodes():
    builder = UnrollBuilder(SPEC, 1, 1)
    builder.begin(observe(0), {})
    fill(builder, [a_step([1], [100])])
    builder.close((0, 1), 0, 1)
    builder.begin(observe(0), {})
    fill(builder, [a_step([1], [1], ended=[0])])
    assert builder.close((0, 1), 1, 1).episode_returns.tolist() == [1]


def test_an_episode_that_ends_in_the_last_row_is_counted_there_and_once():
    builder = UnrollBuilder(SPEC, 1, 1)
    builder.begin(observe(0), {})
    fill(builder, [a_step([1], [5], ended=[0])])
    first = builder.close((0, 1), 0, 1)
    fill(builder, [a_step([0], [0], valid=[False])])
    second = builder.close((0, 1), 1, 1)
    assert (first.episode_returns.tolist(), second.episode_returns.tolist()) == ([5], [])
    assert first.episode_lengths_steps.tolist() == [1]


@pytest.mark.row("M03")
def test_a_lost_life_terminates_and_ends_no_episode():
    builder = UnrollBuilder(SPEC, 4, 1)
    builder.begin(observe(0), {})
    # A life is lost at the second step, the game is over at the third.
    steps = [a_step([1], [1]), a_step([2], [2], ended=[0], life_lost=True), a_step([3], [4], ended=[0])]
    fill(builder, [*steps, a_step([0], [0], valid=[False])])
    unroll = builder.close((0, 1), 0, 1)
    assert unroll.terminated[:, 0].tolist() == [False, True, True, False]
    assert (unroll.episode_returns.tolist(), unroll.episode_lengths_steps.tolist()) == ([7], [3])


def stacked_spec(frames: int) -> EnvSpec:
    shapes = {"frame": (2, 1, 3), "wall": (1,), "speed": (2,)}
    observations = {
        name: ArraySpec((*shape[:-1], shape[-1] * frames), "int32", frames=frames)
        for name, shape in shapes.items()
        if name != "wall"
    }
    return EnvSpec("toy", {**observations, "wall": ArraySpec((1,), "int32")}, SPEC.actions)


def test_of_stacks_the_newest_frame_travels_and_the_older_ones_once():
    def see(*stack: int) -> dict[str, np.ndarray]:
        return {
            "frame": np.repeat(np.int32(stack), 3) * np.ones((1, 2, 1, 1), np.int32),
            "speed": np.repeat(np.int32(stack), 2)[None],
            "wall": np.int32([[stack[-1]]]),
        }

    builder = UnrollBuilder(stacked_spec(3), 2, 1)
    builder.begin(see(7, 8, 9), {})
    unrolls = []
    for stack in [(8, 9, 10), (9, 10, 11), (10, 11, 12), (20, 20, 20)]:
        never, paid = np.zeros(1, bool), np.zeros(1, np.float32)
        step = EnvironmentStep(see(*stack), paid, never, never, np.ones(1, bool), paid, never)
        builder.add({"action": np.int32([0])}, np.float32([0]), step, {})
        if builder.full:
            unrolls.append(builder.close((0, 1), len(unrolls), 1))
    first, second = (unroll.observations for unroll in unrolls)
    assert first["frame"].shape == (5, 1, 2, 1, 3)
    for row, value in enumerate([7, 8, 9, 10, 11]):
        assert (first["frame"][row] == value).all()
    assert first["speed"][:, 0].tolist() == [[7, 7], [8, 8], [9, 9], [10, 10], [11, 11]]
    assert first["wall"][:, 0, 0].tolist() == [9, 10, 11]
    assert second["speed"][:, 0, 0].tolist() == [9, 10, 11, 12, 20]


def slow_episodes(ended, valid, rewards) -> list[tuple[int, int, float, int]]:
    """(end time, environment, return, length, return at .5), by walking every environment step by step."""
    found = []
    for environment in range(ended.shape[1]):
        total, length, discounted = 0.0, 0, 0.0
        for time in range(ended.shape[0]):
            total += rewards[time, environment]
            discounted += 0.5**length * rewards[time, environment]
            length += int(valid[time, environment])
            if ended[time, environment]:
                found.append((time, environment, total, length, discounted))
                total, length, discounted = 0.0, 0, 0.0
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
    builder = UnrollBuilder(SPEC, length, count, discount=0.5)
    builder.begin(observe(*np.zeros(count)), {})
    collected: list[Unroll] = []
    for time in range(total):
        paid = rewards[time]
        step = EnvironmentStep(
            observe(*np.zeros(count)), paid / 8, ended[time], ended[time] & False, valid[time], paid, ended[time]
        )
        builder.add({"action": np.zeros(count, np.int32)}, np.zeros(count, np.float32), step, {})
        if builder.full:
            collected.append(builder.close((0, 1), len(collected), 1))
    expected = slow_episodes(ended, valid, rewards)
    assert [float(value) for unroll in collected for value in unroll.episode_returns] == [row[2] for row in expected]
    assert [int(value) for unroll in collected for value in unroll.episode_lengths_steps] == [
        row[3] for row in expected
    ]
    discounted = [float(value) for unroll in collected for value in unroll.episode_discounted_returns]
    assert discounted == pytest.approx([row[4] for row in expected], abs=1e-5)
