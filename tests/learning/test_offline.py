"""CartPole from recorded steps, by way of the replay memory: an expert's, and random ones; and beside an actor's."""

import json

import gymnasium
import numpy as np
import pytest

import distrl
from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.config.schedules import Progress
from distrl.networks.actions.joint import ActionSelector
from distrl.replay.memory import Replay
from distrl.terminal.console import QuietView
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, Unroll, UnrollHeader
from distrl.unroll_schema import UnrollSchema
from tests.algorithms.recorded import with_data

EPISODES, STEPS = 10, 500
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


def play_at_random(steps):
    """Return the arrays of one unroll [steps, 1] of random choices, and the mean return of its episodes."""
    environment, rng = gymnasium.make("CartPole-v1"), np.random.default_rng(0)
    choices = rng.integers(0, 2, (steps, 1)).astype("int32")
    rewards, terminated, valid = np.zeros((steps, 1), np.float32), np.zeros((steps, 1), bool), np.ones((steps, 1), bool)
    rows, over = [environment.reset(seed=0)[0]], False
    for step in range(steps):
        if over:  # this row holds the true final observation, and what follows it begins the next episode
            valid[step], (row, _), over = False, environment.reset(), False
        else:
            row, rewards[step], over, _, _ = environment.step(int(choices[step, 0]))
            terminated[step] = over
        rows.append(row)
    environment.close()
    observations = np.stack(rows)[:, None].astype("float32")
    return recorded(observations, choices, rewards, terminated, valid), valid.sum() / terminated.sum()


def recorded(observations, choices, rewards, terminated, valid):
    shape = choices.shape
    truncated = np.zeros(shape, bool)
    truncated[-1] = ~terminated[-1]
    return Unroll(
        header=UnrollHeader(0, 1, 0, 1, int(valid.sum())),
        observations={"observation": observations},
        actions={"action": choices},
        rewards=rewards,
        terminated=terminated,
        truncated=truncated,
        valid=valid,
        behaviour_log_probabilities=np.zeros(shape, np.float32),
        recurrent_state={},
        episode_returns=np.zeros(0, np.float32),
        episode_lengths_steps=np.zeros(0, np.int32),
    )


def learned(unroll, updates, **algorithm):
    """Return the greedy policy of an algorithm that has learned from one unroll."""
    steps, episodes = unroll.valid.shape
    tree = {
        "algorithm": {"replay": {"capacity_steps": steps * episodes}, **algorithm},
        "network": {
            "input_embedders_parameters": {"observation": {"normalize": True}},
            "middleware_parameters": {"scheme": [64, 64]},
            "learning_rate": 0.001,
        },
        "actors": {"count": 1, "environments": episodes, "unroll_length_steps": steps},
        "seed": 1,
    }
    config = RunConfig.model_validate(with_data(tree))
    made = make_algorithm(config)
    networks = made.build(SPEC)
    replay = Replay(
        config.algorithm.replay_parameters,
        UnrollSchema.of(SPEC, steps, episodes, {}),
        discount=config.algorithm.discount,
        seeds=np.random.SeedSequence(1),
    )
    replay.insert(unroll)
    for _ in range(updates):
        made.update(networks, replay.sample(256, Progress()).batch)
    online = networks["main"].online
    selector, output = ActionSelector(online.actions), online.actions["action"].output_of("action")
    return lambda rows: selector.mode({output: online.predict({"observation": rows}, [output])})["action"]


@pytest.mark.row("D171")
def test_ten_episodes_of_an_expert_are_enough_to_balance():
    observations, choices, returns = play(expert, seed=0)
    assert returns.tolist() == [STEPS] * EPISODES
    ones = np.ones(choices.shape, np.float32)
    unroll = recorded(observations, choices, ones, ones == 0.0, ones == 1.0)
    assert play(learned(unroll, 600, name="bc"), seed=100)[2].mean() >= 475.0


def write_table(path, observations, choices):
    """Write whole episodes side by side as a table of `data.sets`, none of which has terminated."""
    steps = [
        [episode, *observations[step, episode], choices[step, episode], 1, step == STEPS - 1]
        for episode in range(EPISODES)
        for step in range(STEPS)
    ]
    names = ",".join(f"observation_{number}" for number in range(4))
    np.savetxt(path, steps, "%.9g", ",", header=f"episode,{names},action,reward,truncated", comments="")


def steps_to_balance(run_dir, seed, *sets):
    """Train with one actor in this process until an evaluation's mean return is 195; return environment steps."""
    sets = (
        *("actors.count=0", f"seed={seed}", "stop={evaluation_return: 195, env_steps: 40000}"),
        *("evaluation.every_env_steps=500", "evaluation.episodes=10", *sets),
    )
    summary = distrl.train(
        distrl.load("cartpole-dqn", sets=sets), run_dir=run_dir, view=QuietView(run_dir, lambda text: None)
    )
    assert (summary.exit_code, summary.imbalance) == (0, 0)
    return summary.env_steps


@pytest.mark.row("G32")
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_demonstrations_save_environment_steps(tmp_path):
    """20 episodes of an expert beside an actor's, and the same settings without them; for each of three seeds."""
    for name, seed in (("one", 0), ("other", EPISODES)):
        observations, choices, _ = play(expert, seed)
        write_table(tmp_path / f"{name}.csv", observations, choices)
    sets = [{"name": str(tmp_path / f"{name}.csv"), "columns": {"terminated": None}} for name in ("one", "other")]
    demonstrations = (
        *("algorithm.name=dqfd", "algorithm.n_step_weight=0", "algorithm.replay.sampler={kind: uniform}"),
        f"data={json.dumps({'sets': sets, 'share': 0.2, 'pretrain_updates': 500})}",
    )
    for seed in (1, 2, 3):
        alone = steps_to_balance(tmp_path / f"dqn-{seed}", seed)
        assert steps_to_balance(tmp_path / f"dqfd-{seed}", seed, *demonstrations) < alone


@pytest.mark.long
def test_values_of_random_steps_balance_longer_than_these():
    """Discrete BCQ and CQL, of which only values can be better than what was recorded."""
    unroll, mean_return = play_at_random(10_000)
    assert mean_return < 25.0
    for name in ("discrete_bcq", "discrete_cql"):
        greedy = learned(unroll, 1_000, name=name, target_update_every_updates=100)
        assert play(greedy, seed=100)[2].mean() > 100.0, name
