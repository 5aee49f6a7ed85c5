"""SAC learns: what only pays later, within seconds, and Pendulum within its preset's budget."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.slow

LENGTH, REACH = 8, 0.5


def mean_return(policy) -> float:
    """Return the mean return of greedy episodes of `Homing` from many starts; the best is -5/8, without a move -4."""
    points = np.linspace(-1.0, 1.0, 201, dtype=np.float32)[:, None]
    total = np.zeros(201)
    for _ in range(LENGTH):
        total -= np.abs(points[:, 0])
        mean = policy.step({"observation": points}, {}).outputs["policy/action"][:, :1]
        points = np.clip(points + REACH * np.tanh(mean), -1.0, 1.0).astype(np.float32)
    return float(total.mean())


def test_sac_brings_a_point_home(train_here):
    """Every action pays at later steps alone: without targets that bootstrap, or an actor that climbs them, nothing."""
    policy = train_here(
        "environment.id=distrl.environments.worlds.toy:Homing",
        "algorithm={name: sac, discount: 0.9, replay: {min_size_steps: 256, samples_per_insert: 32}}",
        "exploration={kind: policy, random_steps: 256}",
        "network.middleware_parameters.scheme=[32, 32]",
        "network.learning_rate=0.003",
        "actors.environments=4",
        "actors.unroll_length_steps=16",
        "learner.batch_size=64",
        "stop.updates=600",
    )
    assert mean_return(policy) > -0.9


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.redis
@pytest.mark.row("D169")
def test_the_preset_swings_the_pendulum_up_within_its_budget(train_preset, tmp_path):
    summary = train_preset("pendulum-sac", "--seed", "101")
    assert summary.env_steps <= 30_000 + 32  # whole unrolls
    assert (summary.imbalance, summary.restarts, sum(summary.dropped.values())) == (0, 0, 0)
    evaluate = [sys.executable, "-m", "distrl", "evaluate", str(tmp_path / "run"), "--episodes", "100", "--json"]
    done = subprocess.run(evaluate, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["mean_return"] >= -180.0
