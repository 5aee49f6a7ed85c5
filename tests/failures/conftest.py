"""Real runs of the real command, with hands on their processes."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distrl.runs.summary import Summary
from tests.faults.arguments import environment, sets
from tests.faults.training import WAIT_S, Run


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
