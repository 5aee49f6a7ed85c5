import threading

import pytest

from distrl.apps.jobs.record import JobRecord
from distrl.apps.jobs.target import OVER, JobState, LogLine, NoAnswerError
from distrl.apps.jobs.targets import TARGETS
from distrl.apps.jobs.watching import facts_of, job_words, state_of, states_of, watch
from distrl.errors import ConfigError
from distrl.runs.summary import Summary
from tests.run_folders import ENDED, make_run

RECORD = JobRecord(
    run_id="pong",
    target="place",
    address=None,
    run_dir="/nowhere/pong",
    store=None,
    actors=2,
    submitted=1.0,
    handles={},
)
LINES = [LogLine(1.0, "job", "one"), LogLine(2.0, "actor 3", "two")]


class Place:
    """A target with a given sequence of states, the last of which stays."""

    def __init__(self, *states, lines=LINES):
        self.states, self.lines, self.followed = [*states], lines, None

    def state(self, record):
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def log(self, record, *, follow):
        self.followed = follow
        return None if self.lines is None else iter(self.lines)


@pytest.fixture
def watched(monkeypatch, tmp_path):
    """Watches the job at a target, without pauses."""
    monkeypatch.setattr("distrl.apps.jobs.watching.WAIT_POLL_S", 0.001)

    def watched(place, *, follow, report=pytest.fail, run_dir=tmp_path):
        monkeypatch.setitem(TARGETS, "place", lambda: place)
        return list(watch(RECORD, run_dir, follow=follow, report=report))

    return watched


def test_before_the_start_the_reason_is_told_each_time_that_it_changes(watched):
    waits = [JobState("waiting", reason) for reason in ("Resources", "Resources", "Priority")]
    told = []
    assert watched(Place(*waits, JobState("running")), follow=True, report=told.append) == LINES
    assert told == ["pong on place waits: Resources", "pong on place waits: Priority"]


def test_while_it_is_followed_a_job_says_why_parts_of_it_wait(watched, monkeypatch):
    monkeypatch.setattr("distrl.apps.jobs.watching.REASON_EVERY_S", 0.0)
    runs = [JobState("running", reason) for reason in ("", "", "2 wait", "2 wait", "1 waits", "")]
    told = []
    assert watched(Place(*runs, lines=LINES * 3), follow=True, report=told.append) == LINES * 3
    assert told == ["pong on place runs: 2 wait", "pong on place runs: 1 waits"]


def test_without_following_a_job_that_waits_is_not_waited_for(watched):
    place, told = Place(JobState("waiting", "Resources"), lines=[]), []
    assert watched(place, follow=False, report=told.append) == []
    assert (told, place.followed) == (["pong on place waits: Resources"], False)


@pytest.fixture
def left(tmp_path):
    """A log that is left in the run's directory."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "learner.log").write_text("2026-01-02 03:04:05,000 learner INFO begins\n")


def test_what_the_target_has_forgotten_is_read_from_the_directory(watched, left, tmp_path):
    place = Place(JobState("gone"), lines=None)
    (line,) = watched(place, follow=True)
    assert (line.role, line.text) == ("learner", "INFO begins")
    with pytest.raises(ConfigError, match="no log of pong is left: /nowhere/pong is gone"):
        watched(place, follow=True, run_dir=tmp_path / "gone")


def test_a_target_that_cannot_be_asked_hides_no_log_that_is_left(watched, left, tmp_path):
    class Silent(Place):
        def state(self, record):
            raise ConfigError("no answer")

    told = []
    (line,) = watched(Silent(), follow=False, report=told.append)
    assert (line.text, told) == ("INFO begins", ["pong on place cannot be asked for: no answer"])
    for follow, folder in ((True, tmp_path), (False, tmp_path / "gone")):
        with pytest.raises(ConfigError, match="no answer"):
            watched(Silent(), follow=follow, run_dir=folder)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (JobState("running"), "pong on place runs"),
        (JobState("failed", "no\nroom \x1b[2J", 2), "pong on place has failed: no room ?[2J"),
        (JobState("gone", "killed"), "pong on place is gone: killed"),
    ],
)
def test_a_state_is_one_line(state, words):
    assert job_words(RECORD, state) == words


def test_a_target_that_cannot_be_asked_hides_nothing():
    state = state_of(RECORD)
    assert (state.state, state.exit_code) == ("unknown", None)
    assert state.reason.startswith("unknown target place")
    facts = facts_of(RECORD, state)
    assert (facts["run_id"], facts["state"], facts["actors"]) == ("pong", "unknown", 2)


def test_an_address_that_does_not_answer_is_asked_once(monkeypatch):
    asked = []

    class Silent:
        def state(self, record):
            asked.append(record.run_id)
            raise (NoAnswerError if record.address == "away" else ConfigError)(f"no {record.run_id}")

    monkeypatch.setitem(TARGETS, "place", Silent)
    places = [("one", "away"), ("two", "away"), ("three", "here"), ("four", "here")]
    records = [RECORD.model_copy(update={"run_id": run_id, "address": address}) for run_id, address in places]
    assert [state.reason for state in states_of(records)] == ["no one", "no one", "no three", "no four"]
    assert sorted(asked) == ["four", "one", "three"]


@pytest.mark.parametrize(
    ("summary", "state"),
    [
        ({"stop_reason": "mean_return"}, "solved"),
        ({"stop_reason": "updates"}, "ended"),
        ({"stop_reason": "asked"}, "stopped"),
        ({"stop_reason": "Ctrl-C", "exit_code": 130}, "interrupted"),
        ({"stop_reason": "SIGTERM", "exit_code": 143}, "interrupted"),  # as `launch.sigterm_exit_code` says
        ({"stop_reason": "stalled", "exit_code": 4}, "failed"),
    ],
)
def test_a_job_ends_as_lists_say_that_its_run_has_ended(summary, state):
    found = JobState.of(Summary.model_validate({**ENDED, **summary}))
    assert (found.state, found.exit_code, found.state in OVER) == (state, summary.get("exit_code", 0), True)


def test_a_job_whose_target_is_gone_has_ended_as_its_summary_says(monkeypatch, tmp_path):
    class Silent:
        def state(self, record):
            raise NoAnswerError("no answer")

    monkeypatch.setitem(TARGETS, "place", Silent)
    folder = make_run(tmp_path / "pong", run_id="pong", summary={"exit_code": 3, "error": "worlds fail"})
    record = RECORD.model_copy(update={"run_dir": str(folder), "address": "away"})
    assert state_of(record) == JobState("failed", "worlds fail", 3)
    lost = RECORD.model_copy(update={"address": "away"})
    other = record.model_copy(update={"run_id": "other"})
    states = states_of([lost, record, other])
    assert [state.state for state in states] == ["unknown", "failed", "unknown"]


def test_all_addresses_are_asked_at_once(monkeypatch):
    """Each waits until all have been asked; in turn, the first one would wait for ever."""
    all_asked = threading.Barrier(3, timeout=60.0)

    class Slow:
        def state(self, record):
            all_asked.wait()
            return JobState("waiting", record.address)

    monkeypatch.setitem(TARGETS, "place", Slow)
    records = [RECORD.model_copy(update={"address": address}) for address in ("one", "two", "three")]
    assert [state.reason for state in states_of(records)] == ["one", "two", "three"]


def test_what_answers_is_known_though_another_address_never_answers(monkeypatch):
    monkeypatch.setattr("distrl.apps.jobs.watching.SILENT_S", 0.1)
    done = threading.Event()

    class Stuck:
        def state(self, record):
            if record.address == "away":
                done.wait(60.0)
            return JobState("running")

    monkeypatch.setitem(TARGETS, "place", Stuck)
    records = [RECORD.model_copy(update={"address": address}) for address in ("away", "here", "here")]
    try:
        assert states_of(records) == [
            JobState("unknown", "its target has not answered for 0.1 s", silent=True),
            *[JobState("running")] * 2,
        ]
    finally:
        done.set()


def test_a_defect_of_a_target_is_raised_where_it_is_asked(monkeypatch):
    class Broken:
        def state(self, record):
            raise KeyError(record.run_id)

    monkeypatch.setitem(TARGETS, "place", Broken)
    with pytest.raises(KeyError, match="pong"):
        states_of([RECORD])
