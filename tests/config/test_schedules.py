"""Schedules: their values, and what holds for all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from distrl.config.load import load
from distrl.config.schedules import (
    ExponentialSchedule,
    LinearPiece,
    LinearSchedule,
    Piece,
    PolynomialSchedule,
    Progress,
    Schedule,
    within,
)
from distrl.errors import ConfigError

read = TypeAdapter(Schedule).validate_python


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        pytest.param({"kind": "constant", "value": 0.1}, {0: 0.1, 10**9: 0.1}, marks=pytest.mark.row("K05", "D91")),
        pytest.param(
            {"kind": "linear", "start": 1, "end": 0, "steps": 10_000},
            {0: 1, 2500: 0.75, 10_000: 0, 10_001: 0},
            marks=pytest.mark.row("K03"),
        ),
        pytest.param(
            {"kind": "linear", "start": 1, "end": 0.1, "steps": 10_000},
            {5000: 0.55, 20_000: 0.1},
            marks=pytest.mark.row("K06"),
        ),
        pytest.param(
            {"kind": "linear", "start": 1, "end": 0, "steps": 10}, {4: 0.6, 10: 0, 99: 0}, marks=pytest.mark.row("D91")
        ),
        pytest.param(
            {"kind": "linear", "start": 0.5, "end": 0.01, "steps": 50_000},
            {25_000: 0.255},
            marks=pytest.mark.row("D85"),
        ),
        pytest.param(
            {"kind": "linear", "start": 0, "end": 4, "steps": 4, "delay_steps": 100},
            {0: 0, 100: 0, 101: 1, 103: 3, 104: 4, 200: 4},
            marks=pytest.mark.row("K03"),
        ),
        pytest.param(
            {"kind": "polynomial", "start": 3, "end": 1, "steps": 10, "power": 2},
            {0: 3, 5: 1.5, 8: 1.08, 10: 1},
            marks=pytest.mark.row("K03"),
        ),
        pytest.param(
            {"kind": "exponential", "start": 1, "end": 0, "steps": 10_000, "half_life_steps": 1000},
            {0: 1, 1000: 0.5, 2000: 0.25, 10_000: 0},
            marks=pytest.mark.row("K03"),
        ),
        pytest.param(
            {"kind": "exponential", "start": 1, "end": 0.1, "steps": 10_000},  # ten half-lives
            {0: 1, 1000: 0.55, 2000: 0.325, 9000: 0.1 + 0.9 / 512, 10_000: 0.1, 10_001: 0.1},
            marks=pytest.mark.row("K07", "K03"),
        ),
        pytest.param(
            {"kind": "exponential", "start": 1, "end": 0.1, "steps": 800, "half_lives": 4},
            {200: 0.55, 400: 0.325, 800: 0.1},
            marks=pytest.mark.row("K03"),
        ),
        pytest.param(
            {
                "kind": "piecewise",
                "pieces": [
                    {"schedule": {"kind": "linear", "start": 1, "end": 0.1, "steps": 90}, "for_steps": 100},
                    {"schedule": {"kind": "constant", "value": 0.5}, "for_steps": 10},
                    {"schedule": {"kind": "linear", "start": 0.1, "end": 0, "steps": 100}},
                ],
            },
            {0: 1, 10: 0.9, 95: 0.1, 99: 0.1, 100: 0.5, 109: 0.5, 110: 0.1, 160: 0.05, 210: 0, 10**6: 0},
            marks=pytest.mark.row("D91"),
        ),
    ],
)
def test_values(schedule, values):
    made = read(schedule)
    assert {steps: made.at(Progress(steps)) for steps in values} == pytest.approx(values)


LINE = {"kind": "linear", "start": 8, "end": 0, "steps": 8}
OTHER_KINDS = [
    {"kind": "polynomial", "start": 8, "end": 0, "steps": 8, "power": 1},
    {"kind": "exponential", "start": 8, "end": 0, "steps": 8, "half_life_steps": 1},
    {"kind": "piecewise", "pieces": [{"schedule": LINE, "for_steps": 5}, {"schedule": 9}]},
]


@pytest.mark.row("K05")
@pytest.mark.parametrize("value", [0.25, 2])
def test_a_number_is_a_constant(value):
    assert read(value) == read({"kind": "constant", "value": value})
    assert read({"kind": "piecewise", "pieces": [{"schedule": value}]}).at(Progress(7)) == value


@pytest.mark.row("D21")
@pytest.mark.parametrize("schedule", [LINE, *OTHER_KINDS], ids=lambda schedule: schedule["kind"])
def test_a_schedule_counts_what_it_says(schedule):
    progress = Progress(env_steps=1, episodes=3, updates=6)
    by_steps = read(schedule)
    for counts in Progress._fields:
        expected = by_steps.at(Progress(getattr(progress, counts)))
        made = read({**schedule, "counts": counts})
        assert made.at(progress) == expected
        assert read(made.model_dump(mode="json")) == made  # as a run keeps it
        other = read({**made.model_dump(mode="json"), "counts": "updates"})
        assert other.at(progress) == by_steps.at(Progress(6))
    assert by_steps.at(progress) == by_steps.at(Progress(1))  # environment steps, where it says nothing


NUMBERS = st.floats(-1e3, 1e3)
MOVING = st.one_of(
    st.builds(LinearSchedule, start=NUMBERS, end=NUMBERS, steps=st.integers(1, 500), delay_steps=st.integers(0, 50)),
    st.builds(PolynomialSchedule, start=NUMBERS, end=NUMBERS, steps=st.integers(1, 500), power=st.floats(0.1, 8)),
    st.builds(
        ExponentialSchedule, start=NUMBERS, end=NUMBERS, steps=st.integers(1, 500), half_lives=st.floats(0.1, 50)
    ),
    st.builds(
        ExponentialSchedule, start=NUMBERS, end=NUMBERS, steps=st.integers(1, 500), half_life_steps=st.floats(0.1, 1e3)
    ),
)


@given(MOVING, st.lists(st.integers(-5, 700), min_size=2, max_size=20))
def test_a_schedule_stays_between_its_ends_and_never_turns_back(schedule, steps):
    low, high = schedule.extremes
    values = [schedule.after(step) for step in sorted(steps)]
    assert all(low <= value <= high for value in values)
    assert values == sorted(values, reverse=schedule.end < schedule.start)
    assert schedule.after(schedule.delay_steps) == schedule.start
    assert schedule.after(schedule.delay_steps + schedule.steps) == schedule.end


@pytest.mark.row("K03", "T16")
@given(st.integers(1, 9_999))
def test_an_exponential_schedule_heads_for_its_end_all_the_time(steps):
    """Once, one decayed towards 0 within its window and jumped to its end after it."""
    schedule = ExponentialSchedule(start=1.0, end=0.1, steps=10_000, half_life_steps=1000)
    assert schedule.after(steps) == pytest.approx(0.1 + 0.9 * 2 ** (-steps / 1000))
    assert schedule.after(steps) > 0.1


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"kind": "exponential", "half_lives": 2, "half_life_steps": 5}, "half_life_steps: 5 and half_lives: 2 say"),
        (
            {"kind": "piecewise", "pieces": [{"schedule": {"kind": "constant", "value": 1}, "for_steps": 5}]},
            "number 0 has for_steps: 5, but the last piece goes on for ever; leave it",
        ),
        (
            {"kind": "piecewise", "pieces": [{"schedule": {"kind": "constant", "value": 1}}] * 2},
            "number 0 has for_steps: null, but only the last piece goes on for ever; set it",
        ),
        ({"kind": "piecewise", "pieces": []}, "at least 1 item"),
        (
            {"kind": "piecewise", "pieces": [{"schedule": {"kind": "linear", "counts": "episodes"}}]},
            "Extra inputs are not permitted",
        ),
        ({"kind": "linear", "counts": "frames"}, "'env_steps', 'episodes' or 'updates'"),
        ({"kind": "linear", "steps": 0}, "greater than or equal to 1"),
        ({"kind": "polynomial", "power": 0}, "greater than 0"),
        ({"kind": "cosine"}, "does not match"),
        (True, "valid dictionary"),
        ("half", "valid dictionary"),
    ],
)
def test_what_is_no_schedule(schedule, message):
    with pytest.raises(ValidationError, match=message):
        read(schedule)


def test_a_piece_has_no_unit_of_its_own():
    with pytest.raises(ValidationError, match="a piece has no counts; give a LinearPiece"):
        Piece(schedule=LinearSchedule(counts="updates"))
    assert Piece(schedule=LinearPiece()).schedule.after(0) == 1.0


def test_a_schedule_is_held_to_its_range_by_every_piece():
    pieces = [
        {"schedule": {"kind": "constant", "value": 0.5}, "for_steps": 10},
        {"schedule": {"kind": "linear", "start": 0.5, "end": 1.5, "steps": 10}},
    ]
    schedule = read({"kind": "piecewise", "pieces": pieces})
    assert schedule.extremes == (0.5, 1.5)
    within("epsilon", schedule, 0.0, 1.5)
    with pytest.raises(ValueError, match=r"epsilon: 1.5 comes up in its schedule; it must stay in \[0, 1\]"):
        within("epsilon", schedule, 0.0, 1.0)
    with pytest.raises(ValueError, match=r"epsilon: 0.5 comes up"):
        within("epsilon", schedule, 0.6, 2.0)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("abc", "'abc' (from flag --set) must have a kind of constant, linear"),
        ("abc", "or be a number"),
        ("linear", "must be a mapping; write exploration.epsilon.kind=linear"),
        ("true", "or be a number"),
    ],
)
def test_a_text_in_place_of_a_schedule_is_told_what_may_stand_there(value, line):
    with pytest.raises(ConfigError) as caught:
        load("cartpole-dqn", sets=[f"exploration.epsilon={value}"])
    assert line in str(caught.value)
