"""Evaluation: greedy episodes in separate environments, with the environments' own rewards.

Each of B environments plays its share of the episodes, and every episode of its share counts, however long it takes.
Counting the episodes that end first would favour short ones: with lengths 1 and 9, nine in ten would be of length 1.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from distrl.actors.policy import Policy
from distrl.actors.unroll import restarted
from distrl.config import RunConfig
from distrl.config.curriculum import ParameterValue
from distrl.environments.random_actions import RandomActions
from distrl.environments.vector import VectorEnvironment
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.codec import decode_weights
from distrl.memory_backend.records import Evaluation
from distrl.networks.actions.joint import ActionSelector
from distrl.types import Array, EnvSpec, Weights


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

    def __init__(self, policy: Policy) -> None:
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
    """

    environment: int
    total: float
    length_steps: int
    success: bool | None = None
    metrics: Mapping[str, float | None] = {}


class Evaluator:
    """Plays episodes in a vector of environments of its own.

    Attributes:
        env_steps: Valid steps so far, including those of episodes that did not end or do not count.
        last_step_at: Monotonic seconds of the newest step.

    Args:
        watch: Called after every reset and step with the environments whose episodes ended, bool [B]; films use it.
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
        """Play exactly `count` episodes, or endlessly; yield each as it ends.

        Args:
            seed: Seed of the environments. With their number it determines the episodes of a deterministic policy.
            stop: Called before every step.
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
            succeeded = self._environment.succeeded
            for ended in np.flatnonzero(step.ended):
                if left[ended] > 0:
                    left[ended] -= 1
                    success = None if succeeded is None else succeeded[ended]
                    metrics = self._metrics_of(int(ended))
                    yield Episode(int(ended), float(totals[ended]), int(lengths[ended]), success, metrics)
            totals[step.ended] = 0.0
            lengths[step.ended] = 0

    def _metrics_of(self, row: int) -> dict[str, float | None]:
        """Return the metrics of the episode that has just ended in a row."""
        values = self._environment.episode_metrics
        if values is None:
            return {}
        named = zip(self._environment.metrics, values[row].tolist(), strict=True)
        return {key: None if math.isnan(value) else value for key, value in named}

    def _took_step(self, ended: Array) -> None:
        self.last_step_at = time.monotonic()
        if self._watch is not None:
            self._watch(ended)


def share_of(environment: int, count: int, environments: int) -> int:
    """Return the number of `count` episodes that one environment plays; the first ones may play one more."""
    return count // environments + (environment < count % environments)


class FilmsEvaluations(Protocol):
    """Films of evaluations; `filming.Films` makes them."""

    def change(self, values: Mapping[str, ParameterValue]) -> None:
        """Let the next film have these parameters of the environment."""

    def film(
        self,
        policy: ActingPolicy,
        *,
        seed: int,
        env_steps: int,
        multiples: tuple[int, int],
        is_best: bool,
        stop: Callable[[], bool],
    ) -> None:
        """Film one episode if this evaluation is to be filmed; the arguments are those of `filming.Films.film`."""


class PublishedEvaluator(Evaluator):
    """Plays `evaluation.episodes` with the newest weights when they have crossed a multiple of `every_env_steps`.

    Attributes:
        weights_version: Version of the newest evaluation's weights, also while it lasts; 0 before the first.
        environment_config: With the changes of operators and of the learner; the next evaluation has its parameters.

    Args:
        after_env_steps: Environment steps behind the last evaluated weights; 0 before the first evaluation.
        films: None: no evaluation is filmed.
    """

    def __init__(
        self,
        config: RunConfig,
        backend: Backend,
        policy: Policy,
        environment: VectorEnvironment,
        after_env_steps: int,
        incarnation: int,
        films: FilmsEvaluations | None = None,
    ) -> None:
        super().__init__(GreedyPolicy(policy), environment)
        self._config, self._greedy = config, self._policy
        self.environment_config = config.environment
        assert config.evaluation.every_env_steps is not None
        self._every = config.evaluation.every_env_steps
        self._heat_up = config.heat_up_steps
        self._count = config.evaluation.episodes
        self._seed = config.seed
        self._incarnation = incarnation
        self._films = films
        self._backend = backend
        self._published = policy
        self._next = self._following(after_env_steps)
        self.weights_version = 0

    @property
    def due(self) -> bool:
        """Whether the newest weights have crossed the next multiple."""
        return self._backend.weights.env_steps() >= self._next

    def evaluate(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Evaluate the newest weights and register the result; return False if stopped before all episodes had ended.

        Raises:
            FencedError: There is a newer evaluator; the result is dropped.
        """
        published = self._backend.weights.fetch()
        assert published is not None  # otherwise nothing is due, nor can it evaluate
        began = time.monotonic()
        arrays, names = decode_weights(published.blob).arrays, self._published.weight_names
        self._published.set_weights(
            Weights(published.version, {name: arrays[name] for name in arrays if name in names})
        )
        self.weights_version = published.version
        # Seeded by the multiple, so that a resumed run plays the same episodes.
        key = np.random.SeedSequence(self._seed, spawn_key=(3, self._multiple(published.env_steps)))
        self._policy = with_epsilon(
            self._greedy,
            self._environment.spec,
            self._config.network.action_mask,
            self._config.evaluation.epsilon,
            np.random.default_rng(key.spawn(1)[0]),
        )
        parameters = self.environment_config.parameters_at(published.env_steps)
        self._environment.change(parameters)
        if self._films is not None:
            self._films.change(parameters)
        seed = int(key.generate_state(1)[0])
        episodes = [*self.episodes(self._count, seed, stop)]
        if len(episodes) < self._count:
            return False
        result = evaluation(
            episodes,
            weights_version=published.version,
            env_steps=published.env_steps,
            wall_s=time.monotonic() - began,
        )
        if self._films is not None:  # before the result, which may end the run
            self._film(self._films, result, seed, stop)
        self._backend.registry.add_evaluation(result, published.blob, self._incarnation)
        self._next = self._following(published.env_steps)
        return True

    def _film(self, films: FilmsEvaluations, result: Evaluation, seed: int, stop: Callable[[], bool]) -> None:
        best = self._backend.registry.best_return()

        def stop_and_show_life() -> bool:
            self.last_step_at = time.monotonic()
            return stop()

        films.film(
            self._policy,
            seed=seed,
            env_steps=result.env_steps,
            multiples=(self._multiple(self._next) - 1, self._multiple(result.env_steps)),
            is_best=best is None or result.mean_return > best,
            stop=stop_and_show_life,
        )

    def evaluate_if_due(self, stop: Callable[[], bool]) -> None:
        """Evaluate if due; deterministic mode calls this after every update."""
        if self.due:
            self.evaluate(stop)

    def _following(self, env_steps: int) -> int:
        """Return the environment steps of the first multiple after `env_steps`."""
        return self._heat_up + (self._multiple(env_steps) + 1) * self._every

    def _multiple(self, env_steps: int) -> int:
        return max(env_steps - self._heat_up, 0) // self._every


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
