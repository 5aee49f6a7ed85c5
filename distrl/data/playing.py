"""Unrolls of recorded episodes: preprocessed, checked and joined as an actor's are."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from distrl.actors.unroll import UnrollBuilder
from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.data.episodes import DataError, Episodes, Spaces
from distrl.data.opening import all_opened
from distrl.data.recorded_vector import RecordedVector, full_rows, plan_rows, steps_of
from distrl.environments import spaces
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


def check_spaces(episodes: Episodes, environment: str, own: Spaces) -> None:
    """Refuse a data set that was recorded in other spaces than the environment's, where it says so.

    Raises:
        DataError: The first difference.
    """
    observed = own.observation if episodes.observation_space is None else episodes.observation_space
    acted = own.action if episodes.action_space is None else episodes.action_space
    ours, theirs = (
        spaces.env_spec(environment, *pair, None, None) for pair in ((own.observation, own.action), (observed, acted))
    )
    if difference := _plain(ours).unlike(_plain(theirs)):
        difference = difference.replace("that of the training", "that of the environment")
        raise DataError(f"data set {episodes.name} does not fit {environment}: {difference}")


def _plain(spec: EnvSpec) -> EnvSpec:
    """Return the spec without bounds and widths of real numbers, which change nothing."""

    def plain(array: ArraySpec) -> ArraySpec:
        real = np.dtype(array.dtype).kind == "f"
        return replace(array, low=None, high=None, dtype="float32" if real else array.dtype)

    return replace(spec, observations={name: plain(array) for name, array in spec.observations.items()})


class Playing:
    """The unrolls of a run's data: as many as it takes to play every episode once.

    Args:
        spec: Of the run's environment.

    Attributes:
        episodes: Recorded episodes.
        steps: Recorded steps.
        count: Unrolls, in `actors.environments` rows.
        rows: A number of rows that the data fills, at most as many.

    Raises:
        ConfigError: The run's unrolls carry what no recording has.
        DataError: A data set cannot be read, or does not fit the environment.
    """

    def __init__(self, config: RunConfig, spec: EnvSpec) -> None:
        assert config.data is not None
        if spec.rows > 1:
            raise ConfigError(f"data: {spec.id} has {spec.rows} agents as rows, and recordings have one agent")
        _check_extras(config)
        self._config, self._spec = config, spec
        self._spaces = spaces_of(config.environment)
        self._episodes = all_opened(config.data, self._spaces)
        check_spaces(self._episodes, spec.id, self._spaces)
        self._plan = plan_rows(self._episodes.lengths, config.actors.environments)
        self.episodes = len(self._episodes.lengths)
        self.steps = int(self._episodes.lengths.sum())
        self.rows = full_rows(self._episodes.lengths, config.actors.environments)
        self.count = -(-steps_of(self._plan, self._episodes.lengths) // config.actors.unroll_length_steps)

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
        if (before := environment.spec.unprocessed) is not None and before.actions != environment.spec.actions:
            raise ConfigError("data: environment.preprocessing changes actions, and recordings have the environment's")
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
