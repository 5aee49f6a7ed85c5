"""W&B's own reader finds in its offline store what metrics.csv has."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from distrl.apps.config.trackers import TrackersConfig
from distrl.apps.trackers.tracker import Ending
from distrl.apps.trackers.tracking import require_trackers
from distrl.errors import ConfigError
from tests.apps.trackers.conftest import rows_of


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    """No account, and none of W&B's files outside of the test's folder."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(home))


def stored(run_dir: Path):
    """Records of all launches, as `wandb leet inspect` prints them."""
    found = []
    for file in sorted(run_dir.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns):
        command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=run_dir)
        found.append([json.loads(line) for line in done.stdout.splitlines()])
    return found


def rows(records):
    items = [record["history"]["item"] for record in records if record["type"] == "history"]
    return [{name: value for name, value in item.items() if not name.startswith("_")} for item in items]


def one(records, kind):
    return next(record[kind] for record in records if record["type"] == kind)


WANDB = {"project": "robots", "mode": "offline", "group": "night", "tags": ["a", "b"]}


def test_the_store_is_the_csv(launch, tmp_path, callers):
    made = launch(wandb=WANDB, give_up_s=100.0)
    made.take(*range(6))
    assert made.finish(Ending(4, "stalled")) == {}
    assert callers() == []
    (told,) = (line for line in made.events if line.startswith("tracker"))
    assert told.startswith(f"tracker wandb: offline; wandb sync {tmp_path}/wandb/offline-run-")
    (records,) = stored(tmp_path)
    assert rows(records) == rows_of(tmp_path)
    run = one(records, "run")
    assert (run["run_id"], run["project"], run["run_group"], run["tags"]) == ("run-1", "robots", "night", ["a", "b"])
    assert run["display_name"] == tmp_path.name
    assert {**run["config"]["update"], "_wandb": {}} == {"seed": 1, "actors": {"count": 2}, "_wandb": {}}
    assert one(records, "metric")["step_metric"] == "env_steps"
    assert one(records, "exit")["exit_code"] == 4


@pytest.mark.long
def test_each_launch_of_a_run_has_a_store_of_the_same_id(launch, tmp_path, callers):
    for updates, begins in ((range(6), 0), (range(4, 9), 4)):  # from a checkpoint of update 3
        made = launch(wandb=WANDB, resumed=begins > 0, give_up_s=100.0)
        made.take(*updates)
        before = rows_of(tmp_path)
        assert made.finish() == {}
    first, second = stored(tmp_path)
    assert one(first, "run")["run_id"] == one(second, "run")["run_id"] == "run-1"
    assert [row["updates"] for row in rows(first)] == [*range(6)]
    assert rows(second) == rows_of(tmp_path)[4:]
    assert len(before) == 9


def test_an_account_is_asked_for_before_the_launch():
    with pytest.raises(ConfigError, match=r"run wandb login, set WANDB_API_KEY, or add --set .*mode=offline$"):
        require_trackers(TrackersConfig(wandb={}))


def test_runs_that_stay_here_need_no_account(monkeypatch):
    require_trackers(TrackersConfig(wandb={"mode": "offline"}))
    monkeypatch.setenv("WANDB_MODE", "offline")
    require_trackers(TrackersConfig(wandb={}))


@pytest.mark.long
def test_a_server_that_never_answers_is_given_up(launch, monkeypatch, callers):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    require_trackers(TrackersConfig(wandb={}))  # a key is there, and is not tried
    assert callers() == []
    made = launch(wandb={"mode": "online"}, give_up_s=3.0)
    made.take(*range(6))
    assert callers(wait_s=60.0) != []
    assert made.finish() == {"wandb": "has not finished in time, 6 rows are missing"}
    assert made.events == ["waiting up to 3 s for wandb (trackers.give_up_s)"]
