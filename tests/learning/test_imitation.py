"""Behavioural cloning of an expert of CartPole, by way of the replay memory."""

import gymnasium
import numpy as np
import pytest

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.config.schedules import Progress
from distrl.networks.actions.joint import ActionSelector
from distrl.replay.memory import Replay
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, Unroll, UnrollHeader
from distrl.unroll_schema import UnrollSchema

EPISODES, STEPS, UPDATES = 10, 500, 400
SPEC = EnvSpec("CartPole-v1", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})


def expert(observations):
    """Push where the pole falls, and a little against the cart's drift."""
    return (observations @ np.float32([0.05, 0.1, 1.0, 0.5]) > 0.0).astype("int32")


def play(choose, seed):
    """Play whole episodes side by side; return observations [steps + 1, episodes, 4], choices, and returns."""
    environments = [gymnasium.make("CartPole-v1") for _ in range(EPISODES)]
    rows = [np.stack([each.reset(seed=seed + at)[0] for at, each in enumerate(environments)])]
    choices, returns, going = [], np.zeros(EPISODES), np.ones(EPISODES, bool)
    for _ in range(STEPS):
        choices.append(choose(rows[-1]))
        row = rows[-1].copy()
        for at in np.flatnonzero(going):
            row[at], reward, terminated, truncated, _ = environments[at].step(int(choices[-1][at]))
            returns[at] += reward
            going[at] = not (terminated or truncated)
        rows.append(row)
    for environment in environments:
        environment.close()
    return np.stack(rows), np.stack(choices), returns


def recorded(observations, choices):
    shape = choices.shape
    truncated = np.zeros(shape, bool)
    truncated[-1] = True
    return Unroll(
        header=UnrollHeader(0, 1, 0, 1, choices.size),
        observations={"observation": observations},
        actions={"action": choices},
        rewards=np.ones(shape, np.float32),
        terminated=np.zeros(shape, bool),
        truncated=truncated,
        valid=np.ones(shape, bool),
        behaviour_log_probabilities=np.zeros(shape, np.float32),
        recurrent_state={},
        episode_returns=np.zeros(0, np.float32),
        episode_lengths_steps=np.zeros(0, np.int32),
    )


@pytest.mark.row("D171")
def test_ten_episodes_of_an_expert_are_enough_to_balance():
    observations, choices, returns = play(expert, seed=0)
    assert returns.tolist() == [STEPS] * EPISODES
    config = RunConfig.model_validate(
        {
            "algorithm": {"name": "bc", "replay": {"capacity_steps": STEPS * EPISODES}},
            "network": {"middleware_parameters": {"scheme": [64, 64]}, "learning_rate": 0.003},
            "seed": 1,
        }
    )
    algorithm = make_algorithm(config)
    networks = algorithm.build(SPEC)
    replay = Replay(
        config.algorithm.replay_parameters,
        UnrollSchema.of(SPEC, STEPS, EPISODES, {}),
        discount=0.99,
        seeds=np.random.SeedSequence(1),
    )
    replay.insert(recorded(observations, choices))
    for _ in range(UPDATES):
        algorithm.update(networks, replay.sample(256, Progress(0, 0, 0)).batch)
    online = networks["main"].online
    selector = ActionSelector(online.actions)

    def greedy(rows):
        return selector.mode({"policy/action": online.predict({"observation": rows})})["action"]

    assert play(greedy, seed=100)[2].mean() >= 475.0
