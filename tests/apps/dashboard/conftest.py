"""Run directories as trainings leave them, and a page that looks at them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from distrl.apps.config.configuration import load
from distrl.apps.dashboard import payloads
from distrl.apps.dashboard.alert_settings import AlertSettings
from distrl.apps.dashboard.app import make_app
from distrl.apps.dashboard.payloads import Runs
from distrl.apps.web.access import Access
from distrl.config.load import dump
from distrl.observers.metrics_csv import CsvSink
from distrl.runs.directories import Manifest, process_mark
from distrl.runs.summary import Summary
from tests import run_folders

CONFIGURATION = dump(load("cartpole-impala"))


@pytest.fixture(scope="session")
def dead_pid() -> int:
    """Return the number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine is waited for."""
    for name in ("LIST_WAIT_S", "RUN_WAIT_S"):
        monkeypatch.setattr(payloads, name, 60.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def make_run(root: Path, dead_pid: int) -> Callable[..., Path]:
    """A run directory: ended with `summary`'s changes, or running (`pid`), or gone."""

    def make(
        name: str,
        *,
        ended: bool = True,
        pid: int | None = None,
        redis_url: str | None = None,
        run_id: str | None = None,
        rows: int = 3,
        config: str = CONFIGURATION,
        started: float = 1000.0,
        **changes: Any,
    ) -> Path:
        folder = root / name
        (folder / "logs").mkdir(parents=True)
        run_id = run_id or name.replace("/", "-")
        record = {"run_id": run_id, "redis_url": redis_url, "pid": pid or dead_pid, "started": started}
        record["process"] = process_mark(pid) if pid else ""
        (folder / "run.json").write_text(json.dumps(record))
        (folder / "config.yaml").write_text(config)
        (folder / "manifest.json").write_text(manifest(run_id).model_dump_json())
        sink = CsvSink(folder / "metrics.csv")
        for row in range(1, rows + 1):
            sink.write({"updates": row, "env_steps": 100 * row, "episodes": row, "wall_s": 0.5 * row, **returns(row)})
        sink.close()
        if ended:
            summary(**{"run_id": run_id, "env_steps": 100 * rows, **changes}).write(folder / "summary.json")
        return folder

    return make


def manifest(run_id: str, **changes: Any) -> Manifest:
    texts = dict.fromkeys(("directory", "distrl", "python", "system", "host", "cpu"), "")
    trained = {"run_id": run_id, "environment": "CartPole-v1", "algorithm": "impala", "seed": 1}
    nothing = {"command": (), "commit": None, "distrl_commit": None, "memory_bytes": None, "gpus": (), "packages": {}}
    return Manifest.model_validate({**texts, **trained, **nothing, "cores": 2, **changes})


def returns(row: int) -> dict[str, float]:
    return {"mean_return_100": 10.0 * row, "best_mean_return_100": 10.0 * row}


def summary(**changes: Any) -> Summary:
    return run_folders.summary(**{"mean_return_100": 475.5, **changes})


@pytest.fixture
def page(root: Path) -> Iterator[Callable[..., TestClient]]:
    """A client of a dashboard; `page(token=…)` of one that wants tokens."""
    open_clients: list[TestClient] = []

    def make(host: str = "127.0.0.1", alerts: AlertSettings | None = None, **tokens: str | None) -> TestClient:
        client = TestClient(make_app(root, Access(host, **tokens), alerts=alerts), base_url=f"http://{host}:8720")
        open_clients.append(client.__enter__())
        return client

    yield make
    for client in open_clients:
        client.__exit__(None, None, None)


@pytest.fixture
def runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """The runs below `root`; every question scans it."""
    monkeypatch.setattr("distrl.apps.dashboard.index.FRESH_S", 0.0)
    monkeypatch.setattr("distrl.apps.dashboard.index.RESTS", 0.0)
    made = Runs(root)
    yield made
    made.close()


@pytest.fixture
def alive() -> int:
    """A pid that is up."""
    return os.getpid()


@pytest.fixture
def make_summary() -> Callable[..., Summary]:
    return summary
