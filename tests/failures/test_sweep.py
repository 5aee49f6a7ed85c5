"""Sweeps that are killed at any moment and continued: every run ends, and none that had ended is trained again."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def start(arguments, log):
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "distrl", "sweep", *arguments, "--parallel", "2"],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def trainings_of(place):
    """Processes that train in the sweep's directory."""
    found = subprocess.run(["pgrep", "-f", f"distrl train {place}/base.yaml"], capture_output=True, text=True)
    return found.stdout.split()


def states(place):
    return {run["run"]: run["state"] for run in json.loads((place / "sweep.json").read_text())["runs"]}


def done(place):
    """Return how many runs are done; 0 before the sweep has begun."""
    return [*states(place).values()].count("done") if (place / "sweep.json").exists() else 0


@pytest.mark.parametrize("settings", [1, pytest.param(8, marks=pytest.mark.long)])
def test_a_sweep_that_is_killed_and_continued(tmp_path, settings):
    """It is killed when a further run is done while others are not; a run that is done is not trained again."""
    file, place, log = tmp_path / "sweep.yaml", tmp_path / "sweep", tmp_path / "log"
    rates = [1e-4 * (index + 1) for index in range(settings)]
    file.write_text(
        "set: {environment.id: CartPole-v1, actors.count: 0, stop.env_steps: 2000, checkpoint.every_updates: 1}\n"
        f"vary: {{network.learning_rate: {rates}}}\nseeds: 1..3\n"
    )
    count = 3 * settings
    process, ended = start([str(file), "--dir", str(place)], log), {}
    for kills in range(1, min(settings, 3) + 1):
        wait_until(lambda least=kills: done(place) >= least, "a further run is done")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert done(place) < count
        names = [name for name, state in states(place).items() if state == "done"]
        ended |= {name: (place / name / "summary.json").stat().st_mtime_ns for name in names if name not in ended}
        process = start([str(place)], log)
    process.wait(timeout=600)
    told = log.read_text()
    assert process.returncode == 0, told
    assert [*states(place).values()] == ["done"] * count
    for name, written in ended.items():
        assert (place / name / "summary.json").stat().st_mtime_ns == written, f"{name} was trained again"
    for name in states(place):
        summary = json.loads((place / name / "summary.json").read_text())
        assert summary["env_steps"] >= 2000
        assert summary["imbalance"] == 0
    assert not trainings_of(place)


@pytest.mark.long
def test_trainings_end_when_their_sweep_is_killed(tmp_path):
    file, place = tmp_path / "sweep.yaml", tmp_path / "sweep"
    file.write_text("set: {environment.id: CartPole-v1, actors.count: 1}\nseeds: 1..2\n")
    process = start([str(file), "--dir", str(place)], tmp_path / "log")
    tables = [place / name / "metrics.csv" for name in ("0001", "0002")]
    wait_until(
        lambda: all(table.exists() and len(table.read_text().splitlines()) > 2 for table in tables), "both train"
    )
    assert len(trainings_of(place)) >= 2
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not trainings_of(place), "the trainings have ended")
    for name in ("0001", "0002"):
        summary = json.loads((place / name / "summary.json").read_text())
        assert (summary["stop_reason"], summary["imbalance"]) == ("SIGTERM", 0)
