"""Greedy episodes: a policy is judged without exploration, in environments of its own, by what these pay.

Of B environments each plays its share of the episodes, and every episode of its share counts, however long it takes.
To count whichever episodes end first would favour short ones: with lengths 1 and 9, nine in ten would be of length 1.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from distrl.actors.policy import Policy
from distrl.actors.unroll import restarted
from distrl.environments.vector import VectorEnvironment
from distrl.memory_backend.records import Evaluation
from distrl.networks.actions.joint import ActionSelector
from distrl.types import Array


class ActingPolicy(Protocol):
    """Chooses the actions of an evaluation: `GreedyPolicy`, or one of `baselines.py`."""

    def initial_state(self, batch: int) -> dict[str, Array]:
        """Recurrent state at an episode's start, name -> [batch, ...]."""

    def choose(
        self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """(actions, next recurrent state), name -> [B, ...] each, for observations name -> [B, ...]."""


class GreedyPolicy:
    """The mode of every action's distribution, or the best of its values; a network's statistics are those it has."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._selector = ActionSelector(policy.distributions)

    def initial_state(self, batch: int) -> dict[str, Array]:
        """Zeros, name -> [batch, ...]."""
        return self._policy.initial_state(batch)

    def choose(
        self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """(actions, next recurrent state), name -> [B, ...] each."""
        output = self._policy.step(observations, recurrent_state)
        return self._selector.mode(output.outputs), output.recurrent_state


class Episode(NamedTuple):
    """One episode that has ended.

    Attributes:
        environment: Which of the B environments played it.
        total: Undiscounted return, of what the environment paid.
        length_steps: Valid steps.
    """

    environment: int
    total: float
    length_steps: int


class Evaluator:
    """Plays episodes in a vector of environments of its own.

    Attributes:
        env_steps: Valid steps so far, those of episodes that did not end or do not count included.
        last_step_at: Monotonic seconds of the newest step.

    Args:
        watch: Is told after every reset and step what environments ended in it, bool [B]; a recorder, for one.
    """

    def __init__(
        self,
        policy: ActingPolicy,
        environment: VectorEnvironment,
        watch: Callable[[Array], None] | None = None,
    ) -> None:
        self._policy = policy
        self._environment = environment
        self._watch = watch
        self.env_steps = 0
        self.last_step_at = time.monotonic()

    def episodes(self, count: int | None, seed: int, stop: Callable[[], bool] = lambda: False) -> Iterator[Episode]:
        """Plays exactly `count` episodes and yields each as it ends.

        Args:
            count: Episodes; None: endlessly, until `stop`.
            seed: Of the environments; with their number it settles the episodes of a policy that draws nothing.
            stop: Asked before every step.
        """
        rows = self._environment.rows
        left = _shares(count, rows)
        totals, lengths = np.zeros(rows, np.float64), np.zeros(rows, np.int64)
        observations = self._environment.reset(seed)
        state = self._policy.initial_state(rows)
        self._took_step(np.zeros(rows, np.bool_))
        while left.any() and not stop():
            actions, next_state = self._policy.choose(observations, state)
            step = self._environment.step(actions)
            observations, state = step.observations, restarted(next_state, step.valid)
            self.env_steps += int(step.valid.sum())
            self._took_step(step.ended)
            totals += step.raw_rewards
            lengths += step.valid
            for ended in np.flatnonzero(step.ended):
                if left[ended] > 0:
                    left[ended] -= 1
                    yield Episode(int(ended), float(totals[ended]), int(lengths[ended]))
            totals[step.ended] = 0.0
            lengths[step.ended] = 0

    def _took_step(self, ended: Array) -> None:
        self.last_step_at = time.monotonic()
        if self._watch is not None:
            self._watch(ended)


def share_of(environment: int, count: int, environments: int) -> int:
    """How many of `count` episodes the environment of that number plays; the first ones play one more."""
    return count // environments + (environment < count % environments)


def evaluation(episodes: Sequence[Episode], *, weights_version: int, env_steps: int, wall_s: float) -> Evaluation:
    """Results of episodes.

    Args:
        episodes: One at least.
        weights_version: Of the weights that chose the actions.
        env_steps: Of the training behind these weights.
        wall_s: How long the episodes took.
    """
    totals = np.array([episode.total for episode in episodes], np.float64)
    return Evaluation(
        weights_version=weights_version,
        env_steps=env_steps,
        episodes=len(episodes),
        mean_return=float(totals.mean()),
        std_return=float(totals.std()),
        min_return=float(totals.min()),
        max_return=float(totals.max()),
        mean_length_steps=float(np.mean([episode.length_steps for episode in episodes])),
        wall_s=wall_s,
    )


def _shares(count: int | None, environments: int) -> Array:
    """int64 [B]: episodes that each environment has to play."""
    if count is None:
        return np.full(environments, np.iinfo(np.int64).max)
    return np.array([share_of(number, count, environments) for number in range(environments)], np.int64)
