import os
import random
import signal
import socket
from dataclasses import replace

import pytest

from distrl.errors import ConfigError, MemoryBackendError
from distrl.launch import chaos
from distrl.launch.chaos import Chaos
from distrl.memory_backend.records import RoleStatus

HERE = socket.gethostname()
ROLES = [
    RoleStatus("learner", 0, 3, HERE, 10, "training"),
    *(RoleStatus("actor", number, 1, HERE, 20 + number, "acting") for number in range(3)),
    RoleStatus("actor", 3, 1, "elsewhere", 23, "acting"),
]


@pytest.fixture
def killed(backend, clock, monkeypatch):
    """Processes that were killed. Their successors are at work after 2 s, unless they are in `lost`."""
    killed, due, lost, alive = [], [], set(), {}

    def begin(role):
        alive[role.role, role.id] = role
        backend.registry.beat(role)

    def kill(pid, number):
        assert number == signal.SIGKILL
        killed.append(pid)
        (role,) = [role for role in alive.values() if role.pid == pid]
        del alive[role.role, role.id]
        if pid not in lost:
            successor = replace(role, incarnation=role.incarnation + 1, pid=pid + 100)
            due.append((clock.now + 2.0, successor))
            begin(replace(successor, state="starting"))

    def sleep(seconds):
        clock.now += seconds
        for at, successor in due:
            if clock.now >= at and successor.incarnation == alive[successor.role, successor.id].incarnation:
                alive[successor.role, successor.id] = replace(successor, beat=alive[successor.role, successor.id].beat)
        for role in list(alive.values()):
            begin(replace(role, beat=role.beat + 1))

    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(chaos.time, "sleep", sleep)
    monkeypatch.setattr(chaos.time, "monotonic", clock)
    for role in ROLES:
        begin(role)
    return killed, lost


def test_one_role_after_the_other_is_killed_and_comes_back(backend, killed):
    told = []
    kills = Chaos(backend, {"actor"}, 15.0, random.Random(0)).run(10.0, 60.0, told.append)
    assert len(kills) == len(killed[0]) == 6
    assert all(2.0 <= kill.back_after_s < 2.3 for kill in kills)
    assert {kill.name for kill in kills} <= {"actor 0", "actor 1", "actor 2"}  # not the learner, no role elsewhere
    assert told[0] == f"killing {kills[0].name} (process {kills[0].pid})"
    assert told[1] in {f"  back after {seconds} s" for seconds in (2.0, 2.1, 2.2)}


def test_who_does_not_come_back_is_told_and_not_killed_again(backend, killed):
    killed[1].add(10)
    told = []
    with pytest.raises(ConfigError, match="no learner of this run is at work"):
        Chaos(backend, {"learner"}, 5.0, random.Random(0)).run(10.0, 60.0, told.append)
    assert told == ["killing learner (process 10)", "  not back after 5.0 s"]
    assert killed[0] == [10]


def test_the_others_go_on(backend, killed):
    killed[1].add(20)
    kills = Chaos(backend, {"actor"}, 5.0, random.Random(0)).run(10.0, 200.0, print)
    assert [kill.pid for kill in kills if kill.back_after_s is None] == [20]
    assert len(kills) == 20


@pytest.mark.parametrize(
    ("state", "at_work"),
    [
        *(("starting", False), ("starting: importing the framework", False), ("waiting: policy", False)),
        *(("stopping", False), ("acting", True), ("training", True), ("evaluating", True), ("differentiating", True)),
        *(("waiting: room", True), ("paused", True), ("filling the replay memory: 3 of 9 steps", True)),
    ],
)
def test_states_of_work(state, at_work):
    victim = ROLES[0]
    assert chaos._succeeds(replace(victim, incarnation=4, state=state), victim) == at_work
    assert not chaos._succeeds(replace(victim, state=state), victim)


def test_nobody_is_killed_of_a_run_that_stops(backend, killed):
    backend.registry.set_control(stop="asked")
    told = []
    assert Chaos(backend, {"actor"}, 15.0, random.Random(0)).run(10.0, 60.0, told.append) == []
    assert (killed[0], told) == ([], ["the run has ended"])


def test_a_run_that_stops_meanwhile_owes_nobody(backend, killed, monkeypatch):
    """The role that was killed last could not come back."""
    killed[1].update(role.pid for role in ROLES)
    sleep, calls = chaos.time.sleep, []

    def stop_later(seconds):
        calls.append(seconds)
        if killed[0] and len(calls) > 60:
            backend.registry.set_control(stop="mean_return")
        sleep(seconds)

    monkeypatch.setattr(chaos.time, "sleep", stop_later)
    assert Chaos(backend, {"actor"}, 500.0, random.Random(0)).run(10.0, 60.0, print) == []
    assert len(killed[0]) == 1


def test_a_redis_that_went_with_its_run_leaves_the_tally(backend, killed, monkeypatch):
    roles = backend.registry.roles

    def gone():
        if len(killed[0]) == 2:
            raise MemoryBackendError("Redis is unreachable")
        return roles()

    monkeypatch.setattr(backend.registry, "roles", gone)
    told = []
    kills = Chaos(backend, {"actor"}, 15.0, random.Random(0)).run(10.0, 60.0, told.append)
    assert len(kills) == 1
    assert told[-1] == "the run has ended: Redis is unreachable"


def test_a_process_that_has_just_ended_counts(backend, killed, monkeypatch):
    kill = os.kill

    def gone(pid, number):
        kill(pid, number)
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", gone)
    told = []
    (first, *_) = Chaos(backend, {"actor"}, 15.0, random.Random(0)).run(10.0, 10.0, told.append)
    assert first.back_after_s is not None
    assert told[1] == "  it was gone already"


def test_what_cannot_be_killed_is_an_error(backend, killed, monkeypatch):
    def refused(pid, number):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    with pytest.raises(ConfigError, match="is another user's"):
        Chaos(backend, {"actor"}, 15.0, random.Random(0)).run(10.0, 60.0, print)


def test_there_must_be_somebody_to_kill(backend, killed):
    with pytest.raises(ConfigError, match=f"no evaluator of this run is at work on {HERE}"):
        Chaos(backend, {"evaluator"}, 15.0, random.Random(0)).run(10.0, 60.0, print)
