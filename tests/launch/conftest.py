"""Roles whose ends the tests decide, and a registry that the tests write, so that no process is needed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from distrl.config import RunConfig
from distrl.interrupt import Interrupt
from distrl.launch import fleet, stall_report, supervise
from distrl.launch.monitor import Monitor
from distrl.launch.outcome import Outcome
from distrl.launch.supervise import Supervisor
from distrl.memory_backend.backend import Backend, connect
from distrl.memory_backend.records import RoleStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.roles.plan import Role

ACTOR = Role("actor")


class ScriptedHandle:
    """A role whose end the test decides; it notes what it was asked."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.code: int | None = None
        self.error: str | None = None
        self.waits_for: str | None = None
        self.asked: list[str] = []
        self.obeys = True
        self.ends_with = 0

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.asked.append("terminate")
        if self.obeys and self.code is None:
            self.code = self.ends_with

    def kill(self) -> None:
        self.asked.append("kill")
        self.code = -9


class ScriptedLauncher:
    def __init__(self) -> None:
        self.started: list[ScriptedHandle] = []

    def start(self, role: Role) -> ScriptedHandle:
        self.started.append(ScriptedHandle(role))
        return self.started[-1]

    def close(self) -> None:
        pass

    def of(self, role: Role) -> list[ScriptedHandle]:
        """Every incarnation of a role, in order."""
        return [handle for handle in self.started if handle.role == role]


class ScriptedView:
    """Notes events. At every look of the supervisor the next line of the script runs."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.roles: list[dict[str, Any]] = []
        self.wanted = 0
        self.script: list[Callable[[], object]] = []

    def update(self, snapshot: object, roles: Sequence[dict[str, Any]], config: RunConfig) -> None:
        self.roles = list(roles)
        self.wanted = config.actors.count
        assert self.script, "the script is at its end and the run goes on"
        self.script.pop(0)()

    def event(self, text: str) -> None:
        self.events.append(text)

    def close(self, summary: object) -> None:
        pass

    def stop(self) -> None:
        pass


@dataclass
class World:
    """A run with everything but roles."""

    run_dir: Path
    backend: Backend
    launcher: ScriptedLauncher
    view: ScriptedView
    interrupt: Interrupt

    def run(self, *script: Callable[[], object], **changes: dict[str, Any]) -> Outcome:
        """Supervises one learner and one actor (or what `changes` says) while the script runs."""
        actors = {"count": 1, **changes.pop("actors", {})}
        config = RunConfig.model_validate({"actors": actors, **changes})
        self.view.script = list(script)
        monitor = Monitor("r", self.run_dir, config, self.view)
        try:
            logs = self.run_dir / "logs"
            return Supervisor(config, self.launcher, self.backend, monitor, logs, self.interrupt).run()
        finally:
            monitor.end(None)

    def dies(self, role: Role, code: int, says: str | None = None) -> Callable[[], None]:
        """A line of a script: the newest incarnation of `role` ends."""

        def happens() -> None:
            handle = self.launcher.of(role)[-1]
            handle.code, handle.error = code, says

        return happens

    def beats(self, role: Role = ACTOR, **changes: Any) -> Callable[[], None]:
        """A line of a script: a heartbeat of `role` arrives."""
        status = RoleStatus(role.kind, role.id, 1, "host", 1, "acting", beat=1)
        return lambda: self.backend.registry.beat(replace(status, **changes))

    def asks(self, **control: Any) -> Callable[[], None]:
        """A line of a script: an operator, or the learner, sets the control hash."""
        return lambda: self.backend.registry.set_control(**control)

    def learns(self, updates: int) -> Callable[[], None]:
        """A line of a script: the learner reports."""
        return lambda: self.backend.registry.add_snapshot({"updates": updates, "env_steps": updates, "wall_s": updates})


@pytest.fixture
def launcher() -> ScriptedLauncher:
    return ScriptedLauncher()


@pytest.fixture
def view() -> ScriptedView:
    return ScriptedView()


@pytest.fixture
def backend() -> Backend:
    backend = connect("local:", "r", QueueCaps(8, 2**20), name="test", give_up_s=1.0)
    backend.create("{}")
    return backend


@pytest.fixture
def world(tmp_path, backend, launcher, view, monkeypatch) -> World:
    monkeypatch.setattr(supervise, "TICK_S", 0.0)
    monkeypatch.setattr(supervise, "REGISTRY_EVERY_S", 0.0)
    monkeypatch.setattr(fleet, "FIRST_BACKOFF_S", 0.0)
    monkeypatch.setattr(stall_report, "ANSWER_S", 0.0)
    (tmp_path / "logs").mkdir()
    return World(tmp_path, backend, launcher, view, Interrupt())
