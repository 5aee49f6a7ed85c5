"""Unrolls of recorded episodes: preprocessed, checked and joined as an actor's are."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from distrl.actors.unroll import UnrollBuilder
from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.data.blocks import suiting
from distrl.data.episodes import DataError, Episodes, Spaces
from distrl.data.opening import all_opened
from distrl.data.recorded_vector import RecordedVector
from distrl.environments.gym_adapter import Made
from distrl.environments.vector import VectorEnvironment
from distrl.environments.vectors.vectorizations import make_vector
from distrl.errors import ConfigError, EnvironmentFailedError
from distrl.learner.replay_set_up import filled_with_data
from distrl.types import PRIORITIES, Array, ArraySpec, EnvSpec, Unroll


def spaces_of(environment: EnvironmentConfig) -> Spaces:
    """Make an environment for its spaces.

    Raises:
        ConfigError: It cannot be made.
    """
    with _variables(environment.variables):
        made = make_vector(environment, 1)
        try:
            return Spaces(
                made.vector.single_observation_space,
                made.vector.single_action_space,
                made.frames,
                made.max_episode_steps,
            )
        finally:
            made.vector.close()


@contextmanager
def _variables(changed: Mapping[str, str]) -> Iterator[None]:
    """While inside, environment variables of this process have these values.

    A learner has initialised its devices before, so that those of the environment do not become its own.
    """
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def check_spec(spec: EnvSpec) -> None:
    """Refuse an environment that recordings cannot be of.

    Raises:
        ConfigError: Its rows are agents, or its preprocessing changes actions.
    """
    if spec.rows > 1:
        raise ConfigError(f"data: {spec.id} has {spec.rows} agents as rows, and recordings have one agent")
    if spec.unprocessed is not None and spec.unprocessed.actions != spec.actions:
        raise ConfigError("data: environment.preprocessing changes actions, and recordings have the environment's")


def playing_environment(
    config: EnvironmentConfig, episodes: Episodes, plan: Sequence[Sequence[int]], own: Spaces
) -> tuple[RecordedVector, VectorEnvironment]:
    """Return a vector that plays the episodes of a plan, and the environment of preprocessed steps around it."""
    vector = RecordedVector(episodes, plan, config.id, own.observation, own.action)
    # Its metrics are not recorded, nor does it change.
    played = config.model_copy(update={"metrics": {}, "curriculum": {}})
    return vector, VectorEnvironment(played, len(plan), Made(vector, "own", None, None, own.frames))


@contextmanager
def naming(episodes: Episodes) -> Iterator[None]:
    """Raise DataError, with the name of the data set, for what fails inside while it is played."""
    try:
        yield
    except EnvironmentFailedError as error:
        if isinstance(error.__cause__, DataError):  # which the vector has raised
            raise error.__cause__ from None
        raise DataError(f"data set {episodes.name}: {error}") from error


class Playing:
    """The unrolls of a run's data: those of every episode once, or round after round.

    Args:
        spec: Of the run's environment.
        through: Returns the data set through which the data is read.

    Attributes:
        episodes: Recorded episodes.
        steps: Recorded steps.
        memory_steps: `data.memory_steps`; None: the replay memory holds all of the data.
        blocks: Its order, in as many rows as it fills, at most `actors.environments`.
        count: Unrolls of a round.

    Raises:
        ConfigError: The run's unrolls carry what no recording has.
        DataError: A data set cannot be read, or does not fit the environment.
    """

    def __init__(
        self, config: RunConfig, spec: EnvSpec, through: Callable[[Episodes], Episodes] = lambda episodes: episodes
    ) -> None:
        check_spec(spec)
        _check_extras(config)
        self._config, self._spec = config, spec
        self._spaces = spaces_of(config.environment)
        self._episodes = through(all_opened(config.data, spec.id, self._spaces))
        self.episodes = len(self._episodes.lengths)
        self.steps = int(self._episodes.lengths.sum())
        held = config.data.memory_steps
        self.memory_steps = held if held is not None and held < self.steps else None
        rows, unroll_length_steps = config.actors.environments, config.actors.unroll_length_steps
        self.blocks = suiting(self._episodes.lengths, rows, unroll_length_steps, self.memory_steps)
        self.count = self.blocks.count

    @property
    def replay(self) -> dict[str, Any]:
        """Settings of `algorithm.replay` for a memory that takes in the data, and is filled again at a resume.

        Raises:
            ConfigError: `memory_steps` is less than an unroll.
        """
        unroll_steps = self._config.actors.unroll_length_steps * self.blocks.rows
        if self.memory_steps is not None and self.memory_steps < unroll_steps:
            raise ConfigError(
                f"data.memory_steps: {self.memory_steps} holds no unroll of {unroll_steps} steps; raise it, or lower "
                "actors.unroll_length_steps"
            )
        held = self.count if self.memory_steps is None else self.memory_steps // unroll_steps
        parameters = self._config.algorithm.replay_parameters
        assert parameters is not None  # as `DataConfig.check` says
        return {
            "capacity_steps": held * unroll_steps,
            "min_size_steps": 1,
            "samples_per_insert": None,
            "checkpoint": parameters.sampler.kind != "uniform",
        }

    @property
    def with_replay(self) -> RunConfig:
        """The configuration with that memory, and as many environments as there are rows."""
        return filled_with_data(self._config, self.blocks.rows, self.replay)

    def unrolls(self, recurrent_state: Mapping[str, ArraySpec]) -> Iterator[Unroll]:
        """Yield the unrolls of one round, from the first row of the data on.

        Args:
            recurrent_state: Of the policy, by name. Recordings have none: every unroll begins with zeros.

        Raises:
            DataError: An episode cannot be read, or holds what the environment cannot show, do or pay.
        """
        for block in range(len(self.blocks.unrolls)):
            yield from self._of_block(block, recurrent_state)

    def rounds(self, recurrent_state: Mapping[str, ArraySpec], first: int) -> Iterator[Unroll]:
        """Yield unrolls without an end, round after round, each in an order of its own.

        Args:
            recurrent_state: As of `unrolls`.
            first: Number of the first unroll to yield, since the beginning of the first round.

        Raises:
            DataError: As `unrolls`.
        """
        for block, skipped in self.blocks.following(self._config.seed, first):
            yield from islice(self._of_block(block, recurrent_state), skipped, None)

    def _of_block(self, block: int, recurrent_state: Mapping[str, ArraySpec]) -> Iterator[Unroll]:
        config, plan = self._config, self.blocks.plan(block)
        vector, environment = playing_environment(config.environment, self._episodes, plan, self._spaces)
        builder = UnrollBuilder(
            environment.spec,
            config.actors.unroll_length_steps,
            environment.rows,
            config.state_rows,
            config.algorithm.discount,
            config.network.action_mask,
        )
        with naming(self._episodes):
            state = {
                name: np.zeros((environment.rows, *array.shape), array.dtype) for name, array in recurrent_state.items()
            }
            yield from self._played(vector, environment, builder, state, int(self.blocks.unrolls[block]))

    def _played(
        self,
        vector: RecordedVector,
        environment: VectorEnvironment,
        builder: UnrollBuilder,
        state: dict[str, Array],
        count: int,
    ) -> Iterator[Unroll]:
        builder.begin(environment.reset(0), state)
        for number in range(count):
            while not builder.full:
                actions = {name: array.copy() for name, array in vector.next_actions.items()}
                log_probabilities = vector.next_log_probabilities.copy()
                step = environment.step(actions)
                builder.add(actions, log_probabilities, step, state)
            unroll = builder.close((0, 1), number, 0)
            yield _with_priorities(unroll) if PRIORITIES in self._config.algorithm.unroll_extras else unroll


def _check_extras(config: RunConfig) -> None:
    algorithm = config.algorithm
    if unknown := sorted({*algorithm.unroll_extras} - {PRIORITIES}):
        raise ConfigError(f"data: algorithm {algorithm.name} learns from {unknown[0]}, which no recording has")


def _with_priorities(unroll: Unroll) -> Unroll:
    """Return the unroll with equal first priorities."""
    return replace(unroll, extras={**unroll.extras, PRIORITIES: np.ones_like(unroll.rewards)})
