"""The report of a run that makes no progress: numbers, silent roles, and the stacks of all roles."""

import pytest

from distrl.config import RunConfig
from distrl.launch import stall_report
from distrl.memory_backend.records import RoleStatus
from distrl.roles import join
from distrl.roles.join import Heartbeat
from distrl.types import UnrollHeader


@pytest.fixture
def answers(backend, monkeypatch):
    """An actor that tells of itself, on a thread."""
    monkeypatch.setattr(join, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(stall_report, "ANSWER_S", 1.0)
    status = RoleStatus("actor", 0, 3, "here", 71, "waiting: room", weights_version=8, last_step_age_s=2.5)
    beats = Heartbeat(backend, lambda: status, join.threading.Event(), RunConfig(), lambda _: None)
    beats.start()
    yield
    beats.close()


def test_tells_numbers_ages_and_stacks_and_who_does_not_answer(backend, answers):
    backend.registry.beat(RoleStatus("learner", 0, 2, "there", 70, "training", beat=5, last_step_age_s=301.0))
    backend.unrolls.push(UnrollHeader(0, backend.registry.register_actor(0), 0, 1, 8), b"12345")
    told = stall_report.stall_report(backend, "no update for 300 s")
    lines = told.splitlines()
    assert lines[0] == "no update for 300 s"
    assert "unrolls: 1 queued, 0 in flight, 5 bytes" in lines
    assert "         1 produced, 0 trained, 0 lost, dropped: none" in lines
    assert "weights: version 0" in lines
    assert "actor 0: waiting: room, incarnation 3, weights version 8, last step 2.5 s ago, process 71 on here" in lines
    silent = "learner: training, incarnation 2, weights version 0, last step 301.0 s ago, process 70 on there"
    assert f"{silent}, SILENT for 1 s or longer" in lines
    of_learner, of_actor, own = (
        lines.index(f"===== {name}") for name in ("learner", "actor 0", "the run's own command")
    )
    assert lines[of_learner + 1] == "no stacks reported"
    assert "thread heartbeat:" in lines[of_actor:own]
    assert "thread MainThread:" in lines[own:]
    assert not backend.registry.control().stacks


def test_waits_for_a_role_that_is_slow_to_answer(backend, monkeypatch):
    # On a busy machine, a process with many threads needs seconds for a heartbeat or two.
    registry, looks = backend.registry, []

    def sleep(_seconds):
        looks.append(registry.control().stacks)
        registry.set_control(stacks="")  # by a page that has the stacks of one role
        answer = "in step" if len(looks) > 9 else ""
        registry.beat(RoleStatus("actor", 0, 0, "here", 71, "acting", beat=len(looks), stacks=answer))

    registry.beat(RoleStatus("actor", 0, 0, "here", 71, "acting"))
    monkeypatch.setattr(stall_report.time, "sleep", sleep)
    told = stall_report.stall_report(backend, "no update for 300 s").splitlines()
    assert looks == ["all"] * 10
    assert told[told.index("===== actor 0") + 1] == "in step"
    assert "actor 0: acting, incarnation 0, weights version 0, last step 0.0 s ago, process 71 on here" in told
