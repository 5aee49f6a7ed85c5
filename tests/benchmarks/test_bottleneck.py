import json

import pytest

from benchmarks import bottleneck
from distrl.config.load import load

WHERE = {"commit": "abc1234", "date": "2026-01-02", "machine": "2 cores (X)", "load_before": 0.1}


def test_a_verdict_is_right_or_not():
    shares = {"learner_idle_share": 0.985, "actors_blocked_share": 0.0}
    entries = [
        {**WHERE, **shares, "name": "slow-environments", "verdict": "actors", "right": "actors"},
        {**WHERE, **shares, "name": "slow-learner", "verdict": "-", "right": "learner"},
    ]
    assert bottleneck.block({"command": "c", "results": entries}).splitlines()[-2:] == [
        "| slow-environments | 98% | 0% | actors | actors, met |",
        "| slow-learner | 98% | 0% | - | learner, **missed** |",
    ]


@pytest.mark.parametrize("name", bottleneck.CASES)
def test_every_case_is_a_configuration(name):
    case = bottleneck.CASES[name]
    config = load(preset=case.preset, sets=case.sets).config
    assert config.actors.count == 2
    assert not config.algorithm.rounds


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.redis
@pytest.mark.parametrize("name", bottleneck.CASES)
def test_a_training_has_shares_and_a_verdict(name, tmp_path):
    """Which verdict is for the benchmark to say, on a machine that does nothing else."""
    assert bottleneck.main(["--only", name, "--seconds", "15", "--out", str(tmp_path)]) == 0
    (entry,) = json.loads((tmp_path / "bottleneck.json").read_text())["results"]
    assert 0.0 <= entry["learner_idle_share"] <= 1.0
    assert 0.0 <= entry["actors_blocked_share"] <= 1.0
    assert entry["verdict"] in ("actors", "learner", "-")
