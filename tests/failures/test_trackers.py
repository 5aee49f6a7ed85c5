"""A real training, tracked in three places; it is killed, resumed, and interrupted, and a server hangs."""

import csv
import json
import signal
import socket
import subprocess
import sys

import pytest

from distrl.runs.summary import Summary
from tests.apps.trackers.mlflow_store import stored_after
from tests.faults.arguments import sets

pytestmark = [pytest.mark.slow, pytest.mark.redis, pytest.mark.long]

MINE = """
import json
class Mine:
    def begin(self, run): self.out = open(run.run_dir / "mine.jsonl", "a"); self.put(["begin", run.resumed])
    def record(self, row, step): self.put(["row", row])
    def end(self, ending): self.put(["end", ending.exit_code])
    def put(self, what): print(json.dumps(what), file=self.out, flush=True)
"""


def csv_rows(run_dir):
    with (run_dir / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [{name: float(cell) for name, cell in row.items() if cell and name != "bottleneck"} for row in rows]


def wandb_rows(file):
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(file)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    items = [each["history"]["item"] for each in map(json.loads, lines) if each["type"] == "history"]
    return [{name: value for name, value in item.items() if not name.startswith("_")} for item in items]


def mine(run_dir):
    return [json.loads(line) for line in (run_dir / "mine.jsonl").read_text().splitlines()]


def test_three_trackers_have_what_metrics_csv_has_also_after_a_kill(start_run, unhurried, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.setenv("WANDB_MODE", "offline")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    given = ["--track", "wandb", "--track", "mlflow", "--track", "mine:Mine"]
    given += sets(f"trackers.mlflow.tracking_uri={uri}", "trackers.give_up_s=120", "environment.kwargs={}")
    often = ("--set", "checkpoint.every_updates=10")
    run = start_run(*unhurried, *often, *given)
    run_dir = run.run_dir
    run.wait_until(lambda: (run_dir / "mine.jsonl").exists() and len(mine(run_dir)) > 3, "rows")
    run.wait_until(lambda: any((run_dir / "wandb").glob("offline-run-*/*.wandb")), "W&B's file")
    run.wait_for_updates(30)
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    run.wait_until(lambda: mine(run_dir)[-1] == ["end", 1], "the end of a training that was killed")

    run = start_run(*unhurried, *often, *given, "--set", "stop.updates=120", "--resume", "auto")
    summary = run.finish()
    assert (summary.exit_code, summary.untracked) == (0, {})
    rows = csv_rows(run_dir)
    launches = sorted((run_dir / "wandb").glob("offline-run-*/*.wandb"))
    assert len(launches) == 2
    second = wandb_rows(launches[1])
    assert second == rows[-len(second) :]
    assert mine(run_dir)[-1] == ["end", 0]
    begins = [index for index, each in enumerate(mine(run_dir)) if each[0] == "begin"]
    assert [mine(run_dir)[index][1] for index in begins] == [False, True]
    assert [row for name, row in mine(run_dir)[begins[1] :] if name == "row"] == second

    (found,) = stored_after(uri, "distrl")
    assert (found["status"], found["tags"]["distrl.run_id"]) == ("FINISHED", summary.run_id)
    updates = [value for _, value in found["points"]["updates"]]
    assert updates == sorted(set(updates))
    assert found["points"]["updates"][-1] == [rows[-1]["env_steps"], 120]


def test_ctrl_c_is_as_ever_and_a_hanging_server_is_given_up(start_run, unhurried, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        run = start_run(*unhurried, "--track", "wandb", "--set", "trackers.give_up_s=3")
        run.wait_for_updates(20)
        run.process.send_signal(signal.SIGINT)
        run.process.wait(60)
    summary = Summary.read(run.run_dir / "summary.json")
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (130, 130, "Ctrl-C")
    assert summary.untracked["wandb"].startswith("has not finished in time")
