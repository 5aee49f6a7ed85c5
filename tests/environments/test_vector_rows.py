"""Rows that are agents of one environment: two of them, one of which leaves an episode before the other."""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from distrl.actors.baselines import ConstantPolicy
from distrl.actors.evaluator import Evaluator
from distrl.actors.unroll import UnrollBuilder
from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.environments.gym_adapter import VALID
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError
from distrl.launch.deterministic import run_deterministic
from distrl.learner.replay_set_up import unroll_schema
from distrl.memory_backend.backend import connect
from distrl.memory_backend.stream import QueueCaps
from distrl.roles.description import RunDescription

SPACE = Box(-1.0, 100.0, (1,), np.float32)


class PairVector(VectorEnv):
    """Agent 0 terminates at step 2 and then shows -1; agent 1, and with it the episode, is cut off at step 4.

    A step pays its number, and one that does not count pays NaN.
    """

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    agents = 2

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs * self.agents
        self.single_observation_space, self.single_action_space = SPACE, Discrete(2)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._first = np.arange(self.num_envs) % 2 == 0

    def reset(self, *, seed=None, options=None):
        self._steps = 0
        return np.zeros((self.num_envs, 1), np.float32), {}

    def step(self, actions):
        assert len(actions) == self.num_envs
        self._steps = (self._steps + 1) % 5
        valid = np.where(self._first, self._steps in (1, 2), self._steps > 0)
        observations = np.where(self._first & (self._steps > 2), -1.0, self._steps)[:, None].astype(np.float32)
        # Both flags stay up after an agent's end, as in PettingZoo's dead steps.
        terminated, truncated = self._first & (self._steps >= 2), ~self._first & (self._steps in (0, 4))
        return observations, np.where(valid, self._steps, np.nan), terminated, truncated, {VALID: valid}


class SameStepPairVector(PairVector):
    metadata: ClassVar = {"autoreset_mode": AutoresetMode.SAME_STEP}


class OddVector(PairVector):
    """Three rows, whatever is asked for."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.num_envs = 3


class Pair(gymnasium.Env):
    """The environment that `PairVector` makes several of."""

    vector_entry_point = PairVector


class Odd(gymnasium.Env):
    """The environment that `OddVector` makes."""

    vector_entry_point = OddVector


class SameStepPair(gymnasium.Env):
    """The environment that `SameStepPairVector` makes several of; alone it is of no use."""

    vector_entry_point = SameStepPairVector


def make(count=2, name="Pair", **config):
    return VectorEnvironment(EnvironmentConfig(id=f"{__name__}:{name}", vectorization="own", **config), count)


def walk(environment, steps):
    environment.reset(0)
    return [environment.step({"action": np.zeros(environment.rows, np.int32)}) for _ in range(steps)]


def test_agents_are_rows():
    environment = make()
    assert (environment.rows, environment.spec.rows) == (4, 2)
    steps = walk(environment, 6)
    expected = {  # of the two agents, at steps 1 … 6
        "valid": [(1, 1), (1, 1), (0, 1), (0, 1), (0, 0), (1, 1)],
        "terminated": [(0, 0), (1, 0), (0, 0), (0, 0), (0, 0), (0, 0)],
        "truncated": [(0, 0), (0, 0), (0, 0), (0, 1), (0, 0), (0, 0)],
        "ended": [(0, 0), (1, 0), (0, 0), (0, 1), (0, 0), (0, 0)],
        "raw_rewards": [(1, 1), (2, 2), (0, 3), (0, 4), (0, 0), (1, 1)],
    }
    for name, rows in expected.items():
        np.testing.assert_array_equal([getattr(step, name) for step in steps], [pair * 2 for pair in rows], name)
    shown = [step.observations["observation"][:2, 0].tolist() for step in steps]
    assert shown == [[1, 1], [2, 2], [-1, 3], [-1, 4], [0, 0], [1, 1]]


def test_episodes_and_steps_are_counted_by_agent():
    environment = make(1)
    builder = UnrollBuilder(environment.spec, 5, environment.rows)
    builder.begin(environment.reset(0), {})
    actions = {"action": np.zeros(2, np.int32)}
    for _ in range(5):
        builder.add(actions, np.zeros(2, np.float32), environment.step(actions), {})
    unroll = builder.close((0, 1), 0, 1)
    assert unroll.header.env_steps == 2 + 4
    assert sorted(zip(unroll.episode_returns, unroll.episode_lengths_steps, strict=True)) == [(3.0, 2), (10.0, 4)]


def test_a_stack_of_frames_begins_anew_with_the_agents_episode():
    environment = make(1, preprocessing=[{"step": "stack", "frames": 2}])
    stacks = [step.observations["observation"].tolist() for step in walk(environment, 6)]
    assert [stack[1] for stack in stacks] == [[0, 1], [1, 2], [2, 3], [3, 4], [0, 0], [0, 1]]
    assert [stack[0] for stack in stacks[4:]] == [[0, 0], [0, 1]]


def test_every_agent_plays_its_share_of_an_evaluation():
    environment = make(1)
    evaluator = Evaluator(ConstantPolicy(environment.spec.actions, {"action": 0}), environment)
    played = sorted((episode.environment, episode.total, episode.length_steps) for episode in evaluator.episodes(3, 0))
    assert played == [(0, 3.0, 2), (0, 3.0, 2), (1, 10.0, 4)]


def test_the_learner_expects_a_row_for_every_agent():
    config = RunConfig.model_validate({"environment": {"id": "x"}, "actors": {"environments": 3}})
    assert unroll_schema(config, make(1).spec, {}).environments == 6


def test_a_training_of_agents_counts_every_row(tmp_path):
    config = RunConfig.model_validate(
        {
            "environment": {"id": f"{__name__}:Pair", "vectorization": "own"},
            "algorithm": {"name": "impala"},
            "network": {"middleware_parameters": {"scheme": [4]}},
            "actors": {"count": 0, "environments": 2, "unroll_length_steps": 5},
            "learner": {"batch_size": 1},
            "stop": {"updates": 3},
        }
    )
    backend = connect("local:", "r", QueueCaps.of(config), name="test", give_up_s=1.0)
    description = RunDescription(run_id="r", run_dir=str(tmp_path), config=config, spec=make(1).spec)
    backend.create(description.model_dump_json())
    snapshots = []
    assert run_deterministic(description, backend, snapshots.append, lambda: False, print) == "updates"
    # Of the 10 steps of a pair's episode and reset 6 count.
    assert (snapshots[-1]["env_steps"], snapshots[-1]["episodes"]) == (3 * 2 * 6, 3 * 2 * 2)
    ledger = backend.ledger.counts()
    assert (ledger.trained, ledger.produced, ledger.imbalance) == (3, 3, 0)


def test_rows_that_environments_cannot_share_evenly_are_refused():
    with pytest.raises(ConfigError, match="2 environments cannot share 3 rows evenly"):
        make(name="Odd")


def test_a_game_of_several_rows_is_never_stepped_as_its_single_environment():
    config = EnvironmentConfig(id=f"{__name__}:SameStepPair")
    with pytest.raises(
        ConfigError, match=r"its own vector cannot be used: its metadata\['autoreset_mode'\] is .*; use sync"
    ):
        VectorEnvironment(config, 2)
