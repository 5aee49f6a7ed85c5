"""Hop 3: collects rows to an unroll. The last observation row of one unroll is the first of the next.

If the policy sees stacks of frames, an unroll holds every frame once: see `Unroll.observations`.
"""

from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from distrl import frames
from distrl.environments.random_actions import require_a_choice
from distrl.environments.vector import EnvironmentStep
from distrl.errors import EnvironmentFailedError
from distrl.types import (
    EPISODE_FIELDS,
    STEP_FIELDS,
    Array,
    ArraySpec,
    BoolArray,
    EnvSpec,
    FloatArray,
    StepField,
    Unroll,
    UnrollHeader,
    step_arguments,
)

# Episode returns and lengths are made of the last two, which stay in the actor.
_DTYPES = {
    entry.name: np.dtype(entry.dtype) for entry in (*STEP_FIELDS, StepField("raw_rewards"), StepField("ended", "bool"))
}
_OF_STEP = EnvironmentStep._fields[1:]  # all but the observations
_LARGEST = float(np.finfo(np.float32).max)
_RETURNS = {"episode_returns": "return", "episode_discounted_returns": "discounted return"}
_OF_EPISODE = ("episode_returns", "episode_lengths_steps", "episode_discounted_returns")


class UnrollBuilder:
    """Collects T rows of B environments and the statistics of episodes that end in them.

    Each unroll has its own arrays, so that a returned one is never written to again.

    Args:
        state_rows: Rows before which unrolls hold the recurrent state, row 0 first.
        discount: Discount of `episode_discounted_returns`.
        action_mask: The observation that masks the only action; None: there is none.
    """

    def __init__(
        self,
        spec: EnvSpec,
        length_steps: int,
        environments: int,
        state_rows: Container[int] = (0,),
        discount: float = 1.0,
        action_mask: str | None = None,
    ) -> None:
        self._spec = spec
        self._observation_specs = spec.observations
        self._action_specs = {name: action.array for name, action in spec.actions.items()}
        self._shape = (length_steps, environments)
        self._row = 0
        self._state_rows = state_rows
        self._discount = discount
        self._masks = () if action_mask is None else (action_mask,)

    def begin(self, observations: dict[str, Array], recurrent_state: dict[str, Array]) -> None:
        """Start from freshly reset environments: no row yet, episodes at step 0.

        Args:
            observations: name -> [B, ...], the first row.
            recurrent_state: name -> [B, ...], the policy's state before that row.
        """
        environments = self._shape[1]
        self._returns_before = np.zeros(environments, np.float64)
        self._discounted_before = np.zeros(environments, np.float64)
        self._lengths_before = np.zeros(environments, np.int64)
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
        self._log_probabilities = np.empty(self._shape, np.float32)
        self._steps: list[tuple[Array, ...]] = []  # rows of `_OF_STEP`
        self._newest = first, recurrent_state
        self._states = [recurrent_state]
        self._row = 0

    @property
    def full(self) -> bool:
        """Whether all T rows have been added."""
        return self._row == self._shape[0]

    @property
    def newest(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Observations and recurrent state to act from, name -> [B, ...] each."""
        return self._newest

    def add(
        self,
        actions: Mapping[str, Array],
        log_probabilities: FloatArray,
        step: EnvironmentStep,
        recurrent_state: dict[str, Array],
    ) -> None:
        """Record one row.

        Args:
            actions: name -> [B, ...].
            log_probabilities: [B]. Of all actions together.
            step: The resulting step.
            recurrent_state: The policy's state before the next row, from `restarted`. Kept, not copied.
        """
        row = self._row
        for name, rows in self._actions.items():
            rows[row] = actions[name]
        self._log_probabilities[row] = log_probabilities
        self._steps.append(step[1:])
        for name, spec in self._observation_specs.items():
            self._observations[name][row + spec.frames] = frames.newest(step.observations[name], spec.frames)
        self._newest = step.observations, recurrent_state
        self._row = row + 1
        if self._row in self._state_rows and not self.full:
            self._states.append(recurrent_state)

    def close(self, producer: tuple[int, int], sequence: int, weights_version: int) -> Unroll:
        """Return the full unroll and begin the next one from its last observation row.

        Successes of episodes are unknown in it.

        Raises:
            EnvironmentFailedError: The return of an episode is beyond float32.
            ConfigError: A mask forbids every choice.
        """
        if not self.full:
            raise ValueError(f"an unroll of {self._shape[0]} steps holds {self._row} yet")
        steps = self._joined_steps()
        header = UnrollHeader(*producer, sequence, weights_version, int(steps["valid"].sum()))
        unroll = Unroll(
            header=header,
            observations=self._observations,
            actions=self._actions,
            **step_arguments(steps.__getitem__),
            recurrent_state={name: np.stack([state[name] for state in self._states]) for name in self._states[0]},
            **self._ended_episodes(steps),
        )
        for mask in self._masks:
            given = {mask: unroll.observations[mask][:-1][unroll.valid]}  # [T, B, A] -> [N, A]
            require_a_choice(self._spec, mask, given)
        self._allocate(*self._newest)
        return unroll

    def skip(self) -> None:
        """Forget the rows so far, but for the returns of their episodes; the unroll begins at the newest one."""
        if self._row:
            self._ended_episodes(self._joined_steps())
            self._allocate(*self._newest)

    def _joined_steps(self) -> dict[str, Array]:
        """Return the arrays of `STEP_FIELDS`, name -> [T, B, ...]."""
        rows, columns = len(self._steps), zip(*self._steps, strict=True)
        joined = {"behaviour_log_probabilities": self._log_probabilities[:rows]}
        for name, arrays in zip(_OF_STEP, columns, strict=True):
            shape = (rows, *arrays[0].shape)
            joined[name] = np.concatenate(arrays, dtype=_DTYPES[name], casting="unsafe").reshape(shape)
        return joined

    def _ended_episodes(self, steps: dict[str, Array]) -> dict[str, Any]:
        """Return `EPISODE_FIELDS` of episodes that end in this unroll, in order of time; open ones continue.

        Raises:
            EnvironmentFailedError: A return is beyond float32, of which the learner would drop the unroll.
        """
        paid, valid, ended = steps["raw_rewards"], steps["valid"], steps["ended"]
        lengths = self._lengths_before + np.cumsum(valid, axis=0)  # [T, B]
        returns = self._returns_before + np.cumsum(paid, axis=0, dtype=np.float64)
        # Steps before each one's own in its episode: those so far, less those up to the last end before.
        ends_before = np.zeros_like(lengths)
        np.maximum.accumulate(np.where(ended, lengths, 0)[:-1], axis=0, out=ends_before[1:])
        discounts = np.power(self._discount, lengths - valid - ends_before, dtype=np.float64)
        discounted = self._discounted_before + np.cumsum(discounts * paid, axis=0)
        # Transposed, so that the ends of one environment stand next to each other.
        environment, time = np.nonzero(ended.T)
        follows = np.zeros(len(environment), np.bool_)
        follows[1:] = environment[1:] == environment[:-1]
        last = np.ones(len(environment), np.bool_)
        last[:-1] = ~follows[1:]
        by_time = np.argsort(time, kind="stable")
        carried: list[Array] = []
        found: list[Array] = []
        for totals in (returns, lengths, discounted):  # as `_OF_EPISODE` has them
            ends, carry = totals[time, environment], totals[-1].copy()
            carry[environment[last]] -= ends[last]
            carried.append(carry)
            found.append(np.where(follows, ends - np.roll(ends, 1), ends)[by_time])
        self._returns_before, self._lengths_before, self._discounted_before = carried
        with np.errstate(over="ignore"):  # it is an error below
            named = {name: column.astype(EPISODE_FIELDS[name]) for name, column in zip(_OF_EPISODE, found, strict=True)}
        for name, title in _RETURNS.items():
            if not np.isfinite(named[name]).all():
                raise EnvironmentFailedError(
                    f"environment {self._spec.id}: the {title} of an episode exceeds {_LARGEST:.2g}, the largest "
                    "number of float32; let the environment pay smaller rewards"
                )
        return named | {"episode_successes": np.full(len(time), -1, EPISODE_FIELDS["episode_successes"])}


def _frames(observations: Array, spec: ArraySpec) -> Array:
    """Split stacks [B, ...] into frames [n, B, *one frame], oldest first."""
    return observations[None] if spec.frames == 1 else frames.split(observations, spec.frames)


def restarted(recurrent_state: dict[str, Array], valid: BoolArray) -> dict[str, Array]:
    """Return the state before the next row: zeros where this row was not valid, as a new episode begins there.

    The learner does the same with the state before row t + 1 wherever ``valid[t]`` is False.

    Args:
        recurrent_state: name -> [B, ...], the policy's output for this row. Not modified.
        valid: bool [B] of this row.
    """
    if not recurrent_state or valid.all():
        return recurrent_state
    fresh = {name: array.copy() for name, array in recurrent_state.items()}
    for array in fresh.values():
        array[~valid] = 0
    return fresh
