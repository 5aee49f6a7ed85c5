"""presence: a process lives if its heartbeat changes, whatever the clocks say."""

from dataclasses import replace

import pytest

from distrl.memory_backend.records import RoleStatus, SupervisorStatus
from distrl.roles import presence
from distrl.roles.presence import living

LEARNER = RoleStatus("learner", 0, 1, "a", 42, "training", beat=1)
SUPERVISOR = SupervisorStatus("b", 7, 1)


@pytest.fixture
def looks(monkeypatch, clock):
    """Events while `living` waits: each look calls the next of these."""
    steps = []

    def sleep(seconds):
        clock.now += seconds
        if steps:
            steps.pop(0)()

    monkeypatch.setattr(presence.time, "sleep", sleep)
    monkeypatch.setattr(presence.time, "monotonic", clock)
    return steps


def test_a_process_that_has_never_sent_a_heartbeat_is_not_waited_for(backend, looks, clock):
    assert living(backend.registry, ["supervisor", "learner"]) is None
    assert clock.now == 0.0


def test_a_silent_one_is_waited_for(backend, looks, clock):
    backend.registry.beat(LEARNER)
    backend.registry.beat_supervisor(SUPERVISOR)
    assert living(backend.registry, ["supervisor", "learner"]) is None
    assert clock.now >= presence.LOOK_S


@pytest.mark.parametrize("change", [{"beat": 2}, {"incarnation": 2}, {"pid": 43}])
def test_a_changed_heartbeat_is_life(backend, looks, change):
    backend.registry.beat(LEARNER)
    looks += [lambda: None, lambda: backend.registry.beat(replace(LEARNER, **change))]
    pid = change.get("pid", 42)
    assert living(backend.registry, ["learner"]) == f"learner, process {pid} on host a"


def test_only_the_kinds_in_question_count(backend, looks):
    backend.registry.beat_supervisor(SUPERVISOR)
    backend.registry.beat(LEARNER)
    looks += [lambda: backend.registry.beat_supervisor(replace(SUPERVISOR, beat=2))] * 2
    assert living(backend.registry, ["learner", "actor"]) is None
    looks += [lambda: backend.registry.beat_supervisor(replace(SUPERVISOR, beat=3))]
    assert living(backend.registry, ["supervisor"]) == "supervisor, process 7 on host b"
