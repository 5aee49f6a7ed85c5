"""TD3 learns: what only pays later, within seconds, and Pendulum within its preset's budget."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long]

LENGTH, REACH = 8, 0.5


def mean_return(policy) -> float:
    """The mean over episodes of `Homing` from all over; -5/8 is the best there is, -4 that of never moving."""
    points = np.linspace(-1.0, 1.0, 201, dtype=np.float32)[:, None]
    total = np.zeros(201)
    for _ in range(LENGTH):
        total -= np.abs(points[:, 0])
        action = policy.step({"observation": points}, {}).outputs["deterministic_policy"]
        points = np.clip(points + REACH * action, -1.0, 1.0).astype(np.float32)
    return float(total.mean())


def test_td3_brings_a_point_home(train_here):
    """Every action pays at later steps alone: without targets that bootstrap, or an actor that climbs them, nothing."""
    policy = train_here(
        "environment.id=distrl.environments.worlds.toy:Homing",
        "algorithm={name: td3, discount: 0.9, replay: {min_size_steps: 256, samples_per_insert: 32}}",
        "algorithm.target_update_rate=0.02",
        "exploration={kind: gaussian_noise, stddev: {kind: constant, value: 0.1}, random_steps: 256}",
        "network.middleware_parameters.scheme=[32, 32]",
        "network.learning_rate=0.003",
        "actors.environments=4",
        "actors.unroll_length_steps=16",
        "learner.batch_size=64",
        "stop.updates=600",
    )
    assert mean_return(policy) > -0.9


@pytest.mark.timeout(1500)
@pytest.mark.redis
@pytest.mark.parametrize("algorithm", [[], ["--algorithm", "examples.own_td3:OwnTd3"]], ids=["built in", "own"])
def test_the_preset_swings_the_pendulum_up_within_its_budget(train_preset, tmp_path, algorithm):
    summary = train_preset("pendulum-td3", "--seed", "101", *algorithm)
    assert summary.env_steps <= 30_000 + 32  # whole unrolls
    assert (summary.imbalance, summary.restarts, sum(summary.dropped.values())) == (0, 0, 0)
    evaluate = [sys.executable, "-m", "distrl", "evaluate", str(tmp_path / "run"), "--episodes", "100", "--json"]
    done = subprocess.run(evaluate, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["mean_return"] >= -180.0
