"""Evaluation: greedy episodes in separate environments, with the environments' own rewards.

Each of B environments plays its share of the episodes, and every episode of its share counts, however long it takes.
Counting the episodes that end first would favour short ones: with lengths 1 and 9, nine in ten would be of length 1.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from distrl.actors.acting import Acting
from distrl.actors.unroll import restarted
from distrl.environments.random_actions import RandomActions
from distrl.environments.vector import VectorEnvironment
from distrl.memory_backend.records import Evaluation
from distrl.networks.actions.joint import ActionSelector
from distrl.types import Array, EnvSpec


class ActingPolicy(Protocol):
    """Chooses the actions of an evaluation: `GreedyPolicy`, `EpsilonPolicy` around it, or one of `baselines.py`."""

    def initial_state(self, batch: int) -> dict[str, Array]:
        """Return the recurrent state at an episode's start, name -> [batch, ...]."""

    def choose(
        self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return (actions, next recurrent state), name -> [B, ...] each, for observations name -> [B, ...]."""


class GreedyPolicy:
    """Takes the mode of every action's distribution, or the choice of the highest value. Statistics stay frozen."""

    def __init__(self, policy: Acting) -> None:
        self._policy = policy
        self._selector = ActionSelector(policy.distributions)

    def initial_state(self, batch: int) -> dict[str, Array]:
        """Return zeros, name -> [batch, ...]."""
        return self._policy.initial_state(batch)

    def choose(
        self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return (actions, next recurrent state), name -> [B, ...] each."""
        output = self._policy.step(observations, recurrent_state)
        return self._selector.mode(output.outputs), output.recurrent_state


class SampledPolicy:
    """Draws every action from the policy's distribution, without further exploration.

    Attributes:
        log_probabilities: float32 [B]. Of the newest actions, all actions together.
    """

    def __init__(self, policy: Acting, rng: np.random.Generator) -> None:
        self._policy, self._rng = policy, rng
        self._selector = ActionSelector(policy.distributions)
        self.log_probabilities = np.zeros(0, np.float32)

    def initial_state(self, batch: int) -> dict[str, Array]:
        """Return zeros, name -> [batch, ...]."""
        return self._policy.initial_state(batch)

    def choose(
        self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return (actions, next recurrent state), name -> [B, ...] each."""
        output = self._policy.step(observations, recurrent_state)
        actions, self.log_probabilities = self._selector.sample(output.outputs, self._rng)
        return actions, output.recurrent_state


class EpsilonPolicy:
    """Takes another policy's actions, but in each environment with probability `epsilon` random ones at a step.

    Args:
        draw: Return random actions, name -> [B, ...], for observations name -> [B, ...].
    """

    def __init__(
        self,
        policy: ActingPolicy,
        draw: Callable[[Mapping[str, Array]], dict[str, Array]],
        epsilon: float,
        rng: np.random.Generator,
    ) -> None:
        self._policy = policy
        self._draw = draw
        self._epsilon = epsilon
        self._rng = rng

    def initial_state(self, batch: int) -> dict[str, Array]:
        """Return the policy's, name -> [batch, ...]."""
        return self._policy.initial_state(batch)

    def choose(
        self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return (actions, next recurrent state), name -> [B, ...] each; the policy sees every observation."""
        actions, state = self._policy.choose(observations, recurrent_state)
        explored = self._rng.random(len(next(iter(actions.values())))) < self._epsilon
        if explored.any():
            drawn = self._draw(observations)
            for name, own in actions.items():
                own[explored] = drawn[name][explored]
        return actions, state


def with_epsilon(
    policy: ActingPolicy, spec: EnvSpec, mask: str | None, epsilon: float, rng: np.random.Generator
) -> ActingPolicy:
    """Return the policy, with random actions if `epsilon` is above 0; `mask` as for `RandomActions`."""
    return EpsilonPolicy(policy, RandomActions(spec, rng, mask), epsilon, rng) if epsilon else policy


class Episode(NamedTuple):
    """One episode that has ended.

    Attributes:
        environment: Index of its environment, from 0.
        total: Undiscounted return of the environment's rewards.
        length_steps: Valid steps.
        success: Whether it reached what it was for; None: the environment does not say.
        metrics: Key of `environment.metrics` -> its value; None: `info` had none.
        cut: Whether it was cut short at the evaluator's limit of steps.
        discounted_total: The return with the evaluator's discount.
    """

    environment: int
    total: float
    length_steps: int
    success: bool | None = None
    metrics: Mapping[str, float | None] = {}
    cut: bool = False
    discounted_total: float = 0.0


class Evaluator:
    """Plays episodes in a vector of environments of its own.

    An episode that reaches `max_episode_steps` is cut short: it counts as it is. A vector can only be reset as a whole,
    so each row then plays its present episode to its end, and all begin anew.

    Attributes:
        env_steps: Valid steps so far, including those of episodes that did not end or do not count.
        last_step_at: Monotonic seconds of the newest step.

    Args:
        max_episode_steps: Steps after which an episode is cut short; None: it is played to its end, whenever that is.
        watch: Called after every reset and step with the rows whose episodes ended, and with those whose episodes
            count, bool [B] each; films use it.
        discount: Of discounted returns.
    """

    def __init__(
        self,
        policy: ActingPolicy,
        environment: VectorEnvironment,
        max_episode_steps: int | None = None,
        watch: Callable[[Array, Array], None] | None = None,
        discount: float = 1.0,
    ) -> None:
        self._policy = policy
        self._environment = environment
        self._discount = discount
        self._limit = np.iinfo(np.int64).max if max_episode_steps is None else max_episode_steps
        self._watch = watch
        self.env_steps = 0
        self.last_step_at = time.monotonic()

    def episodes(self, count: int | None, seed: int, stop: Callable[[], bool] = lambda: False) -> Iterator[Episode]:
        """Play exactly `count` episodes, or endlessly; yield each as it ends.

        Args:
            seed: Seed of the environments. With their number it determines the episodes of a deterministic policy.
            stop: Called before every step.
        """
        left = _shares(count, self._environment.rows)
        seeds = np.random.SeedSequence(seed)
        while left.any() and (yield from self._from_reset(left, seed, stop)):
            seed = int(seeds.spawn(1)[0].generate_state(1)[0])

    def _from_reset(self, left: Array, seed: int, stop: Callable[[], bool]) -> Generator[Episode, None, bool]:
        """Play until `left`, int64 [B], is used up or, once an episode was cut short, all present ones have ended.

        Returns:
            False if it was stopped.
        """
        rows = self._environment.rows
        totals, discounted, lengths = np.zeros(rows), np.zeros(rows), np.zeros(rows, np.int64)
        plays, begins_more = left > 0, True
        observations = self._environment.reset(seed)
        state = self._policy.initial_state(rows)
        self._took_step(np.zeros(rows, np.bool_), plays)
        while plays.any():
            if stop():
                return False
            actions, next_state = self._policy.choose(observations, state)
            step = self._environment.step(actions)
            observations, state = step.observations, restarted(next_state, step.valid)
            self.env_steps += int(step.valid.sum())
            totals += step.raw_rewards
            discounted += self._discount**lengths * step.raw_rewards
            lengths += step.valid
            cut = plays & ~step.ended & (lengths >= self._limit)
            self._took_step(step.ended | cut, plays)
            begins_more &= not cut.any()
            for row in np.flatnonzero(plays & (step.ended | cut)).tolist():
                left[row] -= 1
                plays[row] = begins_more and left[row] > 0
                played = self._episode(row, float(totals[row]), int(lengths[row]), bool(cut[row]))
                yield played._replace(discounted_total=float(discounted[row]))
            totals[step.ended] = discounted[step.ended] = 0.0
            lengths[step.ended] = 0
        return True

    def _episode(self, row: int, total: float, length_steps: int, cut: bool) -> Episode:
        """Return the episode that has just ended in a row. Of one that was cut, results of its end are unknown."""
        if cut:
            return Episode(row, total, length_steps, None, dict.fromkeys(self._environment.metrics), cut)
        succeeded = self._environment.succeeded
        success = None if succeeded is None else succeeded[row]
        return Episode(row, total, length_steps, success, self._metrics_of(row))

    def _metrics_of(self, row: int) -> dict[str, float | None]:
        """Return the metrics of the episode that has just ended in a row."""
        values = self._environment.episode_metrics
        if values is None:
            return {}
        named = zip(self._environment.metrics, values[row].tolist(), strict=True)
        return {key: None if math.isnan(value) else value for key, value in named}

    def _took_step(self, ended: Array, plays: Array) -> None:
        self.last_step_at = time.monotonic()
        if self._watch is not None:
            self._watch(ended, plays)


def share_of(environment: int, count: int, environments: int) -> int:
    """Return the number of `count` episodes that one environment plays; the first ones may play one more."""
    return count // environments + (environment < count % environments)


def evaluation(episodes: Sequence[Episode], *, weights_version: int, env_steps: int, wall_s: float) -> Evaluation:
    """Summarise episodes; `env_steps` are those of the training, `wall_s` is the duration of the episodes."""
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
        success_rate=success_rate(episodes),
        metrics=metric_means(episodes),
        cut_episodes=sum(episode.cut for episode in episodes),
        mean_discounted_return=float(np.mean([episode.discounted_total for episode in episodes])),
    )


def success_rate(episodes: Sequence[Episode]) -> float | None:
    """Return the share of episodes that succeeded, of those of which the environment says it; None without any."""
    known = [episode.success for episode in episodes if episode.success is not None]
    return sum(known) / len(known) if known else None


def metric_means(episodes: Sequence[Episode]) -> dict[str, float | None]:
    """Return the mean of each metric over the episodes of which it is known; None: of none."""
    means: dict[str, float | None] = {}
    for key in episodes[0].metrics if episodes else ():
        known = [value for episode in episodes if (value := episode.metrics[key]) is not None]
        means[key] = sum(known) / len(known) if known else None
    return means


def _shares(count: int | None, environments: int) -> Array:
    """Return the number of episodes for each environment, int64 [B]."""
    if count is None:
        return np.full(environments, np.iinfo(np.int64).max)
    return np.array([share_of(number, count, environments) for number in range(environments)], np.int64)
