import pytest

from distrl.apps.dashboard.alert_settings import AlertSettings
from distrl.apps.dashboard.attention import counted, words_of
from distrl.memory_backend.records import Control
from distrl.runs.reading import SILENT_FOR_S, STALLED_S, Reading


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"exit_code": 3, "stop_reason": "mean_return"}, ("failed", "ended")),
        ({"exit_code": 0, "stop_reason": "mean_return"}, ("solved", "ended")),
        ({"exit_code": 0, "stop_reason": "evaluation_return"}, ("solved", "ended")),
        ({"exit_code": 0, "stop_reason": "metrics"}, ("solved", "ended")),
        ({"exit_code": 130, "stop_reason": "interrupted"}, ("interrupted", "ended")),
        ({"exit_code": 75, "stop_reason": "SIGTERM"}, ("interrupted", "ended")),
        ({"exit_code": 1, "stop_reason": "SIGTERM", "error": "it was not saved"}, ("failed", "ended")),
        ({"exit_code": 0, "stop_reason": "SIGTERM"}, ("interrupted", "ended")),
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
        (Reading(), ("running",)),
        (Reading(problem="Redis is unreachable"), ("stalled", "running")),
        (Reading(control=Control(paused=True)), ("paused", "running")),
    ],
)
def test_running_ones(seen, words):
    assert words_of("running", {}, seen) == words


def test_alerts_have_the_same_limits():
    settings = AlertSettings()
    assert (settings.no_steps_s, settings.silent_s) == (STALLED_S, SILENT_FOR_S)


def test_counts():
    assert counted([("failed", "ended"), ("failed", "ended"), ("slow", "running"), ("running",)]) == {
        "failed": 2,
        "slow": 1,
    }
    assert counted([("running",)]) == {}
