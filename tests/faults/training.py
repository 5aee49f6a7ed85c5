"""A real run of the real command, with hands on its processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from distrl.memory_backend.backend import Backend, connect
from distrl.memory_backend.records import RoleStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.runs.directories import RunRecord
from distrl.runs.summary import Summary
from tests.faults.arguments import environment
from tests.waiting import PATIENCE_S, wait_until

WAIT_S = PATIENCE_S
"""For whatever is sure to come: many times what it takes on an idle machine, as CI's may be slow and shared."""


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie, which only waits for its parent, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def timed_until(condition: Callable[[], object], what: str, seconds: float = WAIT_S) -> float:
    """The same; how many seconds it took."""
    began = time.monotonic()
    wait_until(condition, what, seconds)
    return time.monotonic() - began


class Run:
    """One `distrl train` in a process of its own.

    Args:
        prefix: The command that runs another one where the training is to be, such as `Host.enter`'s.
        streams: Options of `Popen`, in place of files that `told` reads.
    """

    alive = staticmethod(alive)
    wait_until = staticmethod(wait_until)
    timed_until = staticmethod(timed_until)

    def __init__(self, run_dir: Path, *arguments: str, cwd: Path, prefix: Sequence[str] = (), **streams: Any) -> None:
        self.run_dir = run_dir
        self.output = run_dir.parent / f"{run_dir.name}.out"
        self.errors = run_dir.parent / f"{run_dir.name}.err"
        command = [*prefix, sys.executable, "-m", "distrl", "train", "--plain", "--run-dir", str(run_dir), *arguments]
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            usual = {"stdout": output, "stderr": errors, "start_new_session": True, "env": environment()}
            self.process = subprocess.Popen(command, cwd=cwd, **(usual | streams))
        self._backend: Backend | None = None

    @property
    def record(self) -> dict[str, Any]:
        """run.json, as soon as it is there."""
        written = self.run_dir / "run.json"
        wait_until(lambda: written.exists() or self.process.poll() is not None, "run.json is written")
        assert written.exists(), self.told
        record: dict[str, Any] = json.loads(written.read_text())
        return record

    @property
    def key(self) -> dict[str, str]:
        """The variable by which a role that is started by hand finds the run's key."""
        return {"DISTRL_RUN_KEY_FILE": str(self.run_dir / "run.key")}

    @property
    def backend(self) -> Backend:
        if self._backend is None:
            assert self.record, "the run is there"
            run = RunRecord.read(self.run_dir / "run.json")  # with the password of a Redis that listens
            caps = QueueCaps(1, 1)
            self._backend = connect(str(run.redis_url), run.run_id, caps, name="test", give_up_s=1.0)
        return self._backend

    @property
    def updates(self) -> int:
        return int(self.snapshot.get("updates") or 0)

    @property
    def snapshot(self) -> dict[str, Any]:
        """The newest one; empty before the first."""
        snapshots = self.backend.registry.snapshots("0")
        return snapshots[-1][1] if snapshots else {}

    def wait_for_updates(self, count: int) -> None:
        wait_until(lambda: self.updates >= count or self.process.poll() is not None, f"{count} updates")
        assert self.process.poll() is None, self.told

    def role(self, kind: str, number: int = 0) -> RoleStatus:
        return next(role for role in self.backend.registry.roles() if (role.role, role.id) == (kind, number))

    def kill(self, kind: str, number: int = 0) -> None:
        os.kill(self.role(kind, number).pid, signal.SIGKILL)

    def finish(self, seconds: float = WAIT_S) -> Summary:
        self.process.wait(timeout=seconds)
        return Summary.read(self.run_dir / "summary.json")

    @property
    def told(self) -> str:
        """Output that the user has seen."""
        return self.output.read_text() + self.errors.read_text()

    @property
    def socket(self) -> Path:
        """The embedded Redis' socket, in the run's private directory."""
        return Path(self.backend.engine.url.removeprefix("unix://"))

    @property
    def pids(self) -> list[int]:
        """The parent and every role."""
        return [self.process.pid, *(role.pid for role in self.backend.registry.roles())]

    def state(self, kind: str, number: int = 0) -> str:
        return next((r.state for r in self.backend.registry.roles() if (r.role, r.id) == (kind, number)), "absent")

    def end(self) -> None:
        if self._backend is not None:
            self._backend.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
