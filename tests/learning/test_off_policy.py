"""DDPG, TQC, CrossQ and NAF learn: what only pays later, within seconds, and Pendulum within their presets' budgets."""

import json
import subprocess
import sys

import numpy as np
import pytest

from distrl.config.presets import preset_facts

pytestmark = [pytest.mark.slow, pytest.mark.long]

LENGTH, REACH = 8, 0.5
NOISE = "exploration={kind: gaussian_noise, stddev: {kind: constant, value: 0.1}, random_steps: 256}"
DRAWN = "exploration={kind: policy, random_steps: 256}"
SETTINGS = {
    "ddpg": ("algorithm.target_update_rate=0.02", NOISE),
    "naf": ("algorithm.target_update_rate=0.02", NOISE),
    "tqc": (
        "algorithm.critics=2",
        "algorithm.quantiles=8",
        "algorithm.dropped_quantiles=1",
        "algorithm.target_update_rate=0.02",
        "algorithm.initial_temperature=0.1",
        "stop.updates=1000",
        DRAWN,
    ),
    "crossq": (
        "algorithm.critic_layers=[64, 64]",
        "algorithm.policy_every_updates=1",
        "algorithm.initial_temperature=0.1",
        "algorithm.batch_norm_momentum=0.9",  # as there are few updates
        "network.adam_optimizer_beta1=0.5",
        "stop.updates=1000",
        DRAWN,
    ),
}
OUTPUTS = {"ddpg": "deterministic_policy", "naf": "naf/mu", "tqc": "policy/action", "crossq": "policy/action"}


def mean_return(policy, output) -> float:
    """Return the mean return of greedy episodes of `Homing` from many starts; the best is -5/8, without a move -4."""
    points = np.linspace(-1.0, 1.0, 201, dtype=np.float32)[:, None]
    total = np.zeros(201)
    for _ in range(LENGTH):
        total -= np.abs(points[:, 0])
        action = policy.step({"observation": points}, {}).outputs[output]
        if output == "policy/action":
            action = np.tanh(action[:, :1])  # of the mean
        points = np.clip(points + REACH * action, -1.0, 1.0).astype(np.float32)
    return float(total.mean())


@pytest.mark.parametrize("name", SETTINGS)
def test_it_brings_a_point_home(train_here, name):
    """Every action pays at later steps alone: without targets that bootstrap, or a policy that climbs them, nothing."""
    policy = train_here(
        "environment.id=distrl.environments.worlds.toy:Homing",
        f"algorithm={{name: {name}, discount: 0.9, replay: {{min_size_steps: 256, samples_per_insert: 32}}}}",
        "network.middleware_parameters.scheme=[32, 32]",
        "network.learning_rate=0.003",
        "actors.environments=4",
        "actors.unroll_length_steps=16",
        "learner.batch_size=64",
        "stop.updates=600",
        *SETTINGS[name],
    )
    assert mean_return(policy, OUTPUTS[name]) > -1.0


PRESETS = [
    pytest.param("pendulum-ddpg", marks=pytest.mark.row("D167")),
    "pendulum-tqc",
    "pendulum-crossq",
    pytest.param("pendulum-naf", marks=pytest.mark.row("D160")),
]


@pytest.mark.timeout(1500)
@pytest.mark.redis
@pytest.mark.parametrize("preset", PRESETS)
def test_the_preset_swings_the_pendulum_up_within_its_budget(train_preset, tmp_path, preset):
    summary = train_preset(preset, "--seed", "101")
    assert summary.env_steps <= preset_facts(preset).acceptance.env_steps + 32  # whole unrolls
    assert (summary.imbalance, summary.restarts, sum(summary.dropped.values())) == (0, 0, 0)
    evaluate = [sys.executable, "-m", "distrl", "evaluate", str(tmp_path / "run"), "--episodes", "100", "--json"]
    done = subprocess.run(evaluate, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["mean_return"] >= preset_facts(preset).acceptance.mean_return
