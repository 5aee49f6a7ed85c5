"""A population of which a member is killed, and then the command: all go on, with the settings that the record has."""

import json
import os
import signal
import subprocess
import sys

import pytest

from distrl.data_store.checkpoints import load_newest
from distrl.learner.state import LearnerState
from distrl.runs.last_row import last_row
from tests.waiting import wait_until

pytestmark = pytest.mark.long

SEARCH = """\
preset: cartpole-impala
set: {actors.count: 1, actors.environments: 8, stop: {env_steps: 100000}, learner.device: cpu}
vary:
  network.learning_rate: {low: 1e-5, high: 1e-2, log: true}
  algorithm.entropy_weight: {low: 0.001, high: 0.05, log: true}
population: {every_env_steps: 5000}
"""
NAMES = ["0001", "0002", "0003"]


def start(target, log, *options):
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "distrl", "tune", str(target), *options],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def lessons_of(place):
    return json.loads((place / "population.json").read_text())["lessons"]


def steps_of(place, name):
    return last_row(place / name / "metrics.csv").get("env_steps") or 0


def test_a_killed_member_goes_on_and_so_does_a_killed_command(tmp_path):
    file, place, log = tmp_path / "search.yaml", tmp_path / "population", tmp_path / "log"
    file.write_text(SEARCH)

    def wait_for(what, happened, within_s=240.0):
        wait_until(happened, f"{what}, as {log} tells", within_s)

    process = start(file, log, "--population", "3", "--dir", str(place))
    wait_for("0002 trains", lambda: steps_of(place, "0002") > 3000)
    os.kill(json.loads((place / "0002" / "run.json").read_text())["pid"], signal.SIGKILL)
    wait_for("0002 goes on", lambda: "0002: killed by signal 9; it goes on from its last checkpoint" in log.read_text())
    wait_for("a member takes over", lambda: lessons_of(place))
    first = lessons_of(place)[0]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process = start(place, log)
    assert process.wait(timeout=400) == 0, log.read_text()

    record = json.loads((place / "population.json").read_text())
    assert record["lessons"][0] == first
    assert record["under_way"] == {}
    for name in NAMES:
        summary = json.loads((place / name / "summary.json").read_text())
        assert (summary["stop_reason"], summary["imbalance"]) == ("env_steps", 0), name
        saved = load_newest(place / name / "checkpoints")
        assert saved is not None
        in_use = {path: value for path, (_, value) in LearnerState.from_meta(saved.meta).settings.items()}
        assert in_use == record["members"][name]["values"], name
    later = [lesson["after"] for lesson in record["lessons"] if lesson["member"] == first["member"]]
    assert record["members"][first["member"]]["values"] == later[-1]
    requests = (place / first["member"] / "logs" / "events.log").read_text()
    assert f"take the networks of {place / first['checkpoint']}" in requests
    assert (place / "best.yaml").exists()
    assert (place / "population.svg").exists()
