"""Data sets of `LoggedEnv`, which remembers all that it has shown, taken and paid."""

import numpy as np
import pytest

from distrl.config import RunConfig
from distrl.data.opening import new_set
from distrl.data.recording import record
from distrl.environments.random_actions import RandomActions
from distrl.environments.vector import VectorEnvironment
from tests.data.logged_env import LOG


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


@pytest.fixture
def config():
    """Makes a configuration that learns from data in `LoggedEnv`."""

    def make(name="test/random", *, kind="plain", unroll_length_steps=4, rows=3, **sections):
        environment = {"id": "tests.data.logged_env:LoggedEnv", "kwargs": {"kind": kind}, "vectorization": "sync"}
        tree = {
            "environment": {**environment, **sections.pop("environment", {})},
            "algorithm": {"name": "dqn"},
            "actors": {"count": 0, "environments": rows, "unroll_length_steps": unroll_length_steps},
            "data": {"sets": name},
            **sections,
        }
        return RunConfig.model_validate(tree)

    return make


@pytest.fixture
def recorded(config):
    """Records random actions, and returns the episodes as the environments have logged them, in the set's order."""

    def make(name="test/random", *, kind="plain", episodes=7, rows=2):
        environment = VectorEnvironment(config(kind=kind).environment, rows)
        vector = environment.vector
        spaces = vector.single_observation_space, vector.single_action_space
        writer = new_set(name, "tests.data.logged_env:LoggedEnv", *spaces, {"algorithm_name": "random"})
        policy = _Drawn(RandomActions(environment.spec, np.random.default_rng(0)))
        LOG.clear()
        ended = [*record(policy, environment, episodes, writer, seed=5, most_steps=None, log_probability=-0.5)]
        environment.close()
        writer.finish()
        assert len(ended) == episodes
        # Rows take turns by the step in which an episode ends; those of one step by the row.
        return [episode for episode in LOG if episode.over][:episodes]

    return make


class _Drawn:
    def __init__(self, draw):
        self._draw = draw

    def initial_state(self, batch):
        return {}

    def choose(self, observations, recurrent_state):
        return self._draw(observations), {}
