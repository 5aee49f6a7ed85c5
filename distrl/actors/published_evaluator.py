"""The evaluator beside a training: greedy episodes with the newest published weights, at intervals of its steps."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from distrl.actors.evaluator import ActingPolicy, Evaluator, GreedyPolicy, evaluation, with_epsilon
from distrl.actors.filming import Films
from distrl.actors.policy import Policy
from distrl.config import RunConfig
from distrl.environments.vector import VectorEnvironment
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.codec import decode_weights
from distrl.memory_backend.records import Estimate, Evaluation
from distrl.types import Weights

Estimating = Callable[[Callable[[], bool]], Sequence[Estimate] | None]
"""Returns estimates of the return of the policy with its present weights; None if its argument, a stop, was true."""


def no_estimates(stop: Callable[[], bool]) -> Sequence[Estimate]:
    """Return none."""
    return ()


class PublishedEvaluator(Evaluator):
    """Plays `evaluation.episodes` with the newest weights when they have crossed a multiple of `every_env_steps`.

    Attributes:
        weights_version: Version of the newest evaluation's weights, also while it lasts; 0 before the first.
        environment_config: With the changes of operators and of the learner; evaluations have the parameters in force,
            but for `others`, which stay as they are.

    Args:
        after_env_steps: Environment steps behind the last evaluated weights; 0 before the first evaluation.
        films: None: no evaluation is filmed.
        others: Name of `evaluation.other_environments` -> environments, in which it plays `episodes` each, too.
        estimate: Makes the estimates of `evaluation.off_policy`.
    """

    def __init__(
        self,
        config: RunConfig,
        backend: Backend,
        policy: Policy,
        environment: VectorEnvironment,
        after_env_steps: int,
        incarnation: int,
        films: Films | None = None,
        others: Mapping[str, VectorEnvironment] = MappingProxyType({}),
        estimate: Estimating = no_estimates,
    ) -> None:
        most_steps, discount = config.evaluation.max_episode_steps, config.algorithm.discount
        super().__init__(GreedyPolicy(policy), environment, most_steps, discount=discount)
        self._config, self._greedy = config, self._policy
        self.environment_config = config.environment
        assert config.evaluation.every_env_steps is not None
        self._every = config.evaluation.every_env_steps
        self._heat_up = config.heat_up_steps
        self._count = config.evaluation.episodes
        self._seed = config.seed
        self._incarnation = incarnation
        self._films = films
        self._others = others
        self._estimate = estimate
        self._backend = backend
        self._published = policy
        self._next = self._following(after_env_steps)
        self.weights_version = 0

    @property
    def due(self) -> bool:
        """Whether the newest weights have crossed the next multiple, or their evaluation is asked for."""
        weights = self._backend.weights
        asked = self._backend.registry.control().evaluation
        return weights.progress().env_steps >= self._next or (asked.pending and weights.version() > 0)

    def evaluate(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Evaluate the newest weights and register the result, which fulfils what was asked for before.

        Returns:
            Whether it was registered: not if it was stopped before all episodes had ended.

        Raises:
            FencedError: There is a newer evaluator; the result is dropped.
        """
        asked = self._backend.registry.control().evaluation
        published = self._backend.weights.fetch()
        assert published is not None  # otherwise nothing is due, nor can it evaluate
        began = time.monotonic()
        arrays, names = decode_weights(published.blob).arrays, self._published.weight_names
        self._published.set_weights(
            Weights(published.version, {name: arrays[name] for name in arrays if name in names})
        )
        self.weights_version = published.version
        # Seeded by the multiple, so that a resumed run plays the same episodes.
        key = np.random.SeedSequence(self._seed, spawn_key=(3, self._multiple(published.progress.env_steps)))
        self._policy = self._acting(key)
        parameters = self.environment_config.parameters_at(published.progress)
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
            env_steps=published.progress.env_steps,
            wall_s=time.monotonic() - began,
        )
        others = self._play_others(result, key, seed, stop)
        if len(others) < len(self._others):
            return False
        if (estimates := self._estimate(self._showing_life(stop))) is None:
            return False
        best_by = self._config.evaluation.best_by
        result = replace(result, others=others, best_by=best_by, estimates=tuple(estimates))
        if self._films is not None:  # before the result, which may end the run
            self._film(self._films, result, seed, stop)
        self._backend.registry.add_evaluation(result, published.blob, self._incarnation)
        if asked.pending:
            self._backend.registry.fulfil("evaluation", asked.asked)
        self._next = self._following(published.progress.env_steps)
        return True

    def _acting(self, key: np.random.SeedSequence) -> ActingPolicy:
        """Return the policy with `evaluation.epsilon`; each call draws from a further child of `key`."""
        return with_epsilon(
            self._greedy,
            self._environment.spec,
            self._config.network.action_mask,
            self._config.evaluation.epsilon,
            np.random.default_rng(key.spawn(1)[0]),
        )

    def _play_others(
        self, own: Evaluation, key: np.random.SeedSequence, seed: int, stop: Callable[[], bool]
    ) -> dict[str, Evaluation]:
        """Return the results of the same weights in the other environments; fewer if stopped."""
        results: dict[str, Evaluation] = {}
        for name, environment in self._others.items():
            began = time.monotonic()
            most_steps = self._config.evaluation.max_episode_steps
            evaluator = Evaluator(self._acting(key), environment, most_steps, self._took_step, self._discount)
            episodes = [*evaluator.episodes(self._count, seed, stop)]
            self.env_steps += evaluator.env_steps
            if len(episodes) < self._count:
                break
            results[name] = evaluation(
                episodes,
                weights_version=own.weights_version,
                env_steps=own.env_steps,
                wall_s=time.monotonic() - began,
            )
        return results

    def _film(self, films: Films, result: Evaluation, seed: int, stop: Callable[[], bool]) -> None:
        best = self._backend.registry.best_score()
        films.film(
            self._policy,
            seed=seed,
            env_steps=result.env_steps,
            multiples=(self._multiple(self._next) - 1, self._multiple(result.env_steps)),
            is_best=result.score is not None and (best is None or result.score > best),
            stop=self._showing_life(stop),
        )

    def _showing_life(self, stop: Callable[[], bool]) -> Callable[[], bool]:
        """Return `stop`, whose calls count as steps."""

        def stop_and_show_life() -> bool:
            self.last_step_at = time.monotonic()
            return stop()

        return stop_and_show_life

    def evaluate_if_due(self, stop: Callable[[], bool]) -> None:
        """Evaluate if due; deterministic mode calls this after every update."""
        if self.due:
            self.evaluate(stop)

    def _following(self, env_steps: int) -> int:
        """Return the environment steps of the first multiple after `env_steps`."""
        return self._heat_up + (self._multiple(env_steps) + 1) * self._every

    def _multiple(self, env_steps: int) -> int:
        return max(env_steps - self._heat_up, 0) // self._every
