"""Rules of alerts by hand: when each fires, that it fires once, when it is cleared, and what is remembered."""

from dataclasses import replace

import pytest

from distrl.apps.dashboard.alert_rules import AGAIN_S, CLEAR_S, LATELY_S, MOST_ALERTS, Alerts, RunReading
from distrl.apps.dashboard.alert_settings import AlertSettings

AT = 1_000_000.0


class Story:
    """Looks at one run, a second of both clocks apart unless told otherwise."""

    def __init__(self, **settings):
        self.alerts = Alerts(AlertSettings(**settings))
        self.now = 0.0

    def look(self, *runs, after=5.0):
        self.now += after
        changes = self.alerts.look(runs, self.now, AT + self.now)
        return [(change.event, change.alert.rule) for change in changes]


def running(steps=100, **changes):
    snapshot = {"env_steps": steps, **changes.pop("numbers", {})}
    return RunReading(
        **{"id": "a", "name": "first", "state": "running", "started": 10.0, "snapshot": snapshot, **changes}
    )


def ended(state="ended", **changes):
    numbers = {"exit_code": 0, "stop_reason": "env_steps", "error": None, **changes.pop("numbers", {})}
    return RunReading(
        **{"id": "a", "name": "first", "state": state, "started": 10.0, "ended": AT, "snapshot": numbers, **changes}
    )


@pytest.mark.parametrize(
    ("seen", "rule", "severity", "text"),
    [
        (ended(numbers={"exit_code": 1, "error": "boom"}), "failed", "bad", "failed: boom"),
        (
            ended(numbers={"exit_code": 5, "error": "a loss"}),
            "non_finite",
            "bad",
            "numbers that are not finite: a loss",
        ),
        (ended("gone"), "gone", "bad", "its process is gone; it can be resumed"),
        (ended("damaged", problem="odd"), "damaged", "bad", "its files are damaged: odd"),
        (
            ended(numbers={"stop_reason": "mean_return"}),
            "solved",
            "info",
            "solved: the mean return asked for is reached",
        ),
        (ended(), "ended", "info", "ended: the budget of environment steps is spent"),
        (running(200, numbers={"unsaved": "disk full"}), "unsaved", "bad", "no checkpoint can be written: disk full"),
        (running(200, numbers={"unstored": "403"}), "unstored", "warning", "the data store lacks checkpoints: 403"),
        (running(200, restarts=4), "restarts", "warning", "roles were started again 4 times"),
        (running(200, ages_s={"actor 0": 1.0, "actor 1": 16.0}), "silent", "bad", "no heartbeat for 15 s: actor 1"),
    ],
)
def test_what_fires_at_once(seen, rule, severity, text):
    story = Story()
    assert story.look(running()) == []
    assert story.look(seen) == [("fired", rule)]
    alert = story.alerts.newest_first[0]
    assert (alert.severity, alert.text, alert.run, alert.name, alert.at) == (severity, text, "a", "first", AT + 10)
    assert story.look(seen) == []  # once


@pytest.mark.parametrize(
    "seen",
    [
        running(200),
        running(200, restarts=3),
        running(200, ages_s={"actor 0": 14.0}),
        running(200, numbers={"unsaved": "", "unstored": None}),
        ended(numbers={"stop_reason": "asked"}),
        ended(numbers={"exit_code": 130, "stop_reason": "Ctrl-C"}),
        ended(numbers={"exit_code": 75, "stop_reason": "SIGTERM"}),
    ],
)
def test_what_does_not_fire(seen):
    story = Story()
    assert story.look(running()) == []
    assert story.look(seen) == []


def test_no_steps_fires_after_its_time_and_is_cleared_by_new_ones():
    story = Story(no_steps_s=60)
    assert story.look(running(100)) == []
    assert story.look(running(100), after=59) == []
    assert story.look(running(100), after=1) == [("fired", "no_steps")]
    assert story.alerts.newest_first[0].text == "no new environment steps for 1:00"
    assert story.look(running(200)) == []
    assert story.look(running(300), after=CLEAR_S) == [("cleared", "no_steps")]
    assert story.alerts.newest_first[0].cleared == AT + story.now


def test_the_first_steps_have_more_time():
    story = Story(no_steps_s=60)
    assert story.look(running(None)) == []
    assert story.look(running(None), after=299) == []
    assert story.look(running(None), after=1) == [("fired", "no_steps")]
    assert story.alerts.newest_first[0].text == "no first environment steps for 5:00"


def test_a_pause_is_no_lack_of_steps():
    story = Story(no_steps_s=60)
    story.look(running(100))
    assert story.look(running(100, paused=True), after=1000) == []
    assert story.look(running(100), after=59) == []
    assert story.look(running(100), after=1) == [("fired", "no_steps")]


def test_a_starved_learner_fires_only_if_it_lasts():
    story = Story(starved_s=60)
    waits = {"learner_wait_share": 0.95}
    assert story.look(running(1, numbers=waits)) == []
    assert story.look(running(2), after=50) == []
    assert story.look(running(3, numbers=waits)) == []
    assert story.look(running(4, numbers=waits), after=59) == []
    assert story.look(running(5, numbers=waits), after=1) == [("fired", "starved")]
    assert story.alerts.newest_first[0].text == "the learner waits for unrolls 95% of its time"


def test_no_better_return_is_off_by_default_and_counts_steps():
    story, without = Story(no_better_steps=1000), Story()
    for steps, best, told in [(100, 20.0, []), (900, 21.0, []), (1899, 21.0, []), (1900, 21.0, ["no_better_return"])]:
        seen = running(steps, numbers={"best_mean_return_100": best})
        assert [rule for _, rule in story.look(seen)] == told
        assert without.look(seen) == []
    assert story.alerts.newest_first[0].text == "no better return than 21 for 1,000 steps"


def test_an_unreachable_redis_fires_alone():
    story = Story()
    story.look(running())
    lost = running(problem="Redis is away", ages_s={"actor 0": 999.0}, restarts=99)
    assert story.look(lost, after=5) == []
    assert story.look(lost, after=10) == [("fired", "unreachable")]
    assert story.alerts.newest_first[0].text == "Redis is away"


def test_a_reason_that_flickers_fires_once_and_stays():
    story = Story()
    story.look(running(0))
    silent = {"actor 0": 20.0}
    told = [story.look(running(step, ages_s=silent if step % 2 else {})) for step in range(1, 40)]
    assert [change for changes in told for change in changes] == [("fired", "silent")]


def test_one_that_comes_back_soon_is_opened_again_without_a_new_alert():
    story = Story()
    story.look(running(0))
    story.look(running(1, ages_s={"actor 0": 20.0}))
    story.look(running(2))
    assert story.look(running(3), after=CLEAR_S) == [("cleared", "silent")]
    assert story.look(running(4, ages_s={"actor 0": 20.0})) == []
    assert [alert.cleared for alert in story.alerts.newest_first] == [None]
    story.look(running(5))
    assert story.look(running(6), after=CLEAR_S) == [("cleared", "silent")]
    story.look(running(7), after=AGAIN_S)
    assert story.look(running(8, ages_s={"actor 0": 20.0})) == [("fired", "silent")]
    assert len(story.alerts.newest_first) == 2


def test_runs_of_long_ago_do_not_fire_at_the_start():
    story = Story()
    old = [ended(id="a"), ended("gone", id="b"), ended("damaged", id="c"), ended(id="d", numbers={"exit_code": 1})]
    assert story.look(*old) == []
    assert story.look(*old) == []
    assert story.look(*old, ended(id="e", started=99.0)) == [("fired", "ended")]  # too short to be seen running


def test_a_run_that_is_resumed_and_fails_again_fires_again():
    story = Story()
    story.look(running())
    failed = {"exit_code": 1, "error": "boom"}
    assert story.look(ended(numbers=failed)) == [("fired", "failed")]
    assert story.look(running(started=20.0)) == []
    assert story.look(ended(numbers=failed, started=20.0)) == [("cleared", "failed"), ("fired", "failed")]
    assert [alert.cleared is None for alert in story.alerts.newest_first] == [True, False]


def test_one_that_ended_before_the_start_fires_when_a_later_launch_ends():
    story = Story()
    story.look(ended("gone"))
    story.look(running(started=20.0))
    assert story.look(ended("gone", started=20.0)) == [("fired", "gone")]


def test_only_what_was_seen_running_or_ended_lately_fires():
    """Ended runs that are copied under a running dashboard are no news."""
    story = Story()
    story.look(running())
    copies = [replace(ended("gone"), id="b", ended=AT - 10_000), replace(ended("damaged"), id="c", ended=0.0)]
    assert story.look(running(200), *copies) == []
    missed = replace(ended(numbers={"exit_code": 1, "error": "boom"}), id="d", ended=AT - LATELY_S + 20)
    assert story.look(running(300), *copies, missed) == [("fired", "failed")]  # it began and ended between two looks
    for number in range(20):
        assert story.look(running(400 + number), *copies, missed, after=LATELY_S / 10) == []  # it stays
    assert story.look(ended(), *copies, missed) == [("fired", "ended")]
    assert story.look(ended(), replace(running(100), id="b", started=20.0), missed) == []
    assert story.look(ended(), replace(copies[0], started=20.0), missed) == [("fired", "gone")]  # resumed, then gone


def test_rules_can_be_turned_off():
    story = Story(without=("ended", "silent"))
    story.look(running())
    assert story.look(running(200, ages_s={"actor 0": 99.0})) == []
    assert story.look(ended()) == []


def test_alerts_are_bounded_and_a_removed_run_is_forgotten():
    story = Story()
    story.look()
    for number in range(MOST_ALERTS + 20):
        story.look(ended(id=str(number), name=str(number)), after=1.0)
    found = story.alerts.newest_first
    assert [alert.name for alert in found] == [str(number) for number in range(MOST_ALERTS + 19, 19, -1)]
    story.look(after=CLEAR_S)
    story.look(after=AGAIN_S)
    story.look(after=AGAIN_S)
    assert story.alerts._standing == {}
    assert story.alerts._progress == {}
    assert story.alerts._ends == {}


def test_a_long_text_is_cut():
    story = Story()
    story.look(running())
    story.look(ended(numbers={"exit_code": 1, "error": "x" * 5000}))
    assert len(story.alerts.newest_first[0].text) == 300
