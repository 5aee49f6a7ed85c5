"""The record of a server in a run's directory: what it says, and that it goes at the end."""

import contextlib
import logging
import os
import socket
import time

import pytest

from distrl.apps.serve import report as module
from distrl.apps.serve.report import ServerReport
from distrl.apps.web import server_records
from distrl.apps.web.server_records import Moments, ServerRecord
from distrl.files import read_model
from tests.apps.serve.conftest import NOTHING_SEEN, exchange, serving
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(server_records, "EVERY_S", 0.02)


@contextlib.contextmanager
def reported(folder, *policies, **settings):
    """Serve, and yield the server and a function that returns its newest record, None if there is none."""
    report = ServerReport(folder, "127.0.0.1:8730")
    path = folder / "serving" / f"{socket.gethostname()}-8730.json"

    def record():
        return read_model(ServerRecord, path) if path.exists() else None

    with serving(*policies, report=report, **settings) as served:
        wait_until(record)
        yield served, record


def test_the_record_has_what_the_page_shows(trained, tmp_path):
    run_dir = trained("mlp")
    began = time.time()
    with reported(tmp_path, run_dir, run_dir, share=0.5) as (served, record):
        with served.socket() as websocket:
            for _ in range(3):
                exchange(websocket, observation=NOTHING_SEEN, session="a")
            assert served.act(observation=[1.0])["status"] == 400
            wait_until(lambda: record().actions == 3 and record().sessions == 1 and record().connections == 1)
            wait_until(lambda: record().actions_per_s == 0.0)  # an interval without requests
            found = record()
            assert found.latencies is None
            assert found.failures == {400: 1}
        busy = [point for point in found.history if point.p99_s is not None]
        assert busy
        assert all(point.actions_per_s > 0.0 and 0.0 < point.p99_s < 60.0 for point in busy)
        assert [(one.name, one.source, one.version, one.share) for one in found.policies] == [
            ("main", str(run_dir), 2, 0.5),
            ("canary", str(run_dir), 2, 0.5),
        ]
        assert (found.address, found.pid, found.environment) == ("127.0.0.1:8730", os.getpid(), "CartPole-v1")
        assert began <= found.started <= found.written <= time.time()
        wait_until(lambda: record().sessions == 0)
    assert record() is None
    assert list((tmp_path / "serving").iterdir()) == []


def test_returns_of_episodes(trained, tmp_path):
    with reported(tmp_path, trained("mlp")) as (served, record):
        returns = served.server.config.app._measured.returns
        for value in (1.0, 3.0):
            returns.add("main", 2, value)
        wait_until(lambda: record().policies[0].returns.count == 2)
        assert record().policies[0].versions == {2: Moments(2, 2.0, 2.0)}
        lines = served.ask("GET", "/metrics")[1].decode().splitlines()
        assert 'distrl_serve_episodes_total{policy="main"} 2.0' in lines
        assert 'distrl_serve_return_sum{policy="main"} 4.0' in lines


def test_a_run_that_is_deleted_is_not_made_again(trained, tmp_path, caplog):
    folder = tmp_path / "run"
    folder.mkdir()
    with caplog.at_level(logging.WARNING, module.__name__), reported(folder, trained("mlp")) as (served, _):
        folder.rename(tmp_path / "away")
        wait_until(lambda: caplog.messages)
        assert served.act(observation=NOTHING_SEEN)["version"] == 2
    (message,) = set(caplog.messages)
    assert message.startswith("the run's page cannot show this server: [Errno 2] No such file or directory")
    assert not folder.exists()


def test_a_server_that_begins_removes_old_records(trained, tmp_path):
    folder = tmp_path / "serving"
    folder.mkdir()
    for name, age_s in (("old", module.FORGET_S + 60), ("new", 60)):
        (folder / f"{name}.json").write_text("{}")
        os.utime(folder / f"{name}.json", (time.time() - age_s,) * 2)
    with reported(tmp_path, trained("mlp")):
        assert sorted(path.stem for path in folder.glob("[!.]*.json")) == sorted(
            ["new", f"{socket.gethostname()}-8730"]
        )
