"""Presence: whether processes of a run still send heartbeats."""

import time
from collections.abc import Callable, Sequence

from distrl.memory_backend.records import RoleStatus, SupervisorStatus
from distrl.memory_backend.registry import Registry
from distrl.roles.join import HEARTBEAT_S

LOOK_S = 2 * HEARTBEAT_S + 0.5
"""Time in which a process that lives has sent a heartbeat. Not judged by a heartbeat's age: clocks may jump."""
POLL_S = 0.1
Status = RoleStatus | SupervisorStatus


def living(read: Callable[[], Sequence[Status]]) -> str | None:
    """Return the first process that sends a heartbeat within `LOOK_S`, or None.

    Returns at once if no process has ever sent one.

    Args:
        read: Returns the newest heartbeats of the processes in question.

    Returns:
        Such as "learner, process 7 on host a".
    """
    before = _beats(read())
    deadline = time.monotonic() + LOOK_S
    while before and time.monotonic() < deadline:
        time.sleep(POLL_S)
        for name, beat in _beats(read()).items():
            if before.get(name) != beat:
                return name
    return None


def leaders(registry: Registry) -> list[Status]:
    """Return the newest heartbeats of learner and supervisor; if neither sends any more, the run is dead."""
    learner, supervisor = (role for role in registry.roles() if role.role == "learner"), registry.supervisor()
    return [*learner, *([] if supervisor is None else [supervisor])]


def _beats(statuses: Sequence[Status]) -> dict[str, tuple[int, int]]:
    """Return process -> its incarnation and number of its newest heartbeat."""
    return {
        f"{_name(status)}, process {status.pid} on host {status.host}": (
            status.incarnation if isinstance(status, RoleStatus) else 0,
            status.beat,
        )
        for status in statuses
    }


def _name(status: Status) -> str:
    return "supervisor" if isinstance(status, SupervisorStatus) else status.name
