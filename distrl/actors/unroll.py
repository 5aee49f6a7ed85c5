"""Hop 3: rows become an unroll. The last observation row of one unroll is the first of the next.

Where the policy sees stacks of frames, an unroll holds every frame once: see `Unroll.observations`.
"""

from collections.abc import Mapping

import numpy as np

from distrl import frames
from distrl.actors.reward_moments import DiscountedReturns
from distrl.environments.vector import Step
from distrl.types import Array, ArraySpec, BoolArray, EnvSpec, FloatArray, IntArray, Unroll, UnrollHeader


class UnrollBuilder:
    """Collects T rows of B environments and the statistics of episodes that end in them.

    Each unroll gets arrays of its own, so that one handed out is never written to again.

    Args:
        reward_discount: Of the returns whose moments unrolls tell; None: they tell none.
    """

    def __init__(
        self, spec: EnvSpec, length_steps: int, environments: int, reward_discount: float | None = None
    ) -> None:
        self._observation_specs = spec.observations
        self._action_specs = {name: action.array for name, action in spec.actions.items()}
        self._shape = (length_steps, environments)
        self._row = 0
        self._discounted = None if reward_discount is None else DiscountedReturns(reward_discount, environments)

    def begin(self, observations: dict[str, Array], recurrent_state: dict[str, Array]) -> None:
        """Starts from freshly reset environments: no row yet, episodes at step 0.

        Args:
            observations: name -> [B, ...], the first row.
            recurrent_state: name -> [B, ...], the policy's state before that row.
        """
        environments = self._shape[1]
        self._returns_before = np.zeros(environments, np.float64)
        self._lengths_before = np.zeros(environments, np.int64)
        if self._discounted is not None:
            self._discounted.reset()
        self._allocate(observations, recurrent_state)

    def _allocate(self, first: dict[str, Array], recurrent_state: dict[str, Array]) -> None:
        length, environments = self._shape
        self._observations = {
            name: np.empty((length + spec.frames, environments, *spec.frame_shape), spec.dtype)
            for name, spec in self._observation_specs.items()
        }
        for name, spec in self._observation_specs.items():
            self._observations[name][: spec.frames] = _frames(first[name], spec)
        self._actions = {
            name: np.empty((*self._shape, *spec.shape), spec.dtype) for name, spec in self._action_specs.items()
        }
        self._rewards = np.empty(self._shape, np.float32)
        self._raw_rewards = np.empty(self._shape, np.float32)
        self._terminated = np.empty(self._shape, np.bool_)
        self._truncated = np.empty(self._shape, np.bool_)
        self._valid = np.empty(self._shape, np.bool_)
        self._ended = np.empty(self._shape, np.bool_)
        self._log_probabilities = np.empty(self._shape, np.float32)
        self._recurrent_state = recurrent_state
        self._row = 0

    @property
    def full(self) -> bool:
        """All T rows are there."""
        return self._row == self._shape[0]

    def add(self, actions: Mapping[str, Array], log_probabilities: FloatArray, step: Step) -> None:
        """Records one row: actions name -> [B, ...], the log-probability of all of them [B], and what they led to."""
        row = self._row
        for name, rows in self._actions.items():
            rows[row] = actions[name]
        self._log_probabilities[row] = log_probabilities
        self._rewards[row] = step.rewards
        self._raw_rewards[row] = step.raw_rewards
        self._terminated[row] = step.terminated
        self._truncated[row] = step.truncated
        self._valid[row] = step.valid
        self._ended[row] = step.ended
        for name, spec in self._observation_specs.items():
            self._observations[name][row + spec.frames] = frames.newest(step.observations[name], spec.frames)
        self._newest = step.observations
        self._row = row + 1

    def close(
        self, producer: tuple[int, int], sequence: int, weights_version: int, recurrent_state: dict[str, Array]
    ) -> Unroll:
        """Hands out the full unroll and begins the next one from its last observation row.

        Args:
            recurrent_state: The policy's state before the next row 0, as `restarted` left it. Kept, not copied.
        """
        if not self.full:
            raise ValueError(f"an unroll of {self._shape[0]} steps holds {self._row} yet")
        returns, lengths = self._ended_episodes()
        header = UnrollHeader(*producer, sequence, weights_version, int(self._valid.sum()))
        unroll = Unroll(
            header=header,
            observations=self._observations,
            actions=self._actions,
            rewards=self._rewards,
            terminated=self._terminated,
            truncated=self._truncated,
            valid=self._valid,
            behaviour_log_probabilities=self._log_probabilities,
            recurrent_state=self._recurrent_state,
            episode_returns=returns,
            episode_lengths_steps=lengths,
            reward_moments=self._reward_moments(),
        )
        self._allocate(self._newest, recurrent_state)
        return unroll

    def _reward_moments(self) -> dict[str, Array]:
        if self._discounted is None:
            return {}
        return self._discounted.moments(self._rewards, self._terminated | self._truncated, self._valid)

    def _ended_episodes(self) -> tuple[FloatArray, IntArray]:
        """Returns and lengths of episodes that end in this unroll, in order of time; open ones are carried on."""
        returns = self._returns_before + np.cumsum(self._raw_rewards, axis=0, dtype=np.float64)  # [T, B]
        lengths = self._lengths_before + np.cumsum(self._valid, axis=0)
        # Transposed, so that the ends of one environment stand next to each other.
        environment, time = np.nonzero(self._ended.T)
        follows = np.zeros(len(environment), np.bool_)
        follows[1:] = environment[1:] == environment[:-1]
        at_end = (returns[time, environment], lengths[time, environment])
        by_time = np.argsort(time, kind="stable")
        carried = []
        for totals, ends in zip((returns, lengths), at_end, strict=True):
            carry = totals[-1].copy()
            last = np.ones(len(environment), np.bool_)
            last[:-1] = ~follows[1:]
            carry[environment[last]] -= ends[last]
            carried.append(carry)
        self._returns_before, self._lengths_before = carried
        ended_returns, ended_lengths = (np.where(follows, ends - np.roll(ends, 1), ends)[by_time] for ends in at_end)
        return ended_returns.astype(np.float32), ended_lengths.astype(np.int32)


def _frames(observations: Array, spec: ArraySpec) -> Array:
    """[B, ...] -> [n, B, *one frame], in the order of time."""
    return observations[None] if spec.frames == 1 else frames.split(observations, spec.frames)


def restarted(recurrent_state: dict[str, Array], valid: BoolArray) -> dict[str, Array]:
    """The state before the next row: zeros where this row was not valid, as a new episode begins there.

    The learner does the same with the state before row t + 1 wherever ``valid[t]`` is False.

    Args:
        recurrent_state: name -> [B, ...], what the policy put out for this row. Never written to: others may hold it.
        valid: bool [B]. Of this row.
    """
    if not recurrent_state or valid.all():
        return recurrent_state
    fresh = {name: array.copy() for name, array in recurrent_state.items()}
    for array in fresh.values():
        array[~valid] = 0
    return fresh
