"""An actor hangs when its environment, or its heartbeat, is older than the limit; waiting is not hanging."""

from dataclasses import replace

import pytest

from distrl.config import RunConfig
from distrl.launch.fleet import HangWatch
from distrl.memory_backend.records import RoleStatus
from distrl.roles.join import MAKING
from distrl.roles.suspend_clock import AwakeClock

CONFIG = RunConfig.model_validate({"environment": {"step_timeout_s": 10.0}, "learner": {"stall_timeout_s": 80.0}})
STATUS = RoleStatus("actor", 0, 1, "host", 1, "acting", beat=1, last_step_age_s=4.0)


@pytest.fixture
def awake(clock):
    return AwakeClock(clock)


@pytest.fixture
def watch(awake):
    return HangWatch(CONFIG, awake)


@pytest.fixture
def until(clock, awake):
    """until(seconds): time passes, and the process runs."""

    def pass_by(seconds):
        while clock.now < seconds:
            clock.now += 1.0
            awake.look()

    return pass_by


def test_the_age_goes_on_while_no_heartbeat_comes(watch, until):
    assert watch.overdue(STATUS) is None  # 4 s, says the actor
    until(6.0)
    assert watch.overdue(STATUS) is None  # 4 s and 6 s of silence: the limit itself
    until(7.0)
    assert watch.overdue(STATUS).age_s == 11.0
    assert watch.overdue(replace(STATUS, beat=2)) is None  # a new heartbeat: 4 s again


@pytest.mark.parametrize("state", ["starting", "acting"])
def test_an_environment_that_hangs_shows_in_every_heartbeat(watch, state):
    assert watch.overdue(replace(STATUS, state=state, last_step_age_s=10.5)).age_s == 10.5


@pytest.mark.parametrize(
    ("role", "state", "missing"),
    [
        ("actor", "acting", "environment step"),
        ("actor", "waiting: room", "heartbeat"),
        ("evaluator", "evaluating", "environment step"),
        ("evaluator", "waiting: weights", "heartbeat"),
        ("inference", "serving", "answer"),
        ("inference", "waiting: actors", "heartbeat"),
    ],
)
def test_the_reason_names_what_a_role_of_this_kind_has_not_done(watch, until, role, state, missing):
    status = replace(STATUS, role=role, state=state, last_step_age_s=0.0)
    assert watch.overdue(status) is None
    until(11.0)
    assert watch.overdue(status).why == f"no {missing} for 11 s (environment.step_timeout_s)"


def test_a_role_that_hangs_while_it_makes_its_environment_is_replaced_before_the_run_stalls():
    stall_s = RunConfig().learner.stall_timeout_s
    assert RunConfig().making_timeout_s == stall_s / 2
    patient = {"environment": {"step_timeout_s": 200.0}}
    assert RunConfig.model_validate(patient).making_timeout_s == 200.0  # never less than a step's limit


def test_making_an_environment_may_take_longer_than_a_step(watch, until):
    """40 s here, also in silence: an import may hold the interpreter."""
    making = replace(STATUS, state=MAKING, last_step_age_s=30.0)
    assert watch.overdue(making) is None
    until(10.0)
    assert watch.overdue(making) is None
    until(11.0)
    assert watch.overdue(making) == (41.0, "no environment was made in 41 s (half of learner.stall_timeout_s)")
    acting = replace(STATUS, beat=2, last_step_age_s=11.0)
    assert watch.overdue(acting) == (11.0, "no environment step for 11 s (environment.step_timeout_s)")


@pytest.mark.parametrize("state", ["waiting: policy", "waiting: room", "waiting: ticket", "paused", "stopping"])
def test_waiting_is_not_hanging_but_silence_is(watch, until, state):
    status = replace(STATUS, state=state, last_step_age_s=1e6)
    assert watch.overdue(status) is None
    until(11.0)
    assert watch.overdue(status).age_s == 11.0


def test_the_heartbeat_of_an_incarnation_that_has_ended_says_nothing(watch, until):
    watch.overdue(STATUS)
    watch.ended(STATUS)
    until(100.0)
    assert watch.overdue(STATUS) is None
    successor = replace(STATUS, incarnation=2)
    assert watch.overdue(successor) is None
    until(107.0)
    assert watch.overdue(successor).age_s == 11.0


def test_actors_are_watched_apart(watch, until):
    other = replace(STATUS, id=1)
    watch.overdue(STATUS)
    until(5.0)
    watch.overdue(other)
    until(7.0)
    assert (watch.overdue(STATUS).age_s, watch.overdue(other)) == (11.0, None)


def test_nobody_was_silent_while_the_watcher_itself_was_stopped(watch, clock, until):
    watch.overdue(STATUS)
    until(5.0)
    clock.now = 300.0  # SIGSTOP, SIGCONT
    assert watch.overdue(STATUS) is None  # 4 s, and 5 s of silence that it saw
    until(302.0)
    assert watch.overdue(STATUS).age_s == 11.0


def test_another_process_with_the_number_of_one_that_has_ended_is_current(watch):
    """A fail-over of Redis forgot the first one's registration."""
    first = RoleStatus("learner", 0, 2, "h", 1, "training")
    assert watch.is_current(first)
    watch.ended(first)
    watch.ended(RoleStatus("learner", 0, 1, "h", 3, "training"))
    assert not watch.is_current(first)
    assert not watch.is_current(RoleStatus("learner", 0, 1, "h", 3, "training"))
    assert watch.is_current(RoleStatus("learner", 0, 2, "h", 2, "training"))
    assert watch.is_current(RoleStatus("learner", 0, 3, "h", 1, "training"))
    assert not watch.is_current(RoleStatus("learner", 0, 0, "h", 2, "starting"))
