"""Unrolls of recorded episodes: preprocessed, checked and joined as an actor's are."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from distrl.actors.unroll import UnrollBuilder
from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.data.episodes import DataError, Spaces
from distrl.data.opening import all_opened
from distrl.data.recorded_vector import RecordedVector, full_rows, plan_rows, steps_of
from distrl.environments.gym_adapter import Made
from distrl.environments.vector import VectorEnvironment
from distrl.environments.vectors.vectorizations import make_vector
from distrl.errors import ConfigError, EnvironmentFailedError
from distrl.types import PRIORITIES, Array, ArraySpec, EnvSpec, Unroll


def spaces_of(environment: EnvironmentConfig) -> Spaces:
    """Make an environment for its spaces.

    Raises:
        ConfigError: It cannot be made.
    """
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


class Playing:
    """The unrolls of a run's data: as many as it takes to play every episode once.

    Args:
        spec: Of the run's environment.

    Attributes:
        episodes: Recorded episodes.
        steps: Recorded steps.
        rows: Rows that the data fills, at most `actors.environments`.
        count: Unrolls, in these rows.

    Raises:
        ConfigError: The run's unrolls carry what no recording has.
        DataError: A data set cannot be read, or does not fit the environment.
    """

    def __init__(self, config: RunConfig, spec: EnvSpec) -> None:
        assert config.data is not None
        if spec.rows > 1:
            raise ConfigError(f"data: {spec.id} has {spec.rows} agents as rows, and recordings have one agent")
        if spec.unprocessed is not None and spec.unprocessed.actions != spec.actions:
            raise ConfigError("data: environment.preprocessing changes actions, and recordings have the environment's")
        _check_extras(config)
        self._config, self._spec = config, spec
        self._spaces = spaces_of(config.environment)
        self._episodes = all_opened(config.data, spec.id, self._spaces)
        lengths = self._episodes.lengths
        self.rows = full_rows(lengths, config.actors.environments)
        self._plan = plan_rows(lengths, self.rows)
        self.episodes = len(lengths)
        self.steps = int(lengths.sum())
        self.count = -(-steps_of(self._plan, lengths) // config.actors.unroll_length_steps)

    @property
    def replay(self) -> dict[str, Any]:
        """Settings of `algorithm.replay` for a memory that takes in all of the data, and keeps it."""
        return {
            "capacity_steps": self.count * self._config.actors.unroll_length_steps * self.rows,
            "min_size_steps": 1,
            "samples_per_insert": None,
            "checkpoint": False,  # a resumed run reads the data again
        }

    @property
    def with_replay(self) -> RunConfig:
        """The configuration with that memory, and as many environments as there are rows."""
        config = self._config
        replay = config.algorithm.replay_parameters
        assert replay is not None  # as `DataConfig.check` says
        return config.model_copy(
            update={
                "actors": config.actors.model_copy(update={"environments": self.rows}),
                "algorithm": config.algorithm.with_replay(replay.model_copy(update=self.replay)),
            }
        )

    def unrolls(self, recurrent_state: Mapping[str, ArraySpec]) -> Iterator[Unroll]:
        """Yield the unrolls, from the first row of the data on.

        Args:
            recurrent_state: Of the policy, by name. Recordings have none: every unroll begins with zeros.

        Raises:
            DataError: An episode cannot be read, or holds what the environment cannot show, do or pay.
        """
        config = self._config
        vector = RecordedVector(
            self._episodes, self._plan, self._spec.id, self._spaces.observation, self._spaces.action
        )
        # Its metrics are not recorded, nor does it change during the training.
        played = config.environment.model_copy(update={"metrics": {}, "curriculum": {}})
        environment = VectorEnvironment(played, len(self._plan), Made(vector, "own", None, None, self._spaces.frames))
        builder = UnrollBuilder(
            environment.spec,
            config.actors.unroll_length_steps,
            environment.rows,
            config.state_rows,
            config.algorithm.discount,
            config.network.action_mask,
        )
        try:
            state = {
                name: np.zeros((environment.rows, *array.shape), array.dtype) for name, array in recurrent_state.items()
            }
            yield from self._played(vector, environment, builder, state)
        except EnvironmentFailedError as error:
            if isinstance(error.__cause__, DataError):  # which the vector has raised
                raise error.__cause__ from None
            raise DataError(f"data set {self._episodes.name}: {error}") from error

    def _played(
        self,
        vector: RecordedVector,
        environment: VectorEnvironment,
        builder: UnrollBuilder,
        state: dict[str, Array],
    ) -> Iterator[Unroll]:
        builder.begin(environment.reset(0), state)
        for number in range(self.count):
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
