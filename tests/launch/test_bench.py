"""The speed-of-light report is arithmetic on measured parts, and the parts are really measured."""

import json
import os
import subprocess
import sys
import time

import pytest

from distrl.config import RunConfig
from distrl.launch import bench
from distrl.launch.bench import measure_parts, seconds_per_call, shares


def test_shares_of_the_cores_time_per_step():
    # 2 cores and 250,000 steps/s are 8 us of core time per step, of which 1 + 2 + 3 are known.
    found = shares({"environment": 1e-6, "policy": 2e-6, "learner": 3e-6}, cores=2, measured=250_000)
    assert found == pytest.approx({"environment": 0.125, "policy": 0.25, "learner": 0.375, "everything else": 0.25})


def test_shares_never_go_below_nothing():
    found = shares({"environment": 5e-6, "policy": 5e-6, "learner": 5e-6}, cores=1, measured=100_000)
    assert found["everything else"] == 0.0


def test_seconds_per_call_is_the_time_of_one_call():
    calls = []

    def call() -> None:
        calls.append(1)
        time.sleep(0.01)

    assert seconds_per_call(call) >= 0.01  # sleep never returns early
    assert len(calls) > 5


@pytest.mark.parametrize(("algorithm", "batch_size"), [("impala", 3), ("a3c", 2), ("a2c", None)])
def test_the_learners_part_is_whatever_learning_takes_in_whichever_role(monkeypatch, algorithm, batch_size):
    from distrl.algorithms.algorithm import GradientAlgorithm

    counted = {"differentiate": 0, "update": 0}

    def count(name):
        original = getattr(GradientAlgorithm, name)

        def call(self, networks, batch):
            counted[name] += 1
            return original(self, networks, batch)

        monkeypatch.setattr(GradientAlgorithm, name, call)

    for name in counted:
        count(name)
    monkeypatch.setattr(bench, "ISOLATED_S", 0.01)
    config = RunConfig.model_validate(
        {
            "environment": {"id": "distrl.environments.toy:Identity"},
            "algorithm": {"name": algorithm},
            "network": {"middleware_parameters": {"scheme": [4]}},
            "actors": {"environments": 2, "unroll_length_steps": 4},
            "learner": {"batch_size": batch_size},
        }
    )
    parts = measure_parts(config)
    assert parts.keys() == {"environment", "policy", "learner"}
    assert min(parts.values()) > 0.0
    assert counted["update"] >= 5
    per_update = {"impala": 0, "a3c": 2, "a2c": 1}[algorithm]
    assert counted["differentiate"] == per_update * counted["update"]


@pytest.mark.slow
@pytest.mark.redis
def test_a_report_adds_up(tmp_path):
    command = [
        sys.executable,
        "-m",
        "distrl",
        "bench",
        "--json",
        "--seconds",
        "2",
        "--run-dir",
        str(tmp_path / "bench"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "bench" / "bench.json").read_text())
    per_step = report["env_s_per_step"] + report["policy_s_per_step"] + report["learner_s_per_step"]
    assert report["cores"] == len(os.sched_getaffinity(0))
    assert report["limit_steps_per_s"] == pytest.approx(report["cores"] / per_step)
    assert report["ratio"] == pytest.approx(report["env_steps_per_s"] / report["limit_steps_per_s"])
    assert 0 < report["ratio"] <= 1.5  # isolated parts cannot be much slower than the whole
    assert report["verdict"] in {"actors", "learner", "-"}
    assert set(report["policy_lag"]) == {"mean", "p95", "max"}
    assert report["policy_lag"]["max"] >= report["policy_lag"]["mean"] >= 0
