"""Two workers of one search, of which one is killed: every trial is trained, and none twice."""

import os
import signal
import subprocess
import sys
from itertools import pairwise

import pytest

from distrl.apps.experiments.directory import SweepDirectory
from distrl.apps.experiments.search import Search
from distrl.apps.experiments.tuning import open_study
from distrl.config.load import validated
from tests.waiting import wait_until

pytestmark = pytest.mark.long

VARY = {"network.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}


def worker(target, log, *options):
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "distrl", "tune", str(target), *options],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def test_two_workers_share_a_study_and_one_takes_over_from_the_other(tmp_path):
    file, place = tmp_path / "search.yaml", tmp_path / "search"
    shared = "environment.id: CartPole-v1, actors.count: 0, stop.env_steps: 3000, checkpoint.every_updates: 1"
    file.write_text(f"set: {{{shared}}}\nvary: {VARY}\ntrials: 5\n".replace("'", "").replace("True", "true"))
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    first = worker(file, logs[0], "--dir", str(place))
    wait_until((place / "0001").exists, f"{logs[0]} tells of 0001")
    second = worker(place, logs[1])
    wait_until((place / "0002" / "metrics.csv").exists, f"{logs[1]} tells of 0002")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert second.wait(timeout=300) == 0, logs[1].read_text()
    study = open_study(validated(Search, {"vary": VARY}, {}), SweepDirectory(place, "search.yaml"))
    trials = study.get_trials()
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 5
    assert len({trial.params["network.learning_rate"] for trial in trials}) == 5
    assert (place / "best.yaml").exists()
    begun = [line for log in logs for line in log.read_text().splitlines() if line.endswith(" …") and "[" in line]
    numbers = sorted(line.split("]")[0] for line in begun if not line.endswith("goes on …"))
    assert all(left != right for left, right in pairwise(numbers))
    assert len(numbers) == 5
