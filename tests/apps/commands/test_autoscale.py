"""`distrl autoscale` asks a running job to choose its number of actors, and prints what it decides."""

import json
import os
from contextlib import contextmanager

import pytest

from distrl.apps.commands import autoscale, main
from distrl.apps.jobs.record import JobRecord
from distrl.apps.jobs.target import JobState
from distrl.apps.jobs.targets import TARGETS
from distrl.config import RunConfig
from distrl.errors import ConfigError, OutageError
from distrl.launch import wanted_follower
from distrl.memory_backend.backend import connect
from distrl.memory_backend.records import SupervisorStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.runs.directories import Run

SUPERVISOR = SupervisorStatus("h", 1, 1, 3, True, 4, "the learner waits")


@pytest.fixture
def backend(tmp_path, monkeypatch):
    """A run of this directory that may have eight actors."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    record = {"run_id": "r1", "redis_url": "redis://h:1/0", "pid": os.getpid(), "started": 1.5}
    (tmp_path / "runs" / "first" / "run.json").write_text(json.dumps(record))
    twin = connect("local:", "r1", QueueCaps(entries=8, bytes=1000), name="test", give_up_s=1.0)
    twin.create(json.dumps({"config": RunConfig().model_dump(mode="json"), "most_actors": 8}))
    twin.registry.beat_supervisor(SUPERVISOR)

    @contextmanager
    def opened_backend(found):
        yield twin

    monkeypatch.setattr(Run, "backend", opened_backend)
    return twin


def run(capsys, *arguments):
    code = main.main(["autoscale", *arguments])
    return code, *capsys.readouterr()


def asked(backend):
    control = backend.registry.control()
    return control.autoscale, control.min_actors, control.max_actors, control.target_actors


def test_it_is_switched_on_and_watched_to_the_end_of_the_run(capsys, backend, monkeypatch):
    monkeypatch.setattr(wanted_follower, "LOOK_EVERY_S", 0.0)
    beats = iter([SUPERVISOR, SupervisorStatus("h", 1, 1, 4, True, 1, "actors wait")])

    def supervisor():
        status = next(beats, None)
        if status is None:
            backend.registry.set_control(stop="asked")
        return status

    monkeypatch.setattr(backend.registry, "supervisor", supervisor)
    code, out, err = run(capsys, "--max", "6")
    assert (code, err, asked(backend)) == (0, "", (True, 1, 6, None))
    lines = out.splitlines()
    assert lines[0] == "autoscaling requested; end it with distrl autoscale --off"
    assert [line[20:] for line in lines[1:3]] == ["4 actors wanted: the learner waits", "1 actor wanted: actors wait"]
    assert lines[3:] == ["the run ends: asked"]


def test_ctrl_c_leaves_and_changes_nothing(capsys, backend, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(wanted_follower, "follow_wanted", interrupted)
    code, out, err = run(capsys, "runs/first")
    assert (code, err, asked(backend)) == (0, "", (True, 1, 0, None))
    assert out.splitlines()[1:] == ["left; the run goes on to choose its number of actors"]


def test_it_is_switched_on_without_being_watched(capsys, backend):
    assert run(capsys, "--detach", "--max", "4")[:2] == (
        0,
        "autoscaling requested; end it with distrl autoscale --off\n",
    )
    assert asked(backend) == (True, 1, 4, None)


@pytest.mark.parametrize("actors", [3, None])
def test_it_is_switched_off_and_the_number_stays(capsys, backend, actors):
    backend.registry.beat_supervisor(SupervisorStatus("h", 1, 1, actors, True, 4, "the learner waits"))
    assert run(capsys, "--off") == (
        0,
        "end of autoscaling requested; the number of actors stays as it is\n",
        "",
    )
    assert asked(backend) == (False, None, None, actors)


class Place:
    """A target that starts the actors of the run in `backend`, and refuses once to start more than three."""

    starts_actors = True

    def __init__(self, backend):
        self._backend, self.scaled, self.refuses, self.states = backend, [], True, iter(())

    def state(self, record):
        return JobState(next(self.states, "ended"))

    def autoscale(self, record, least, most, *, off):
        self._backend.registry.set_control(autoscale=not off, min_actors=least or 1, max_actors=most or 0)

    def scale(self, record, actors, *, force):
        assert (record.run_id, force) == ("r1", False)
        if actors > 3 and self.refuses:
            self.refuses = False
            raise ConfigError("the queue is full")
        self.scaled.append(actors)


@pytest.fixture
def place(backend, tmp_path, monkeypatch):
    """Makes the run a job of such a target."""
    told = {"run_id": "r1", "target": "place", "address": None, "run_dir": str(tmp_path / "runs" / "first")}
    record = JobRecord.model_validate({**told, "store": None, "actors": 1, "submitted": 1.0, "handles": {}})
    record.write(tmp_path / "runs" / "first")
    place = Place(backend)
    monkeypatch.setitem(TARGETS, "place", lambda: place)
    return place


def test_a_target_that_starts_the_actors_follows_and_is_asked_again_if_it_refuses(capsys, backend, place, monkeypatch):
    monkeypatch.setattr(wanted_follower, "LOOK_EVERY_S", 0.0)
    wanted = iter([2, 2, 5, 5, 5, 3])

    def supervisor():
        number = next(wanted, None)
        if number is None:
            backend.registry.set_control(stop="asked")
        return SupervisorStatus("h", 1, 1, None, True, number, "fed")

    monkeypatch.setattr(backend.registry, "supervisor", supervisor)
    code, out, err = run(capsys, "first", "--max", "8")
    assert (code, err, asked(backend)[:3]) == (0, "", (True, 1, 8))
    assert place.scaled == [2, 5, 3]
    assert [line[20:] for line in out.splitlines()[1:-1]] == [
        "2 actors wanted: fed",
        "5 actors wanted: fed",
        "not followed: the queue is full",
        "3 actors wanted: fed",
    ]


def test_the_next_launch_of_a_requeued_job_is_asked_and_followed_again(capsys, backend, place, monkeypatch):
    """The first launch ends by SIGTERM; the next look finds no Redis, the one after it the next launch."""
    monkeypatch.setattr(autoscale, "RELAUNCH_LOOK_S", 0.0)
    place.states = iter(["stopping", "waiting", "running"])
    launches = iter(["the run ends: SIGTERM", OutageError("no Redis"), "the run ends: SIGTERM", "the run ends: asked"])
    bounds = []

    def follow_wanted(given, act):
        launch = next(launches)
        bounds.append(asked(backend)[:3])
        backend.registry.set_control(min_actors=1, max_actors=0)  # each launch has a Redis of its own
        if isinstance(launch, OutageError):
            raise launch
        act(2, "fed")
        return launch

    monkeypatch.setattr(wanted_follower, "follow_wanted", follow_wanted)
    code, out, err = run(capsys, "first", "--min", "2", "--max", "8")
    assert (code, err, bounds) == (0, "", [(True, 2, 8)] * 4)
    assert place.scaled == [2, 2, 2]
    assert [line for line in out.splitlines() if line.startswith("the run ends")] == [
        "the run ends: SIGTERM",
        "the run ends: asked",
    ]


def test_ctrl_c_ends_the_following_of_such_a_target(capsys, backend, place, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(wanted_follower, "follow_wanted", interrupted)
    code, out, err = run(capsys, "first")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "left; the job keeps its actors, and follows again when you repeat the command"
    assert run(capsys, "first", "--detach") == (
        2,
        "",
        "distrl: error: --detach: jobs on place follow only while this command runs; leave it out\n",
    )


def test_a_number_of_an_operator_ends_autoscaling_of_such_a_target(capsys, backend, place):
    backend.registry.set_control(autoscale=True)
    assert main.main(["scale", "2", "first"]) == 0
    assert (backend.registry.control().autoscale, place.scaled) == (False, [2])


def test_a_job_on_another_host_is_autoscaled_there(capsys, backend, place, tmp_path):
    place.starts_actors = False
    (tmp_path / "runs" / "first" / "run.json").unlink()
    code, out, err = run(capsys, "first", "--min", "2")
    assert (code, err, asked(backend)[:2]) == (0, "", (True, 2))
    assert out.splitlines()[1:] == ["the run is not on this host: distrl logs -f shows its decisions"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--off", "--min", "2"], "--off takes neither --min, --max nor --detach"),
        (["--max", "9"], "actors: 9 is more than this run may have, 8 (actors.max_count)"),
        (["--min", "4", "--max", "2"], "actors: from 4 to 2: the first number must be 1 or more, and not the larger"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(capsys, backend, arguments, message):
    assert run(capsys, *arguments) == (2, "", f"distrl: error: {message}\n")
    assert asked(backend) == (None, None, None, None)
