"""Presence: whether the supervisor or roles of a run still send heartbeats."""

import time
from collections.abc import Collection
from typing import Literal

from distrl.memory_backend.registry import Registry
from distrl.roles.join import HEARTBEAT_S

LOOK_S = 2 * HEARTBEAT_S + 0.5
"""Time in which a process that lives has sent a heartbeat. Not judged by a heartbeat's age: clocks may jump."""
POLL_S = 0.1
Kind = Literal["supervisor", "learner", "actor", "evaluator"]


def living(registry: Registry, kinds: Collection[Kind]) -> str | None:
    """Return the first process of these kinds that sends a heartbeat within `LOOK_S`, or None.

    Returns at once if no such process has ever sent one.

    Returns:
        Such as "learner, process 7 on host a".
    """
    before = _beats(registry, kinds)
    deadline = time.monotonic() + LOOK_S
    while before and time.monotonic() < deadline:
        time.sleep(POLL_S)
        now = _beats(registry, kinds)
        for name, beat in now.items():
            if before.get(name) != beat:
                return name
    return None


def _beats(registry: Registry, kinds: Collection[Kind]) -> dict[str, tuple[int, int]]:
    """Return process -> its incarnation and number of its newest heartbeat."""
    found = {
        f"{role.role}, process {role.pid} on host {role.host}": (role.incarnation, role.beat)
        for role in registry.roles()
        if role.role in kinds
    }
    supervisor = registry.supervisor() if "supervisor" in kinds else None
    if supervisor is not None:
        found[f"supervisor, process {supervisor.pid} on host {supervisor.host}"] = (0, supervisor.beat)
    return found
