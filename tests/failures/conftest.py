"""Real runs of the real command, with hands on their processes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from distrl.apps.commands import main
from distrl.apps.config.configuration import load
from distrl.config.load import dump
from distrl.config.run import RunConfig
from distrl.memory_backend.backend import connect
from distrl.memory_backend.records import RoleStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.runs.directories import process_mark
from distrl.runs.summary import Summary
from tests.failures.browsing import FLAGS, PATIENCE_S, serving
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


@pytest.fixture(scope="session")
def cartpole() -> list[str]:
    """The preset that `make train` runs."""
    return ["--preset", "cartpole-impala"]


@pytest.fixture(scope="session")
def endless(cartpole: list[str]) -> list[str]:
    """The same without an end of its own."""
    return [*cartpole, "--set", "stop.mean_return=null", "--set", "stop.env_steps=null"]


@pytest.fixture
def slow_steps() -> list[str]:
    """Settings for any algorithm: two actors in an environment that sleeps, and an update per unroll of eight steps."""
    shape = sets("actors.count=2", "actors.environments=1", "actors.unroll_length_steps=8", "learner.batch_size=1")
    return ["--env", "benchmarks.sleeping:Sleeping", "--set", "environment.kwargs={step_s: 0.005}", *shape]


@pytest.fixture(scope="session")
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


@pytest.fixture
def command_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs one command line in this process, which has imported all that it needs, in the directory of the test."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        code = main.main(list(arguments))
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return run


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium. For one module, as Playwright's event loop forbids another one in this thread."""
    path = shutil.which("chromium")
    if path is None:
        problem = "no chromium on PATH: sudo apt-get install chromium"
        if "CI" in os.environ:
            pytest.fail(problem)
        pytest.skip(problem)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def dashboard(tmp_path: Path, free_port: int) -> Iterator[str]:
    """The address of a dashboard on the folder of the test."""
    with serving(tmp_path, free_port) as (_, url):
        yield url


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A page, its errors, and the hosts that it requested."""
    page = browser.new_page()
    page.set_default_timeout(1000 * PATIENCE_S)
    page.complaints, page.asked = [], set()
    page.on(
        "console", lambda message: page.complaints.append(message.text) if message.type in ("error", "warning") else 0
    )
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda request: page.asked.add(urlsplit(request.url).hostname))
    yield page
    page.close()


@pytest.fixture
def job(tmp_path: Path, redis_url: str) -> Iterator[Any]:
    """A running job as it looks from outside: a record of this process, and heartbeats."""
    (tmp_path / "job" / "logs").mkdir(parents=True)
    record = {"run_id": "browser", "redis_url": redis_url, "pid": os.getpid(), "process": process_mark(os.getpid())}
    (tmp_path / "job" / "run.json").write_text(json.dumps(record | {"started": 1000.0}))
    config = load("cartpole-impala")
    (tmp_path / "job" / "config.yaml").write_text(dump(config))
    rows = "".join(f"{n},{100 * n},{n},{n / 2},{10 * n}\n" for n in range(1, 30))
    (tmp_path / "job" / "metrics.csv").write_text(f"updates,env_steps,episodes,wall_s,mean_return_100\n{rows}")
    backend = connect(redis_url, "browser", QueueCaps(8, 1000), name="test", give_up_s=5.0)
    backend.create(json.dumps({"config": config.config.model_dump(mode="json", include={*RunConfig.model_fields})}))
    backend.registry.add_snapshot({"updates": 29, "env_steps": 2900, "mean_return_100": 290.0})
    backend.registry.beat(RoleStatus("actor", 0, 1, "hera", 5, "acting"))
    yield backend
    backend.delete()
    backend.close()
