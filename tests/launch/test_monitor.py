"""Snapshots reach every file, in order and once; what the summary needs is kept."""

import csv
import threading
from contextlib import nullcontext
from dataclasses import replace
from typing import ClassVar

import pytest

from distrl.config import RunConfig
from distrl.config.settings import Setting
from distrl.errors import ConfigError
from distrl.launch.monitor import Monitor
from distrl.memory_backend.records import Estimate, Evaluation, Request, RoleStatus
from distrl.observers.metrics_csv import CsvSink
from distrl.observers.observer import Observer
from distrl.observers.terminal import Terminal
from distrl.runs.evaluations import read_evaluations
from tests.event_files import read_events
from tests.forging import add_to_ledger

ACTOR = RoleStatus("actor", 0, 1, "host", 1, "acting", rss_mb=90.0, peak_rss_mb=100.0)
LEARNER = RoleStatus("learner", 0, 1, "host", 1, "training", peak_rss_mb=500.0)


def snapshot(updates, wall_s, **others):
    return {"updates": updates, "env_steps": 100 * updates, "wall_s": wall_s, "updates_per_s": 7.0, **others}


@pytest.fixture
def make_monitor(tmp_path, view):
    (tmp_path / "logs").mkdir()
    made = []

    def make(**config):
        view.script = [lambda: None] * 10
        made.append(Monitor("r", tmp_path, RunConfig.model_validate(config), view))
        return made[-1]

    yield make
    for monitor in made:
        monitor.end(None)


def rows(run_dir):
    with (run_dir / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_snapshot_is_taken_once_with_what_only_the_supervisor_knows(make_monitor, backend, tmp_path):
    monitor = make_monitor()
    backend.registry.add_snapshot(snapshot(1, 1.0))
    monitor.update(backend, [ACTOR, LEARNER])
    monitor.update(backend, [ACTOR, LEARNER])
    backend.registry.add_snapshot(snapshot(2, 2.0))
    backend.registry.add_snapshot(snapshot(3, 3.0))
    monitor.fleet.restarts = 4
    monitor.update(backend, [ACTOR, replace(ACTOR, id=1), LEARNER])
    told = [(row["updates"], row["actors_up"], row["restarts"]) for row in rows(tmp_path)]
    assert told == [("1", "1", "0"), ("2", "2", "4"), ("3", "2", "4")]
    assert (monitor.updates, monitor.totals.latest["env_steps"]) == (3, 300)


def test_a_notice_of_a_role_is_told_once(make_monitor, backend, tmp_path):
    monitor = make_monitor()
    for notice in ("", "no film: full", "no film: full", "", "no film: full again"):
        monitor.update(backend, [replace(ACTOR, role="evaluator", notice=notice)])
    told = [line.split(" ", 2)[2] for line in (tmp_path / "logs" / "events.log").read_text().splitlines()]
    assert told == ["evaluator: no film: full", "evaluator: no film: full again"]


def test_what_all_roles_take_is_told_together(make_monitor, backend, tmp_path):
    monitor = make_monitor()
    backend.registry.add_snapshot(snapshot(1, 1.0))
    monitor.update(backend, [replace(ACTOR, cpu_share=0.25), replace(LEARNER, rss_mb=410.5, cpu_share=0.9)])
    assert [(row["rss_mb"], row["cpu_cores"]) for row in rows(tmp_path)] == [("500.5", "1.15")]


def test_what_operators_ask_is_written_down_once(make_monitor, backend, tmp_path, view):
    monitor = make_monitor()
    backend.registry.add_request(Request("ada@box, dashboard", "pause"))
    monitor.report_requests(backend)
    monitor.report_requests(backend)
    backend.registry.add_request(Request("ada@box, command line", "resume"))
    monitor.report_requests(backend)
    told = ["asked: pause (by ada@box, dashboard)", "asked: resume (by ada@box, command line)"]
    assert view.events == told
    assert [line[20:] for line in (tmp_path / "logs" / "events.log").read_text().splitlines()] == told


def test_a_disk_that_refuses_costs_numbers_and_events_and_not_the_training(
    make_monitor, backend, tmp_path, view, monkeypatch
):
    monitor = make_monitor()
    refuses = True
    write = CsvSink.write

    def sometimes(sink, snapshot):
        if refuses:
            raise OSError(28, "No space left on device")
        write(sink, snapshot)

    monkeypatch.setattr(CsvSink, "write", sometimes)
    for updates in (1, 2):
        backend.registry.add_snapshot(snapshot(updates, float(updates)))
        monitor.update(backend, [LEARNER])
    refuses = False
    backend.registry.add_snapshot(snapshot(3, 3.0))
    monitor.update(backend, [LEARNER])
    assert view.events == ["metrics.csv cannot be written: [Errno 28] No space left on device"]
    assert monitor.updates == 3
    assert [row["updates"] for row in rows(tmp_path)] == ["3"]


def test_actors_that_wait_for_the_learner_are_told_of_and_at_the_end_over_the_whole_run(
    make_monitor, backend, tmp_path
):
    monitor = make_monitor()
    waiting = [replace(ACTOR, blocked_share=0.5), replace(ACTOR, id=1, blocked_share=0.75), LEARNER]
    backend.registry.add_snapshot(snapshot(1, 1.0))
    monitor.update(backend, [LEARNER])
    for number, roles in ((2, waiting), (3, [ACTOR, LEARNER])):
        backend.registry.add_snapshot(snapshot(number, float(number)))
        monitor.update(backend, roles)
    backend.registry.add_snapshot({**snapshot(4, 4.0), "stop_reason": "asked"})
    monitor.update(backend, [LEARNER])
    told = [row["actors_blocked_share"] for row in rows(tmp_path)]
    assert told == ["", "0.625", "0.0", "0.3125"]
    assert monitor.totals.latest["actors_blocked_share"] == 0.3125


def test_memory_is_the_highest_ever_seen(make_monitor, backend):
    monitor = make_monitor()
    monitor.update(backend, [ACTOR, LEARNER])
    monitor.update(backend, [replace(ACTOR, incarnation=2, peak_rss_mb=80.0)])
    assert monitor.totals.peak_rss_mb == {"actor 0": 100.0, "learner": 500.0}


def test_the_newest_ledger_is_kept(make_monitor, backend):
    monitor = make_monitor()
    assert monitor.ledger.produced == 0
    learner = backend.become_learner()
    add_to_ledger(backend, {"produced": 3, "trained": 3})
    learner.ledger.recover(0)
    monitor.update(backend, [])
    assert monitor.ledger.rolled_back == 3


def test_a_fail_over_of_redis_is_an_event(make_monitor, backend, tmp_path):
    monitor = make_monitor()
    learner = backend.become_learner()
    learner.ledger.recover(0)
    learner.engine.failovers += 1
    learner.ledger.recover(0)
    add_to_ledger(backend, {"produced": 5, "lost": 5, "lost_to_failover": 3})
    for _ in range(2):
        monitor.update(backend, [])
    told = (tmp_path / "logs" / "events.log").read_text()
    assert told.count("Redis has failed over or was restarted (1 so far)") == 1
    assert told.count("3 unrolls were lost to a fail-over of Redis") == 1


def test_rates_are_of_this_launch_after_its_first_snapshot(make_monitor, backend):
    monitor = make_monitor()
    assert monitor.totals.rate("updates") == 0.0
    backend.registry.add_snapshot(snapshot(1000, 60.0))  # resumed: an hour's updates are not this minute's
    monitor.update(backend, [])
    assert monitor.totals.rate("updates") == 7.0  # one snapshot alone: what it says
    backend.registry.add_snapshot(snapshot(1030, 62.0))
    monitor.update(backend, [])
    assert monitor.totals.rate("updates") == 15.0
    assert monitor.totals.rate("env_steps") == 1500.0


def test_events_go_to_the_user_and_to_the_log(make_monitor, view, tmp_path):
    make_monitor().event("actor 1 started again")
    assert view.events == ["actor 1 started again"]
    assert (tmp_path / "logs" / "events.log").read_text().endswith(" actor 1 started again\n")


@pytest.mark.parametrize("actors", [0, 1])
def test_tensorboard_has_every_snapshot_at_once_and_no_thread_writes_it(make_monitor, backend, tmp_path, actors):
    before = set(threading.enumerate())
    monitor = make_monitor(actors={"count": actors})
    backend.registry.add_snapshot(snapshot(1, 1.0, mean_return_100=21.5))
    monitor.update(backend, [])
    assert set(threading.enumerate()) == before
    assert read_events(tmp_path / "tensorboard").scalars["return/mean_return_100", 100] == 21.5


def test_the_user_is_told_once_when_rounds_go_on_without_somebody(make_monitor, backend, view):
    monitor = make_monitor()
    for updates, missing in enumerate((None, "actor 1", "actor 1", "actor 1, actor 2", None, None)):
        backend.registry.add_snapshot(snapshot(updates, float(updates), missing_workers=missing))
    monitor.update(backend, [])
    assert view.events == [
        "rounds go on without actor 1",
        "rounds go on without actor 1, actor 2",
        "rounds have every worker again",
    ]


def test_events_are_lines_without_escape_sequences(make_monitor, view, tmp_path):
    make_monitor().event("actor 0 ended: \x1b[2J\x00\nboom ±")
    assert view.events == ["actor 0 ended: ?[2J? boom ±"]
    assert (tmp_path / "logs" / "events.log").read_text().endswith(" actor 0 ended: ?[2J? boom ±\n")


def test_the_user_is_told_once_when_a_disk_refuses(make_monitor, backend, view):
    monitor = make_monitor()
    successor = (None, None)  # a learner that has not saved yet
    for updates, (why, age_s) in enumerate(
        ((None, 1.0), ("disk full", 2.0), successor, ("disk full", None), ("disk full", 3.0), (None, 0.1), (None, 1.0))
    ):
        backend.registry.add_snapshot(snapshot(updates, float(updates), unsaved=why, checkpoint_age_s=age_s))
    monitor.update(backend, [])
    assert view.events == ["no checkpoint can be written: disk full", "checkpoints are written again"]


def test_a_store_that_does_not_answer_is_told_once_and_that_it_does_again(make_monitor, backend, view):
    monitor = make_monitor()
    for updates, (why, age_s) in enumerate(
        ((None, 1.0), ("no answer", 2.0), ("no answer", 3.0), ("no answer for x", 4.0), (None, 1.0), (None, 2.0))
    ):
        backend.registry.add_snapshot(snapshot(updates, float(updates), unstored=why, checkpoint_age_s=age_s))
    monitor.update(backend, [])
    assert view.events == [
        "the data store lacks the newest checkpoint: no answer; it is tried again",
        "checkpoints are stored again",
    ]


def test_how_a_learner_began_is_told_once_where_operators_must_know(make_monitor, backend, view):
    monitor = make_monitor()
    for updates, origin in enumerate((None, "begins anew: x", "begins anew: x", "goes on: y")):
        backend.registry.add_snapshot(snapshot(updates, float(updates), origin=origin))
    monitor.update(backend, [])
    assert view.events == ["the learner begins anew: x", "the learner goes on: y"]


def test_metrics_that_no_info_has_are_told_once(make_monitor, backend, view):
    monitor = make_monitor()
    for updates, unreported in enumerate((None, "speed, height", "speed, height", "speed", None)):
        backend.registry.add_snapshot(snapshot(updates, float(updates), unreported=unreported))
    monitor.update(backend, [])
    said = "environment.metrics: info of the last 100 episodes does not have"
    assert view.events == [f"{said} speed, height", f"{said} speed"]


def test_every_evaluation_is_told_once(make_monitor, backend, tmp_path, view):
    monitor = make_monitor()
    found = Evaluation(3, 100_290, 20, 478.25, 12.5, 440.0, 500.0, 478.25, 1.5, metrics={"x": 0.75, "y": None})
    evaluator = backend.registry.register("evaluator")
    backend.registry.add_evaluation(found, b"", evaluator)
    monitor.update(backend, [])
    monitor.update(backend, [])
    told = "evaluation at 100,290 steps: return 478.2 ± 12.5 over 20 episodes, x 0.75"
    assert view.events == [told]
    backend.registry.add_evaluation(replace(found, best_by="y"), b"", evaluator)
    monitor.update(backend, [])
    told += "; not the best, as y is unknown (evaluation.best_by)"
    assert view.events[1:] == [told]
    assert (tmp_path / "logs" / "events.log").read_text().endswith(f"{told}\n")
    recorded = read_evaluations(tmp_path / "evaluations.jsonl")
    assert len(recorded) == len(view.events)
    first = recorded[0]
    assert (first.env_steps, first.min_return, first.max_return, first.metrics["y"]) == (100_290, 440.0, 500.0, None)


def test_an_evaluation_is_told_with_its_further_results(make_monitor, backend, view, tmp_path):
    monitor = make_monitor()
    own = Evaluation(3, 100, 20, 9.0, 0.0, 9.0, 9.0, 9.0, 1.5)
    hard = Evaluation(3, 100, 20, 4.0, 0.5, 3.5, 4.5, 9.0, 1.5, success_rate=0.25, metrics={"x": 2.0}, cut_episodes=2)
    found = replace(own, others={"hard": hard, "far": own})
    backend.registry.add_evaluation(found, b"", backend.registry.register("evaluator"))
    monitor.update(backend, [])
    there = "return 4.00 ± 0.50 over 20 episodes, 25.0% of them successful, x 2.00"
    there += ", 2 of them cut short at evaluation.max_episode_steps"
    alike = "return 9.00 ± 0.00 over 20 episodes"
    assert view.events == [f"evaluation at 100 steps: {alike}; in hard: {there}; in far: {alike}"]
    estimates = (Estimate("fqe", 7.5, 7.0, 8.25), Estimate("wis", 6.0), Estimate("ips", problem="no weights"))
    found = replace(own, mean_discounted_return=7.0, estimates=estimates)
    backend.registry.add_evaluation(found, b"", 1)
    monitor.update(backend, [])
    told = "discounted 7.00, estimated by fqe 7.5 (7 … 8.25), wis 6, ips: unknown (no weights)"
    assert view.events[1:] == [f"evaluation at 100 steps: {alike}; {told}"]
    (recorded,) = [one for one in read_evaluations(tmp_path / "evaluations.jsonl") if one.estimates]
    assert recorded.estimates == estimates


# ------------------------------------------------------------------------------------------------------- the observers


class Recording(Observer):
    """Keeps the names of calls, over all instances."""

    calls: ClassVar[list[str]] = []

    def __init__(self, run):
        self.run = run
        self.calls.append("made")

    def event(self, text):
        self.calls.append(f"event {text}")

    def end(self, summary):
        self.calls.append("ended")
        self.run.report("late")
        return {"mine": "one row is missing"}


class Refusing(Observer):
    def __init__(self, run):
        raise ConfigError("mine is damaged")

    def event(self, text):
        raise OSError(28, "No space left on device")


@pytest.fixture
def observed(tmp_path, view, monkeypatch):
    """observed(*observers): a monitor of these alone, in a run without files."""
    monkeypatch.setattr(Recording, "calls", [])
    return lambda *observers: Monitor("r", tmp_path, RunConfig(), view, observers=observers)


def test_observers_may_report_until_the_last_has_ended_and_say_what_they_lack(observed):
    monitor = observed(Recording, Terminal)
    monitor.event("one")
    assert monitor.end(None) == {"mine": "one row is missing"}
    assert Recording.calls == ["made", "event one", "ended", "event late"]


def test_an_observer_that_refuses_the_launch_lets_those_before_it_end(observed):
    with pytest.raises(ConfigError, match="mine is damaged"):
        observed(Recording, Refusing)
    assert Recording.calls == ["made", "ended", "event late"]


def test_all_observers_end_although_one_fails(observed, monkeypatch):
    monkeypatch.setattr(Refusing, "__init__", lambda self, run: None)
    monkeypatch.setattr(Refusing, "event", Observer.event)
    monkeypatch.setattr(Refusing, "end", lambda self, summary: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        observed(Refusing, Recording).end(None)
    assert "ended" in Recording.calls


@pytest.mark.parametrize("writes", [None, "mine"])
def test_an_error_of_a_file_ends_the_run_unless_the_observer_names_the_file(observed, view, monkeypatch, writes):
    monkeypatch.setattr(Refusing, "__init__", lambda self, run: None)
    monkeypatch.setattr(Refusing, "writes", writes)
    monitor = observed(Refusing)
    with nullcontext() if writes else pytest.raises(OSError, match="No space left on device"):
        monitor.event("one")
        monitor.event("two")
    assert view.events == (["mine cannot be written: [Errno 28] No space left on device"] if writes else [])


# ------------------------------------------------------------------------------------------ the configuration as text

SETTINGS = {"seed": Setting(3, "flag --seed"), "memory.url": Setting("redis://•••@host", "default")}


@pytest.mark.row("P02.12", "P03")
def test_the_configuration_and_more_are_in_tensorboard_as_text(make_monitor, tmp_path):
    monitor = make_monitor(tensorboard={"meta": {"note": "why", "api_key": "s3cret", "ones": [[1, 1], [1, 1]]}})
    monitor.begin(SETTINGS)
    texts = read_events(tmp_path / "tensorboard").texts
    assert texts.keys() == {"configuration", "meta"}
    assert "| seed | 3 | flag --seed |" in texts["configuration"]
    assert "**note**: why" in texts["meta"]
    assert "**api_key**: •••" in texts["meta"]


@pytest.mark.row("P02.12", "P02.13")
@pytest.mark.parametrize(
    ("labels", "texts", "told"),
    [
        ([], set(), []),
        (["configuration"], {"configuration"}, []),
        (["print_configuration"], set(), ["seed: 3", "memory.url: redis://•••@host"]),
    ],
)
def test_a_label_says_where_the_configuration_is_told(make_monitor, view, tmp_path, labels, texts, told):
    monitor = make_monitor(tensorboard={"labels": labels})
    monitor.begin(SETTINGS)
    assert read_events(tmp_path / "tensorboard").texts.keys() == texts
    assert view.events == told


@pytest.mark.parametrize("directory", ["/proc/nothing", "logs/file"])
def test_a_directory_that_cannot_be_is_one_line(make_monitor, tmp_path, directory):
    (tmp_path / "logs" / "file").touch()
    with pytest.raises(
        ConfigError, match=rf"TensorBoard's files cannot be written to .*{directory} \(.*\); set tensorb"
    ):
        make_monitor(tensorboard={"directory": directory})


def test_event_files_go_where_they_are_told_to(make_monitor, backend, tmp_path):
    monitor = make_monitor(tensorboard={"directory": "curves/first"})
    backend.registry.add_snapshot(snapshot(1, 1.0, loss=0.5))
    monitor.update(backend, [])
    assert read_events(tmp_path / "curves" / "first").scalars["loss/loss", 100] == 0.5
    assert not (tmp_path / "tensorboard").exists()


def test_a_paused_run_is_shown_without_a_rate_though_its_last_snapshot_had_one(
    make_monitor, backend, view, monkeypatch
):
    shown = []
    monkeypatch.setattr(view, "update", lambda snapshot, roles, config: shown.append(snapshot))
    monitor = make_monitor()
    monitor.update(backend, [replace(ACTOR, state="paused")])
    backend.registry.add_snapshot(snapshot(1, 1.0, env_steps_per_s=9.0))
    for state in ("paused", "acting"):
        monitor.update(backend, [replace(ACTOR, state=state), replace(LEARNER, state="waiting: unrolls")])
    assert shown[0] == {}
    assert [(one["env_steps_per_s"], one["updates_per_s"]) for one in shown[1:]] == [(0.0, 0.0), (9.0, 7.0)]
    assert monitor.totals.latest["env_steps_per_s"] == 9.0  # what the learner said stays what is written down


def test_rows_of_roles_are_written_where_they_are_wanted(make_monitor, backend, tmp_path):
    make_monitor().update(backend, [ACTOR, LEARNER])
    assert not (tmp_path / "roles.csv").exists()
    make_monitor(launch={"role_rows_s": 5.0}).update(backend, [ACTOR, LEARNER])
    assert [line.split(",")[1] for line in (tmp_path / "roles.csv").read_text().splitlines()] == [
        *("role", "actor", "learner"),
    ]
