"""The speed-of-light report is arithmetic on measured parts, and the parts are really measured."""

import json
import os
from types import SimpleNamespace

import pytest

import distrl
from distrl.config import RunConfig
from distrl.config.load import load
from distrl.errors import DistrlError
from distrl.launch import bench
from distrl.launch.bench import measure_parts, seconds_per_call, shares
from distrl.terminal.console import QuietView
from tests.waiting import lasts


def test_shares_of_the_cores_time_per_step():
    # 2 cores and 250,000 steps/s are 8 us of core time per step, of which 1 + 2 + 3 are known.
    found = shares({"environment": 1e-6, "policy": 2e-6, "learner": 3e-6}, cores=2, measured=250_000)
    assert found == pytest.approx({"environment": 0.125, "policy": 0.25, "learner": 0.375, "everything else": 0.25})


def test_shares_never_go_below_nothing():
    found = shares({"environment": 5e-6, "policy": 5e-6, "learner": 5e-6}, cores=1, measured=100_000)
    assert found["everything else"] == 0.0


def test_seconds_per_call_is_the_time_of_one_call(monkeypatch):
    monkeypatch.setattr(bench, "ISOLATED_S", 0.15)
    calls = []

    def call() -> None:
        calls.append(1)
        lasts(0.01)

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
    monkeypatch.setattr(bench, "seconds_per_call", lambda call: [call() for _ in range(5)] and 1.0)
    config = RunConfig.model_validate(
        {
            "environment": {"id": "distrl.environments.worlds.toy:Identity"},
            "algorithm": {"name": algorithm},
            "network": {"middleware_parameters": {"scheme": [4]}},
            "actors": {"environments": 2, "unroll_length_steps": 4},
            "learner": {"batch_size": batch_size},
        }
    )
    unrolls = batch_size or 1
    # Where every call takes a second, of two environments, and of an update's unrolls of four steps of both.
    assert measure_parts(config) == {"environment": 0.5, "policy": 0.5, "learner": 1.0 / (8 * unrolls)}
    assert counted == {"update": 5, "differentiate": 0 if algorithm == "impala" else 5 * unrolls}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.redis
def test_a_report_adds_up(monkeypatch, tmp_path):
    """Settings with unrolls so small that some come in every second, however busy the machine is."""
    monkeypatch.setattr(bench, "ISOLATED_S", 0.1)
    monkeypatch.setattr(bench, "WARM_UP_S", 1.0)
    sets = [
        "actors.environments=4",
        "algorithm.minibatches=1",
        "actors.unroll_length_steps=4",
        "network.middleware_parameters.scheme=[4]",
    ]
    report = bench.bench(
        distrl.load("cartpole-impala", sets=sets), seconds=2.0, run_dir=tmp_path, view=QuietView(write=lambda _: None)
    )
    assert report == json.loads((tmp_path / "bench.json").read_text())
    per_step = report["env_s_per_step"] + report["policy_s_per_step"] + report["learner_s_per_step"]
    assert report["cores"] == len(os.sched_getaffinity(0))
    assert report["limit_steps_per_s"] == pytest.approx(report["cores"] / per_step)
    assert report["ratio"] == pytest.approx(report["env_steps_per_s"] / report["limit_steps_per_s"])
    assert 0 < report["ratio"] < 1.5
    assert report["verdict"] in {"actors", "learner", "-"}
    assert set(report["policy_lag"]) == {"mean", "p95", "max"}
    assert report["policy_lag"]["max"] >= report["policy_lag"]["mean"] >= 0


@pytest.mark.parametrize("rows", ["1.0,100\n", "1.0,100\n2.5,100\n"], ids=["one reading", "no further step"])
def test_too_short_a_measurement_says_so(monkeypatch, tmp_path, rows):
    (tmp_path / "metrics.csv").write_text(f"wall_s,env_steps\n{rows}")
    monkeypatch.setattr(bench, "train", lambda *_, **__: SimpleNamespace(exit_code=0))
    with pytest.raises(DistrlError, match=r"^2 s are too few on this machine: .* give --seconds more$"):
        bench.measure_pipeline(load(preset="cartpole-impala"), 2.0, tmp_path, None)
