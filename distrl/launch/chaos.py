"""Kill roles of a run on purpose, one after the other, and check that they come back."""

import os
import random
import signal
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from distrl.errors import ConfigError, MemoryBackendError
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.records import RoleStatus
from distrl.roles.join import HEARTBEAT_S
from distrl.roles.plan import Role

LOOK_EVERY_S = 0.1
SILENT_S = 3.5 * HEARTBEAT_S
"""A role without a heartbeat for so long is no victim: another process may have its number by now."""
NOT_AT_WORK = ("starting", "waiting: policy", "stopping")


@dataclass(frozen=True)
class Kill:
    """One role that was killed."""

    name: str
    pid: int
    back_after_s: float | None


class RunEndedError(Exception):
    """The run stops, so that no role comes back."""


class Chaos:
    """Kills one role at a time, by SIGKILL, on this machine alone."""

    def __init__(self, backend: Backend, kinds: Collection[str], within_s: float, choice: random.Random) -> None:
        self._backend = backend
        self._kinds = kinds
        self._within_s = within_s
        self._choice = choice
        self._beats: dict[Role, tuple[int, int, float]] = {}  # incarnation, beat, when it was first seen

    def run(self, every_s: float, for_s: float, tell: Callable[[str], None]) -> list[Kill]:
        """Kill a role every `every_s` seconds, for `for_s` seconds or until the run stops."""
        ends_at, kills = time.monotonic() + for_s, list[Kill]()
        try:
            self._wait_until(time.monotonic() + SILENT_S)  # to know which roles are silent
            while time.monotonic() < ends_at:
                next_at = time.monotonic() + every_s
                kills.append(self._kill(self._victim(), tell))
                self._wait_until(min(next_at, ends_at))
        except (RunEndedError, MemoryBackendError) as error:  # its own Redis goes with it
            tell(f"the run has ended{f': {error}' if str(error) else ''}")
        return kills

    def _victim(self) -> RoleStatus:
        here, now = socket.gethostname(), time.monotonic()
        found = [
            role
            for role in self._look()
            if role.role in self._kinds and role.host == here and now - self._beats[Role.of(role)][2] < SILENT_S
        ]
        if not found:
            raise ConfigError(f"no {' or '.join(sorted(self._kinds))} of this run is at work on {here}")
        return self._choice.choice(found)

    def _kill(self, victim: RoleStatus, tell: Callable[[str], None]) -> Kill:
        name, began = victim.name, time.monotonic()
        tell(f"killing {name} (process {victim.pid})")
        try:
            os.kill(victim.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has just ended by itself: whether it comes back counts all the same
            tell("  it was gone already")
        except PermissionError as error:
            raise ConfigError(f"{name} (process {victim.pid}) is another user's; run chaos as that user") from error
        while (passed_s := time.monotonic() - began) < self._within_s:
            if any(_succeeds(role, victim) for role in self._look()):
                tell(f"  back after {passed_s:.1f} s")
                return Kill(name, victim.pid, passed_s)
            time.sleep(LOOK_EVERY_S)
        tell(f"  not back after {self._within_s:.1f} s")
        return Kill(name, victim.pid, None)

    def _wait_until(self, at: float) -> None:
        while (left_s := at - time.monotonic()) > 0.0:
            self._look()
            time.sleep(min(left_s, LOOK_EVERY_S))

    def _look(self) -> list[RoleStatus]:
        """Return all heartbeats and note new ones; raise RunEndedError if the run stops."""
        roles = self._backend.registry.roles()
        if self._backend.registry.control().stop is not None or not roles:
            raise RunEndedError
        for role in roles:
            if self._beats.get(Role.of(role), ())[:2] != (role.incarnation, role.beat):
                self._beats[Role.of(role)] = (role.incarnation, role.beat, time.monotonic())
        return roles


def _succeeds(role: RoleStatus, victim: RoleStatus) -> bool:
    """Return whether this is the victim's successor, and at work."""
    newer = Role.of(role) == Role.of(victim) and role.incarnation > victim.incarnation
    return newer and not role.state.startswith(NOT_AT_WORK)
