"""Hop 1: B rows, environments or their agents, step together, and every row says whether its action counted."""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from distrl.config.curriculum import ParameterValue, check_adjustable
from distrl.config.environment import EnvironmentConfig
from distrl.environments import atari, gym_adapter, spaces
from distrl.environments.adjusting import Adjusting
from distrl.environments.info_metrics import InfoMetrics
from distrl.environments.observation_spaces import environment_of, of_environment
from distrl.environments.preprocessing import layout
from distrl.environments.preprocessing.pipeline import Pipeline
from distrl.environments.vectors import vectorizations
from distrl.errors import ConfigError, EnvironmentFailedError
from distrl.types import Array, ArraySpec, BoolArray, FloatArray

_ERRORS = (Exception, SystemExit)
"""Errors of an environment. Some call sys.exit where they should raise, which would end distrl as if all were well."""

_LARGEST = float(np.finfo(np.float32).max)


class EnvironmentStep(NamedTuple):
    """The result of B actions. All arrays are fresh: they stay as they are when the environments step on.

    Attributes:
        observations: name -> [B, ...] in the spec's dtype. After an episode's end: its true final observation.
        rewards: float32 [B]. Reward after each action, preprocessed, for learning; 0 where not valid.
        terminated: bool [B]. The step ended the episode, or a life that counts as one: no value beyond it.
        truncated: bool [B]. The step hit a limit: bootstrap from `observations`. Both can be true.
        valid: bool [B]. False where the previous step had ended the episode: the action was ignored, `observations`
            are the first of a new episode, and neither flag is set. An agent whose part in an episode is over stays
            not valid until the episode of all is, and one step more.
        raw_rewards: float32 [B]. As the environment paid, which episode returns are made of; 0 where not valid.
        ended: bool [B]. The row's episode is over: one of the flags, but not for a lost life.
    """

    observations: dict[str, Array]
    rewards: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    valid: BoolArray
    raw_rewards: FloatArray
    ended: BoolArray


class VectorEnvironment:
    """`count` environments of one kind, in gymnasium's NEXT_STEP autoreset.

    Attributes:
        spec: Spaces and limits of one row, as `environment.preprocessing` leaves them.
        rows: B; `count`, or as many for each environment as it has agents.
        vectorization: The one in use; never "auto".
        vector: Gymnasium's vector of them.
        notices: What the user should know about how they were made, each a line.
        succeeded: object [B]. Whether episodes that ended in the newest step succeeded, by
            `is_success` in the environments' infos: True, False, or None of a row that does not say; None: none does.
        metrics: Keys of `environment.metrics`; M of them.
        episode_metrics: float32 [B, M]. Their values for episodes that ended in the newest step, NaN where `info` had
            none, and in all other rows; None if M is 0.
    """

    def __init__(self, config: EnvironmentConfig, count: int, made: gym_adapter.Made | None = None) -> None:
        """Make the environments; `reset` comes before the first `step`.

        Args:
            made: A vector to use, in place of one that the configuration describes.

        Raises:
            ConfigError: Unknown name, refused kwargs, unsupported space, a vectorization that cannot step it, a step
                of preprocessing that does not fit, or a number of rows that is no multiple of `count`.
        """
        made = made or vectorizations.make_vector(config, count)
        self.vector = made.vector
        observation_space = made.vector.single_observation_space
        action_space = made.vector.single_action_space
        self._count, self.rows = count, made.vector.num_envs
        try:
            if self.rows % count or self.rows < count:
                raise ConfigError(f"environment {config.id}: {count} environments cannot share {self.rows} rows evenly")
            raw_spec = spaces.env_spec(
                config.id, observation_space, action_space, made.reward_threshold, made.max_episode_steps, config.text
            )
            check_adjustable(config.id, config.curriculum, made.adjustable, "environment.curriculum")
            raw_spec = replace(raw_spec, rows=self.rows // count, adjustable=made.adjustable)
            if made.frames > 1:
                arrays = {name: replace(spec, frames=made.frames) for name, spec in raw_spec.observations.items()}
                raw_spec = replace(raw_spec, observations=arrays)
            turning = layout.turning(config, raw_spec)
            steps = (*turning, *config.preprocessing)
            self._pipeline = Pipeline(steps, raw_spec, narrow=True, turning=len(turning))
            self.spec = self._pipeline.spec
            self._read = spaces.observation_reader(config.id, observation_space, self.rows, config.text)
            self._write = spaces.action_writer(config.id, action_space)
        except BaseException:
            made.vector.close()
            raise
        self.vectorization = made.vectorization
        self.notices = made.notices + layout.notices(config, raw_spec, turning)
        self._adjusting: Adjusting | None = None
        if made.adjustable:
            vector: Any = made.vector
            values = {name: config.kwargs[name] for name in made.adjustable}
            self._adjusting = Adjusting(vector.adjust, self.rows, values)
        self._raw_zeros = _zeros(raw_spec.observations, self.rows)
        changes = bool(steps or self._pipeline.narrowed)
        self._zeros = _zeros(self.spec.observations, self.rows) if changes else self._raw_zeros
        self._no_rewards = np.zeros(self.rows, np.float32)
        self._ended: BoolArray = np.zeros(self.rows, dtype=np.bool_)
        self._lengths = np.zeros(self.rows, np.int64)  # steps of each row's episode so far
        self.succeeded: Array | None = None
        self.metrics = tuple(config.metrics)
        self._metrics = InfoMetrics(config.metrics, self.rows) if config.metrics else None
        self.episode_metrics: FloatArray | None = None
        self._seen: dict[Any, Any] | None = None

    def watch_infos(self) -> dict[Any, Any]:
        """Return a dict that takes, from now on, the newest value of every key of the infos of steps.

        Vectors other than `own` and `sync` hand on no other keys than `environment.metrics`.
        """
        seen: dict[Any, Any] = {}
        if isinstance(self.vector, gym_adapter.CheckedSyncVector):
            self.vector.seen = seen  # before it leaves out what is not in use
        else:
            self._seen = seen
        return seen

    def change(self, values: Mapping[str, ParameterValue]) -> None:
        """Let every environment have these values of its keyword arguments from its next episode on.

        Args:
            values: Name -> value; names that are not in `spec.adjustable` are left out.
        """
        if self._adjusting is not None:
            self._adjusting.change(values)

    def reset(self, seed: int) -> dict[str, Array]:
        """Start a new episode in every row; open episodes are abandoned.

        Args:
            seed: Any non-negative integer; each environment gets a seed of its own, drawn from it.

        Returns:
            name -> [B, ...]. First observations.

        Raises:
            EnvironmentFailedError: The environment raised, or returned something outside its declared space.
        """
        seeds = environment_seeds(seed, self._count)
        vector: Any = self.vector
        try:
            if self._adjusting is not None:
                self._adjusting.begin(range(self.rows))
            # A vector of its own makes has one generator for all of its environments.
            raw, _ = vector.reset(seed=seeds[0] if self.vectorization == "own" else seeds)
            self._pipeline.reset()
            if self._metrics is not None:
                self._metrics.reset()
            observations, _ = self._received(raw, self._no_rewards, np.ones(self.rows, np.bool_))
        except _ERRORS as error:
            raise self._failed("reset", error) from error
        self._ended, self._lengths = np.zeros_like(self._ended), np.zeros_like(self._lengths)
        return observations

    def step(self, actions: Mapping[str, Array]) -> EnvironmentStep:
        """Act once in every row; errors as `reset`.

        Args:
            actions: name -> [B, ...] as `ActionSpec.array` says; choices are counted from 0, numbers beyond the bounds
                of a Box are cut to them. Ignored where the row is not valid.
        """
        try:
            if self._adjusting is not None and self._adjusting.pending:
                self._adjusting.begin(np.flatnonzero(self._ended).tolist())
            raw_actions = self.raw_actions(actions)
            raw, raw_rewards, raw_terminated, raw_truncated, given_info = self.vector.step(raw_actions)
            info = given_info if isinstance(given_info, Mapping) else {}
            if self._seen is not None:
                self._seen.update(info)
            over = self._ended if gym_adapter.VALID not in info else ~np.array(info[gym_adapter.VALID], np.bool_)
            valid = ~over
            paid = np.array(raw_rewards, dtype=np.float32)
            paid[over] = 0.0
            observations, rewards = self._received(raw, paid, valid)
            terminated = self._flags("terminated", raw_terminated)
            truncated = self._flags("truncated", raw_truncated)
            if gym_adapter.VALID in info:
                terminated &= valid
                truncated &= valid
            ended = terminated | truncated
            if self._metrics is not None:
                self.episode_metrics = self._metrics.add(info, valid, ended)
        except _ERRORS as error:
            raise self._failed("step", error) from error
        self._lengths += 1
        self._lengths *= valid
        self._ended = ended
        self.succeeded = gym_adapter.succeeded(info, self.rows)
        if atari.LIFE_LOST in info:
            terminated |= info[atari.LIFE_LOST]
        return EnvironmentStep(observations, rewards, terminated, truncated, valid, paid, self._ended)

    def raw_actions(self, actions: Mapping[str, Array]) -> Any:
        """Return actions in the form that gymnasium's vector takes."""
        return self._write(self._pipeline.actions(actions))

    def close(self) -> None:
        """Free the environments' resources; errors as `step`."""
        try:
            self.vector.close()
        except _ERRORS as error:
            raise self._failed("close", error) from error

    @property
    def _kind(self) -> str:
        return "environment" if self.rows == self._count else "row"

    def _received(self, raw: Any, paid: FloatArray, valid: BoolArray) -> tuple[dict[str, Array], FloatArray]:
        """Read and check observations and rewards, and preprocess them.

        Raises:
            ValueError: They are not finite, or not after preprocessing, or there is a wrong number of rewards. Bounds
                of a Box are not checked: many environments exceed them.
        """
        observations = self._read(raw)
        _check_finite(observations, self._raw_zeros)
        self._check_rewards(paid)
        if self._zeros is self._raw_zeros:
            return observations, paid
        with np.errstate(over="ignore", invalid="ignore"):  # it is an error below
            observations = self._pipeline.observations(observations, valid)
            rewards = self._pipeline.rewards(paid, valid)
        try:
            _check_finite(observations, self._zeros, self._pipeline.narrowed)
            if rewards is not paid:
                self._check_rewards(rewards)
        except ValueError as error:
            if self.spec.unprocessed is None:
                raise
            number = environment_of(error)
            after = ValueError(f"after environment.preprocessing {error}")
            raise (after if number is None else of_environment(after, number)) from error
        return observations, rewards

    def _check_rewards(self, rewards: FloatArray) -> None:
        if rewards.shape != (self.rows,):
            raise ValueError(f"rewards have shape {rewards.shape}, there are {self.rows} {self._kind}s")
        if not math.isfinite(np.vdot(rewards, self._no_rewards)):
            number = int(np.flatnonzero(~np.isfinite(rewards))[0])
            raise of_environment(ValueError(f"a reward is {rewards[number]}"), number)

    def _flags(self, name: str, raw: Any) -> BoolArray:
        """Read which episodes ended, as a fresh array: a vector of the user's may return anything."""
        flags = np.array(raw)
        if flags.shape == (self.rows,) and flags.dtype == np.bool_:  # as gymnasium's are: the rest takes microseconds
            return flags
        if flags.shape == (self.rows,) and flags.dtype.kind == "O":
            return np.array([gym_adapter.flag_of(name, flag) for flag in flags])
        if flags.shape != (self.rows,) or flags.dtype.kind not in "biuf" or np.isnan(flags).any():
            raise ValueError(
                f"{name} is {flags.dtype} of shape {flags.shape}, it must be true or false of {self.rows} {self._kind}s"
            )
        return flags.astype(np.bool_, copy=False)

    def _failed(self, where: str, error: BaseException) -> EnvironmentFailedError:
        number = 0 if self.rows == 1 else environment_of(error)
        at = "" if number is None else self._at(where, number)
        return EnvironmentFailedError(
            f"environment {self.spec.id} failed in {where}: {gym_adapter.describe(error)}{at}"
        )

    def _at(self, where: str, number: int) -> str:
        """The step and the environment, or the row where these are agents, for a message."""
        several = self.rows > 1
        if where != "step":
            return f", in {self._kind} {number}" if several else ""
        of = f" of {self._kind} {number}" if several else ""
        if self._ended[number]:
            return f", in the reset{of} after an episode"
        return f", at step {self._lengths[number] + 1}{of}"


def _zeros(specs: Mapping[str, ArraySpec], rows: int) -> dict[str, Array]:
    """As many zeros as `rows` rows of each observation of real numbers, for `_check_finite`."""
    return {
        name: np.zeros((rows, *spec.shape), spec.dtype)
        for name, spec in specs.items()
        if np.dtype(spec.dtype).kind == "f"
    }


def _check_finite(
    observations: Mapping[str, Array], zeros: Mapping[str, Array], narrowed: Collection[str] = ()
) -> None:
    for name, as_many in zeros.items():
        # Times 0 every number is 0, but NaN and infinity are not: cheaper than np.isfinite,
        # and unlike np.dot without a warning.
        if not math.isfinite(np.vdot(observations[name], as_many)):
            number, *index = map(int, np.argwhere(~np.isfinite(observations[name]))[0])
            too_large = f"exceeds {_LARGEST:.2g}, the largest number of a network's float32"
            not_finite = f"is not finite: {observations[name][(number, *index)]}{f' at {index}' if index else ''}"
            why = too_large if name in narrowed else not_finite
            raise of_environment(ValueError(f"observation '{name}' {why}"), number)


def environment_seeds(seed: int, count: int) -> list[int]:
    """A seed for each of `count` environments, all different; 31 bits, as some simulators keep it in a signed int32.

    Hashed, not seed + i as gymnasium would have it: vectors of neighbouring seeds would then share environments.
    """
    drawn = count
    while True:
        words = np.random.SeedSequence(seed).generate_state(drawn) >> 1
        different = list(dict.fromkeys(words.tolist()))
        if len(different) >= count:
            return different[:count]
        drawn *= 2
