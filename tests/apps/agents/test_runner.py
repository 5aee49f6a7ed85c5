import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import distrl
from distrl.errors import ConfigError
from tests.apps.agents.conftest import SMALL


class Counting(gymnasium.Env):
    """Pays 1 for each step and shows their number; an episode ends after `length`, or never."""

    observation_space = Box(0, 1e6, (1,))
    action_space = Discrete(2)

    def __init__(self, length=None):
        self.length, self.rendered, self.seeds = length, 0, []

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        self.seeds.append(seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.array([self.steps], np.float32), 1.0, self.steps == self.length, False, {}

    def render(self):
        self.rendered += 1


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    sets = [*SMALL, "actors.unroll_length_steps=8", "learner.batch_size=4", "actors.environments=1"]
    directory = tmp_path_factory.mktemp("agent") / "run"
    with distrl.Agent.of(Counting(), sets=sets, run_dir=directory, view="silent") as made:
        yield made


@pytest.mark.row("N02")
def test_limits_are_exact_and_cut_off_what_they_interrupt(agent):
    ends = []
    runner = distrl.Runner(agent, Counting(), max_episode_steps=10)
    result = runner.run(steps=10, on_step=lambda step: ends.append((step.terminated, step.truncated)))
    assert (result.steps, result.stop_reason, result.returns) == (10, "steps", [10.0])
    assert ends == [(False, False)] * 9 + [(False, True)]
    result = distrl.Runner(agent, Counting(4)).run(episodes=3)
    assert (result.steps, result.episodes, result.stop_reason) == (12, 3, "episodes")


@pytest.mark.row("N02")
def test_a_callback_ends_the_run_by_false_alone(agent):
    seen = []

    def after(episode):
        seen.append((episode.worker, episode.episodes, episode.total_return, episode.steps))
        return episode.episodes < 3

    result = distrl.Runner(agent, [Counting(2), Counting(3)]).run(on_episode=after, on_step=lambda step: None)
    assert (result.episodes, result.stop_reason) == (3, "callback")
    assert seen == [(0, 1, 2.0, 2), (1, 2, 3.0, 3), (0, 3, 2.0, 2)]


@pytest.mark.row("N01", "N07")
def test_an_action_is_repeated_until_the_end_of_the_episode(agent):
    rewards = []
    result = distrl.Runner(agent, Counting(10), repeat=4).run(
        episodes=1, on_step=lambda step: rewards.append(step.reward)
    )
    assert rewards == [4.0, 4.0, 2.0]
    assert (result.steps, result.frames, result.returns, result.workers[0].lengths) == (3, 10, [10.0], [3])
    assert result.frames_per_s == pytest.approx(result.steps_per_s * 10 / 3)
    assert (result.least_return, result.mean_return, result.greatest_return) == (10.0, 10.0, 10.0)


@pytest.mark.row("N08", "O03", "O04")
def test_results_are_by_worker_with_the_throughput_of_all(agent):
    environments, updates = [Counting(2), Counting(4), Counting(5)], []
    before = agent.updates
    result = distrl.Runner(agent, environments, render=True).run(updates=3, seed=7, on_update=updates.append)
    assert (result.updates, result.stop_reason) == (3, "updates")
    assert updates == [before + 1, before + 2, before + 3]
    assert [set(worker.returns) for worker in result.workers] == [{2.0}, {4.0}, {5.0}]
    assert result.worker(2) is result.workers[2]
    with pytest.raises(ConfigError, match=r"^worker 3: there are workers 0 to 2$"):
        result.worker(3)
    assert [environment.seeds[:2] for environment in environments] == [[7, None], [8, None], [9, None]]
    assert (environments[0].rendered > 0, environments[1].rendered) == (True, 0)
    least, mean, greatest = result.throughput
    assert least <= mean <= greatest
    assert mean * result.seconds == pytest.approx(result.steps)


def test_greedy_runs_learn_nothing(agent):
    before = agent.updates
    result = distrl.Runner(agent, Counting(5)).run(episodes=20, greedy=True)
    assert (result.returns, agent.updates) == ([5.0] * 20, before)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"environments": []}, "^environments: there is none$"),
        ({"environments": Counting(), "repeat": 0}, "^repeat: 0 must be at least 1$"),
        (
            {"environments": "CartPole-v1"},
            "^environments: 'CartPole-v1' cannot be stepped; make it with gymnasium.make$",
        ),
        ({"environments": Counting(), "max_episode_steps": -1}, "^max_episode_steps: -1 must be at least 1$"),
    ],
)
def test_what_no_runner_can_be_made_of(agent, arguments, told):
    with pytest.raises(ConfigError, match=told):
        distrl.Runner(agent, **arguments)


def test_limits_are_at_least_one(agent):
    with pytest.raises(ConfigError, match=r"^episodes: 0 must be at least 1$"):
        distrl.Runner(agent, Counting()).run(episodes=0)
