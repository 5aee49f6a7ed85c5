"""Real runs of the real command, with hands on their processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distrl.memory_backend.backend import Backend, connect
from distrl.memory_backend.records import RoleStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.runs.summary import Summary
from tests.faults.arguments import environment, sets

WAIT_S = 150.0
"""For whatever is sure to come: many times what it takes on an idle machine, as CI's may be slow and shared."""


def wait_until(condition: Callable[[], object], what: str, seconds: float = WAIT_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        time.sleep(0.05)


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
    """One `distrl train` in a process of its own; `streams` are of `Popen`, in place of files that `told` reads."""

    alive = staticmethod(alive)
    wait_until = staticmethod(wait_until)
    timed_until = staticmethod(timed_until)

    def __init__(self, run_dir: Path, *arguments: str, cwd: Path, **streams: Any) -> None:
        self.run_dir = run_dir
        self.output = run_dir.parent / f"{run_dir.name}.out"
        self.errors = run_dir.parent / f"{run_dir.name}.err"
        command = [sys.executable, "-m", "distrl", "train", "--plain", "--run-dir", str(run_dir), *arguments]
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
            run = self.record
            caps = QueueCaps(1, 1)
            self._backend = connect(run["redis_url"], run["run_id"], caps, name="test", give_up_s=1.0)
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


@pytest.fixture
def start_run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(*arguments: str, name: str = "run", **streams: Any) -> Run:
        runs.append(Run(tmp_path / name, *arguments, cwd=tmp_path, **streams))
        return runs[-1]

    yield start
    for run in runs:
        run.end()


@pytest.fixture
def assert_ended_cleanly() -> Callable[..., None]:
    """A run that was asked to end has no process left, and has saved its last weights, and `more` beside the policy."""

    def check(run: Run, pids: list[int], summary: Summary, *more: str) -> None:
        assert not any(map(run.alive, pids))
        assert max((run.run_dir / "checkpoints").glob("ckpt-*")).name == f"ckpt-{summary.updates:012}"
        saved = {path.name for path in (run.run_dir / "policy").iterdir()}
        assert saved == {"description.json", "graph.onnx", "weights.msgpack", *more}

    return check


@pytest.fixture
def cartpole() -> list[str]:
    """The preset that `make train` runs."""
    return ["--preset", "cartpole-impala"]


@pytest.fixture
def endless(cartpole: list[str]) -> list[str]:
    """The same without an end of its own."""
    return [*cartpole, "--set", "stop.mean_return=null", "--set", "stop.env_steps=null"]


@pytest.fixture
def slow_steps() -> list[str]:
    """Settings for any algorithm: two actors in an environment that sleeps, and an update per unroll of eight steps."""
    shape = sets("actors.count=2", "actors.environments=1", "actors.unroll_length_steps=8", "learner.batch_size=1")
    return ["--env", "benchmarks.sleeping:Sleeping", "--set", "environment.kwargs={step_s: 0.005}", *shape]


@pytest.fixture
def unhurried(endless: list[str]) -> list[str]:
    """Endless as well, in an environment that sleeps, so that commands on the run have the processor."""
    steps = ["--set", "environment.kwargs={step_s: 0.005}", "--set", "actors.unroll_length_steps=8"]
    steps += ["--set", "algorithm.minibatches=1"]
    return [*endless, "--env", "benchmarks.sleeping:Sleeping", "--set", "actors.environments=1", *steps]


@pytest.fixture
def distrl_command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs one command line to its end, in the directory of the test."""

    def run(*arguments: str, timeout: float = WAIT_S, **changes: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "distrl", *arguments]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environment(**changes),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
