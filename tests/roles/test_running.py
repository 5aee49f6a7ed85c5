"""However a role ends, its process says so with an exit code and one line in its log."""

import logging
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import distrl
from distrl.errors import ConfigError, EnvironmentFailedError, FencedError, MissingRunError, NonFiniteError
from distrl.memory_backend.records import RoleStatus
from distrl.roles import actor, learner, presence, running
from distrl.roles.description import RunAddress
from distrl.roles.lifeline import LIFELINE_VARIABLE
from distrl.roles.plan import Role
from distrl.roles.running import run_role
from distrl.roles.trust import Trust


class Ends:
    """A role whose `run` raises, or returns where `error` is None."""

    error: BaseException | None = None

    def __init__(self, *_):
        pass

    def run(self):
        if self.error is not None:
            raise self.error


@pytest.fixture(params=["actor", "learner"])
def role(request, monkeypatch):
    monkeypatch.setattr(actor, "ActorRole", Ends)
    monkeypatch.setattr(learner, "LearnerRole", Ends)
    return Role(request.param)


def run(role):
    return run_role(role, RunAddress("unix:///nowhere", "r", Trust()), threading.Event())


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (EnvironmentFailedError("environment X failed in step: boom"), 3, "environment X failed in step: boom"),
        (NonFiniteError("update 7 is not finite"), 5, "update 7 is not finite"),
        (FencedError("another learner runs r"), 6, "another learner runs r"),
        (ValueError("first\n  second"), 1, "unexpected ValueError: first second"),
        (KeyboardInterrupt("by its own"), 1, "unexpected KeyboardInterrupt: by its own"),
        (SystemExit(0), 1, "code of the run called sys.exit(0), which only its end may; raise an error"),
    ],
)
def test_an_error_is_one_marked_line_a_traceback_and_its_code(role, monkeypatch, caplog, error, code, line):
    monkeypatch.setattr(Ends, "error", error)
    with caplog.at_level(logging.INFO, logger="distrl"):
        assert run(role) == code
    traceback, marked = caplog.records
    assert marked.getMessage() == f"distrl: error: {line}"
    assert traceback.exc_info is not None
    assert traceback.exc_info[1] is error


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_that_has_ended_before_an_actor_heard_of_it_is_a_clean_end(role, monkeypatch, caplog, ended):
    monkeypatch.setattr(Ends, "error", MissingRunError("run r is gone", ended=ended))
    with caplog.at_level(logging.INFO, logger="distrl"):
        assert run(role) == (0 if ended and role.kind == "actor" else 6)
    assert "run r is gone" in caplog.text


def test_a_clean_end_is_0(role, caplog):
    assert run(role) == 0
    assert caplog.records == []


def test_a_redis_that_is_not_there_is_6(caplog, tmp_path):
    assert run_role(Role("actor"), RunAddress(f"unix://{tmp_path}/s", "r", Trust()), threading.Event()) == 6
    assert "distrl: error: Redis at unix://" in caplog.text


@pytest.mark.parametrize("lives", [True, False])
@pytest.mark.parametrize(
    ("role", "error"),
    [
        (Role("learner"), "run r has learner, process 42 on host host; stop it first"),
        (Role("actor", 7), "run r has actor 7, process 42 on host host; choose another --id, or use distrl actors"),
    ],
)
def test_a_role_joins_only_when_the_one_in_its_place_is_gone(backend, monkeypatch, lives, role, error):
    backend.registry.beat(RoleStatus("actor", 8, 1, "host", 43, "acting"))
    status = RoleStatus(role.kind, role.id, 1, "host", 42, "training", beat=1)
    backend.registry.beat(status)

    def two_heartbeats_pass(_: float) -> None:
        if lives:
            backend.registry.beat(replace(status, beat=3))

    monkeypatch.setattr(running, "join", lambda *_: (backend, None))
    monkeypatch.setattr(presence, "LOOK_S", 0.05)
    monkeypatch.setattr(presence.time, "sleep", two_heartbeats_pass)
    if not lives:
        running.refuse_second(role, RunAddress("unix:///x", "r", Trust()))
        return
    with pytest.raises(ConfigError, match=error):
        running.refuse_second(role, RunAddress("unix:///x", "r", Trust()))


DONE = """
import os, signal, sys
from distrl.roles import running as roles
from distrl.roles.lifeline import LIFELINE_VARIABLE
from distrl.roles.plan import Role

class Ends:
    def run(self):
        os.kill(os.getpid(), signal.SIGTERM)  # is noted: a role is asked to end so

roles._make_role = lambda *_: Ends()
roles.refuse_second = lambda *_: None
code = roles.run_here(Role("actor"), redis_url="unix:///nowhere", run_id="r")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    assert signal.getsignal(number) == signal.SIG_IGN  # Python leaves this as it is when it ends, and no handler
    os.kill(os.getpid(), number)
sys.exit(code)
"""


def test_who_has_done_all_it_had_to_is_not_killed_for_being_asked_once_more():
    """`distrl stop`: the learner sees it first, saves, and is about to end when the supervisor asks it to."""
    environment = {**os.environ, "PYTHONPATH": str(Path(distrl.__file__).parent.parent)}
    environment.pop(LIFELINE_VARIABLE, None)
    done = subprocess.run([sys.executable, "-c", DONE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
