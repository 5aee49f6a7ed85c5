import gymnasium
import pytest

import distrl

SMALL = ["network.middleware_parameters.scheme=[8]", "checkpoint.every_updates=1000"]
"""A network and a frequency of checkpoints that cost no time."""


@pytest.fixture
def agent_of(tmp_path):
    """Makes agents for CartPole with a small network; closes them."""
    made = []

    def make(*sets, config="ppo", name="run", environment=None, **more):
        arguments = {"sets": [*SMALL, *sets], "run_dir": tmp_path / name, "view": "silent"} | more
        if environment is None:
            made.append(distrl.Agent(config, **arguments))
        else:
            made.append(distrl.Agent.of(environment, config, **arguments))
        return made[-1]

    yield make
    for agent in made:
        agent.close()


@pytest.fixture
def cartpole():
    environment = gymnasium.make("CartPole-v1")
    yield environment
    environment.close()
