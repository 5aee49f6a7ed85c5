"""The card of a run's servers in a browser: it comes and goes with a real server, and has no serious finding."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import distrl
from distrl.apps.dashboard.files import id_of
from distrl.apps.web.server_records import FOLDER, Moments, ServerRecord
from distrl.files import read_model
from distrl.terminal.console import QuietView
from tests.failures.test_browser_accessible import findings
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path):
    """A server of a run that has ended, with a canary."""
    run_dir, sets = tmp_path / "served", ["actors.count=0", "stop.updates=1", "checkpoint.every_updates=1"]
    distrl.train(distrl.load("cartpole-impala", sets=sets), run_dir=run_dir, view=QuietView(run_dir, lambda text: None))
    command = [sys.executable, "-m", "distrl", "serve", run_dir, "--canary", run_dir, "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        assert re.search(r"at http://127\.0\.0\.1:\d+/", process.stdout.readline())
        yield process
        process.kill()


def test_the_card_comes_and_goes_with_its_server(tmp_path, server, dashboard, tab):
    tab.goto(f"{dashboard}#/run/{id_of('served')}")
    card = tab.get_by_role("region", name="Serving", exact=True)
    card.wait_for()
    for text in ("90 % of sessions", f"({server.pid})"):
        card.get_by_text(text).wait_for()
    assert not card.get_by_text("Returns by version").first.is_visible()
    assert findings(tab) == []
    record = next((tmp_path / "served" / FOLDER).glob("[!.]*.json"))
    server.send_signal(signal.SIGTERM)
    assert server.wait(PATIENCE_S) == 0
    card.wait_for(state="hidden")
    assert (tab.complaints, tab.asked, record.exists()) == ([], {"127.0.0.1"}, False)


def test_a_server_that_was_killed_is_gone_and_its_returns_stay(tmp_path, server, dashboard, tab):
    server.kill()
    server.wait(PATIENCE_S)
    (path,) = (tmp_path / "served" / FOLDER).glob("[!.]*.json")
    add_returns(path)
    tab.goto(f"{dashboard}#/run/{id_of('served')}")
    card = tab.get_by_role("region", name="Serving", exact=True)
    card.get_by_text("gone, last heard of").wait_for()
    shown = card.inner_text()
    assert "The canary returns 3.00 less, 95 % interval -6.89 … 0.89; zero is inside" in shown
    assert "(5 episodes of" in shown
    assert re.search(r"2\t\S+ \(canary\)\t5\t3\.00\t1\.0\d … 4\.9\d", shown)
    assert findings(tab) == []
    assert tab.complaints == []


def add_returns(path: Path) -> None:
    """Write the record as if episodes had ended."""
    record = read_model(ServerRecord, path)
    returns = {"main": Moments(5, 6.0, 40.0), "canary": Moments(5, 3.0, 10.0)}
    policies = [
        one.model_copy(update={"returns": returns[one.name], "versions": {2: returns[one.name]}})
        for one in record.policies
    ]
    path.write_text(
        record.model_copy(update={"policies": policies, "written": record.written - 60.0}).model_dump_json()
    )
