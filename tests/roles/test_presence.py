"""presence: a process lives if its heartbeat changes, whatever the clocks say."""

from dataclasses import replace

import pytest

from distrl.memory_backend.records import RoleStatus, SupervisorStatus
from distrl.roles import presence
from distrl.roles.presence import leaders, living

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
    assert living(lambda: leaders(backend.registry)) is None
    assert clock.now == 0.0


def test_a_silent_one_is_waited_for(backend, looks, clock):
    backend.registry.beat(LEARNER)
    backend.registry.beat_supervisor(SUPERVISOR)
    assert living(lambda: leaders(backend.registry)) is None
    assert clock.now >= presence.LOOK_S


@pytest.mark.parametrize("change", [{"beat": 2}, {"incarnation": 2}, {"pid": 43}])
def test_a_changed_heartbeat_is_life(backend, looks, change):
    backend.registry.beat(LEARNER)
    looks += [lambda: None, lambda: backend.registry.beat(replace(LEARNER, **change))]
    pid = change.get("pid", 42)
    assert living(lambda: leaders(backend.registry)) == f"learner, process {pid} on host a"


def test_of_a_run_its_supervisor_and_its_learner_count(backend, looks):
    backend.registry.beat_supervisor(SUPERVISOR)
    actor = replace(LEARNER, role="actor", id=3)
    backend.registry.beat(actor)
    looks += [lambda: backend.registry.beat(replace(actor, beat=2))] * 2
    assert living(lambda: leaders(backend.registry)) is None
    assert living(lambda: backend.registry.heartbeats(["actor:3", "actor:4"])) is None
    looks += [lambda: backend.registry.beat(replace(actor, beat=3))]
    assert living(lambda: backend.registry.heartbeats(["actor:3", "actor:4"])) == "actor 3, process 42 on host a"
    looks += [lambda: backend.registry.beat_supervisor(replace(SUPERVISOR, beat=3))]
    assert living(lambda: leaders(backend.registry)) == "supervisor, process 7 on host b"
