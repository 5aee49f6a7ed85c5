"""Hop 1: B environments step together, and every row says whether its action counted."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from distrl.config.environment import EnvironmentConfig
from distrl.environments import gym_adapter, spaces
from distrl.errors import EnvironmentFailedError
from distrl.types import Array, BoolArray, FloatArray


class Step(NamedTuple):
    """What B actions led to. All arrays are fresh: they stay as they are when the environments step on.

    Attributes:
        observations: name -> [B, ...] in the spec's dtype. After an episode's end: its true final observation.
        rewards: float32 [B]. Reward after each action; 0 where not valid.
        terminated: bool [B]. The step ended the episode: no value beyond it.
        truncated: bool [B]. The step hit a limit: bootstrap from `observations`. Both can be true.
        valid: bool [B]. False where the previous step had ended the episode: the action was ignored, `observations`
            are the first of a new episode, and neither flag is set.
    """

    observations: dict[str, Array]
    rewards: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    valid: BoolArray


class VectorEnvironment:
    """`count` environments of one kind, in gymnasium's NEXT_STEP autoreset.

    Attributes:
        spec: Spaces and limits of one environment.
        count: B.
        vectorization: "own" or "sync": which vectorization serves the configuration.
    """

    def __init__(self, config: EnvironmentConfig, count: int) -> None:
        """Makes the environments; `reset` comes before the first `step`.

        Raises:
            ConfigError: Unknown name, refused kwargs, unsupported space, or no suitable own vectorization.
        """
        made = gym_adapter.make_vector(config, count)
        self._vector = made.vector
        observation_space = made.vector.single_observation_space
        action_space = made.vector.single_action_space
        try:
            self.spec = spaces.env_spec(
                config.id, observation_space, action_space, made.reward_threshold, made.max_episode_steps
            )
            self._read = spaces.observation_reader(config.id, observation_space)
            self._write = spaces.action_writer(config.id, action_space)
        except BaseException:
            made.vector.close()
            raise
        self.count = count
        self.vectorization = made.vectorization
        self._ended: BoolArray = np.zeros(count, dtype=np.bool_)

    def reset(self, seed: int) -> dict[str, Array]:
        """Starts a new episode in every environment; open episodes are abandoned.

        Args:
            seed: Any non-negative integer; each environment gets a seed of its own, drawn from it.

        Returns:
            name -> [B, ...]. First observations.

        Raises:
            EnvironmentFailedError: The environment raised, or returned something outside its declared space.
        """
        # Not seed + i, as gymnasium would: neighbouring seeds would then share environments. 31 bits, because
        # some simulators keep a seed in a signed 32-bit integer.
        seeds = [int(word) >> 1 for word in np.random.SeedSequence(seed).generate_state(self.count)]
        vector: Any = self._vector
        try:
            raw, _ = vector.reset(seed=seeds if self.vectorization == "sync" else seeds[0])
            observations = self._read(raw)
            self._check_shapes(observations)
        except Exception as error:
            raise self._failed("reset", error) from error
        self._ended = np.zeros(self.count, dtype=np.bool_)
        return observations

    def step(self, actions: Mapping[str, Array]) -> Step:
        """Acts once in every environment.

        Args:
            actions: name -> [B, ...] as `ActionSpec.array` says; choices are counted from 0, numbers beyond the bounds
                of a Box are cut to them. Ignored where the previous step ended the episode.

        Raises:
            EnvironmentFailedError: As `reset`.
        """
        try:
            raw, raw_rewards, raw_terminated, raw_truncated, _ = self._vector.step(self._write(actions))
            observations = self._read(raw)
        except Exception as error:
            raise self._failed("step", error) from error
        valid = ~self._ended
        rewards = np.array(raw_rewards, dtype=np.float32)
        rewards[self._ended] = 0.0
        terminated = np.array(raw_terminated, dtype=np.bool_)
        truncated = np.array(raw_truncated, dtype=np.bool_)
        self._ended = terminated | truncated
        return Step(observations, rewards, terminated, truncated, valid)

    def close(self) -> None:
        """Frees what the environments hold.

        Raises:
            EnvironmentFailedError: The environment raised.
        """
        try:
            self._vector.close()
        except Exception as error:
            raise self._failed("close", error) from error

    def _check_shapes(self, observations: dict[str, Array]) -> None:
        for name, spec in self.spec.observations.items():
            if observations[name].shape != (self.count, *spec.shape):
                shape = observations[name].shape[1:]
                raise ValueError(f"observation '{name}' has shape {shape}, its space says {spec.shape}")

    def _failed(self, where: str, error: Exception) -> EnvironmentFailedError:
        return EnvironmentFailedError(f"environment {self.spec.id} failed in {where}: {gym_adapter.describe(error)}")
