"""Five actions of every kind at once are all learned: by what policies draw, and by their most probable actions."""

import numpy as np
import pytest

from distrl.actors.policy import Policy
from distrl.config.load import load
from distrl.environments.spaces import action_writer
from distrl.environments.vector import VectorEnvironment
from distrl.environments.worlds.toy import Mixed
from distrl.memory_backend.codec import decode_weights
from distrl.networks.actions.joint import ActionSelector
from distrl.types import PolicyBundle

STEPS, ENVIRONMENTS = 8, 50
GRADIENTS = ["actors.environments=16", "network.learning_rate=0.01", "stop.updates=400"]
UNROLLS = ["actors.environments=64", "network.learning_rate=0.01", "stop.updates=150", "learner.batch_size=1"]
EPOCHS = [
    "actors.environments=64",
    "network.learning_rate=0.003",
    "stop.updates=40",
    "learner.batch_size=1",
    "algorithm.epochs=10",
    "algorithm.minibatches=8",
]


@pytest.mark.slow
@pytest.mark.row("M15", "G34", "R03")
@pytest.mark.parametrize(
    ("algorithm", "sets"),
    [
        pytest.param("impala", UNROLLS, marks=pytest.mark.long),
        ("ppo", EPOCHS),
        pytest.param("appo", EPOCHS, marks=pytest.mark.long),
        pytest.param("a2c", GRADIENTS, marks=pytest.mark.long),
        pytest.param("a3c", GRADIENTS, marks=pytest.mark.long),
    ],
)
def test_actions_of_every_type_reach_four_fifths(train_here, algorithm, sets):
    policy = train_here(
        "environment.id=distrl.environments.worlds.toy:Mixed",
        f"algorithm={{name: {algorithm}, discount: 0.0, entropy_weight: 0.001}}",  # a step changes nothing that follows
        "network.middleware_parameters={kind: fc, scheme: [64], activation: tanh}",
        "actors.unroll_length_steps=9",
        *sets,
    )
    environment = Mixed()
    write, selector = action_writer("Mixed", environment.action_space), ActionSelector(policy.distributions)
    random, closeness = np.random.default_rng(0), []
    for seed in range(400):
        shown, _ = environment.reset(seed=seed)
        actions, _ = selector.sample(policy.step({"observation": shown[None]}, {}).outputs, random)
        closeness.append(environment.closeness({name: rows[0] for name, rows in write(actions).items()}))
    means = {name: np.mean([row[name] for row in closeness]) for name in closeness[0]}
    assert set(means) == {"symbol", "choices", "switches", "bounded", "free"}
    assert min(means.values()) >= 0.8, means


def greedy_closeness(run_dir, monkeypatch):
    """Action -> mean closeness, in [0, 1], of the saved policy's most probable actions in one episode each."""
    told = []
    closeness = Mixed.closeness
    monkeypatch.setattr(Mixed, "closeness", lambda self, action: told.append(closeness(self, action)) or told[-1])
    folder = run_dir / "policy"
    policy = Policy(PolicyBundle((folder / "graph.onnx").read_bytes(), (folder / "description.json").read_text()))
    policy.set_weights(decode_weights((folder / "weights.msgpack").read_bytes()))
    selector = ActionSelector(policy.distributions)
    environment = VectorEnvironment(load(preset="mixed-impala").config.environment, ENVIRONMENTS)
    observations = environment.reset(123)
    for _ in range(STEPS):
        observations = environment.step(selector.mode(policy.step(observations, {}).outputs)).observations
    environment.close()
    assert len(told) == STEPS * ENVIRONMENTS
    return {action: np.mean([one[action] for one in told]) for action in told[0]}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.redis
@pytest.mark.row("G34")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_of_five_actions_of_every_kind_are_learned(train_preset, tmp_path, monkeypatch, seed):
    summary = train_preset("mixed-impala", "--seed", str(seed))
    assert (summary.stop_reason, summary.imbalance, summary.restarts) == ("mean_return", 0, 0)
    assert summary.mean_return_100 is not None
    # A mean of 0.96 over five actions, none above 1: each of them is at 0.8 at least, as it was drawn.
    assert summary.mean_return_100 >= 0.96 * STEPS
    assert summary.env_steps <= 300_000
    found = greedy_closeness(tmp_path / "run", monkeypatch)
    assert found.keys() == {"symbol", "choices", "switches", "bounded", "free"}
    assert min(found.values()) >= 0.8, found
