"""Readings of a run in Redis: ages, and the verdict on how it is doing."""

from dataclasses import replace

import pytest

from distrl.memory_backend.records import AWAITS_EVALUATION, Control, RoleStatus
from distrl.runs.reading import NOT_YET, Reading


def reading_of(*rows, since_s=0.0, **facts):
    """`since_s`: age of the newest row."""
    newest_ms = int(1000.0 * (1000.0 - since_s))
    ids = [f"{newest_ms - 5000 * at}-0" for at in reversed(range(len(rows)))]
    return Reading(snapshots=tuple(zip(ids, rows, strict=True)), clock=1000.0, **facts)


def silent_for(*ages_s):
    return [RoleStatus("actor", at, 1, "h", 5, "acting", at=1000.0 - age_s) for at, age_s in enumerate(ages_s)]


def awaiting_evaluation():
    return [RoleStatus("learner", 0, 1, "h", 5, AWAITS_EVALUATION, at=1000.0)]


def pretraining():
    return [RoleStatus("learner", 0, 1, "h", 5, "pretraining: 1 of 2 updates", at=1000.0)]


def steady(rate, count, start=0, steps=100):
    return [
        {"wall_s": 5.0 * (start + at), "env_steps": steps * (start + at), "env_steps_per_s": rate}
        for at in range(count)
    ]


@pytest.mark.parametrize(
    ("reading", "word"),
    [
        (reading_of(), "healthy"),
        (reading_of(problem=NOT_YET), "healthy"),
        (reading_of(problem="Redis is unreachable"), "stalled"),
        (reading_of(*steady(100.0, 30)), "healthy"),
        (reading_of(*steady(100.0, 3), *steady(100.0, 24, 3, steps=0)), "healthy"),  # 115 s without steps
        (reading_of(*steady(100.0, 3), *steady(100.0, 25, 3, steps=0)), "stalled"),
        (reading_of({"env_steps": 5}), "healthy"),  # without a time
        (reading_of(*steady(100.0, 3), since_s=119.0), "healthy"),
        (reading_of(*steady(100.0, 3), since_s=120.0), "stalled"),  # a learner that waits for unrolls
        (reading_of(*steady(100.0, 3), since_s=500.0, roles=awaiting_evaluation()), "stopping"),
        (reading_of(*steady(100.0, 3), since_s=500.0, roles=pretraining()), "healthy"),
        (reading_of(roles=silent_for(14.0)), "healthy"),
        (reading_of(roles=silent_for(1.0, 16.0)), "stalled"),
        (reading_of(*steady(100.0, 20), *steady(49.0, 5, 20)), "slow"),
        (reading_of(*steady(100.0, 20), *steady(51.0, 5, 20)), "healthy"),
        (reading_of(*steady(100.0, 19), *steady(1.0, 5, 19)), "healthy"),  # too few to tell
        (reading_of(roles=silent_for(99.0), control=Control(paused=True)), "paused"),
        (reading_of(roles=silent_for(99.0), control=Control(stop="asked")), "stopping"),
    ],
)
def test_the_verdict(reading, word):
    assert reading.verdict().word == word


def test_a_verdict_has_its_numbers():
    still = reading_of(*steady(100.0, 3), *steady(100.0, 25, 3, steps=0))
    assert still.verdict() == ("stalled", "No new environment steps for 2:00")
    assert still.verdict(has_redis=False) == ("healthy", "")
    assert reading_of(*steady(100.0, 20), *steady(49.0, 5, 20)).verdict() == ("slow", "49 steps/s now, 100 before")
    assert reading_of(problem="Redis is unreachable").verdict() == ("stalled", "")  # the page names it anyway
    assert replace(still, control=Control(stop="asked")).verdict() == ("stopping", "")
    assert reading_of(problem="one process without Redis").verdict(has_redis=False).word == "healthy"


def test_the_present_rate_is_the_median_of_five_rows():
    assert reading_of(*steady(100.0, 2), *steady(40.0, 3)).present_rate == 40.0
    assert reading_of(*steady(100.0, 4)).present_rate is None
