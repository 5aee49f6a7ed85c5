from dataclasses import replace

import pytest

from distrl.apps.dashboard.alert_settings import SILENT_FOR_S, STALLED_S, AlertSettings
from distrl.apps.dashboard.attention import counted, present_rate, trouble_of, words_of
from distrl.apps.dashboard.jobs import NOT_YET
from distrl.memory_backend.records import Control, RoleStatus
from distrl.runs.reading import Reading


def look(*rows, **facts):
    return Reading(snapshots=tuple((str(at), row) for at, row in enumerate(rows)), clock=1000.0, **facts)


def silent_for(*ages_s):
    return [RoleStatus("actor", at, 1, "h", 5, "acting", at=1000.0 - age_s) for at, age_s in enumerate(ages_s)]


def steady(rate, count, start=0, steps=100):
    return [
        {"wall_s": 5.0 * (start + at), "env_steps": steps * (start + at), "env_steps_per_s": rate}
        for at in range(count)
    ]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"exit_code": 3, "stop_reason": "mean_return"}, ("failed", "ended")),
        ({"exit_code": 0, "stop_reason": "mean_return"}, ("solved", "ended")),
        ({"exit_code": 0, "stop_reason": "evaluation_return"}, ("solved", "ended")),
        ({"exit_code": 0, "stop_reason": "metrics"}, ("solved", "ended")),
        ({"exit_code": 130, "stop_reason": "interrupted"}, ("interrupted", "ended")),
        ({"exit_code": 0, "stop_reason": "asked"}, ("stopped", "ended")),
        ({"exit_code": 0, "stop_reason": "minutes"}, ("ended",)),
    ],
)
def test_runs_that_have_ended(numbers, words):
    assert words_of("ended", numbers, None) == words


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (None, ("running",)),
        (look(), ("running",)),
        (look(problem=NOT_YET), ("running",)),
        (look(problem="Redis is unreachable"), ("stalled", "running")),
        (look(*steady(100.0, 30)), ("running",)),
        (look(*steady(100.0, 3), *steady(100.0, 24, 3, steps=0)), ("running",)),  # 115 s without steps
        (look(*steady(100.0, 3), *steady(100.0, 25, 3, steps=0)), ("stalled", "running")),
        (look({"env_steps": 5}), ("running",)),  # without a time
        (look(roles=silent_for(14.0)), ("running",)),
        (look(roles=silent_for(1.0, 16.0)), ("stalled", "running")),
        (look(*steady(100.0, 20), *steady(49.0, 5, 20)), ("slow", "running")),
        (look(*steady(100.0, 20), *steady(51.0, 5, 20)), ("running",)),
        (look(*steady(100.0, 19), *steady(1.0, 5, 19)), ("running",)),  # too few to tell
        (look(roles=silent_for(99.0), control=Control(paused=True)), ("paused", "running")),
        (look(roles=silent_for(99.0), control=Control(stop="asked")), ("stopping", "running")),
    ],
)
def test_running_ones(seen, words):
    assert words_of("running", {}, seen) == words


def test_trouble_has_its_numbers():
    still = look(*steady(100.0, 3), *steady(100.0, 25, 3, steps=0))
    assert trouble_of(still) == ("stalled", "No new environment steps for 2:00")
    assert trouble_of(still, has_redis=False) == ("", "")
    assert trouble_of(look(*steady(100.0, 20), *steady(49.0, 5, 20))) == ("slow", "49 steps/s now, 100 before")
    assert trouble_of(look(problem="Redis is unreachable")) == ("stalled", "")  # the page names it anyway
    assert trouble_of(replace(still, control=Control(stop="asked"))) == ("", "")


def test_the_present_rate_is_the_median_of_five_rows():
    assert present_rate(look(*steady(100.0, 2), *steady(40.0, 3))) == 40.0
    assert present_rate(look(*steady(100.0, 4))) is None


def test_alerts_have_the_same_limits():
    settings = AlertSettings()
    assert (settings.no_steps_s, settings.silent_s) == (STALLED_S, SILENT_FOR_S)


def test_a_run_without_redis_does_not_stall():
    assert words_of("running", {}, look(problem="one process without Redis"), has_redis=False) == ("running",)


def test_counts():
    assert counted([("failed", "ended"), ("failed", "ended"), ("slow", "running"), ("running",)]) == {
        "failed": 2,
        "slow": 1,
    }
    assert counted([("running",)]) == {}
