"""Evaluation of published weights during the training, at multiples of `evaluation.every_env_steps`."""

import time
from collections.abc import Callable

import numpy as np

from distrl.actors.evaluator import Evaluator, GreedyPolicy, evaluation
from distrl.actors.policy import Policy
from distrl.config import RunConfig
from distrl.environments.vector import VectorEnvironment
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.codec import decode_weights
from distrl.types import Weights


class PublishedEvaluator(Evaluator):
    """Plays `evaluation.episodes` with the newest weights when they have crossed a multiple of `every_env_steps`.

    Attributes:
        weights_version: Version of the newest evaluation's weights, also while it lasts; 0 before the first.

    Args:
        policy, environment: Not shared with another object.
        after_env_steps: Environment steps behind the last evaluated weights; 0 before the first evaluation.
        incarnation: The evaluator's incarnation, from `registry.register_evaluator`.
    """

    def __init__(
        self,
        config: RunConfig,
        backend: Backend,
        policy: Policy,
        environment: VectorEnvironment,
        after_env_steps: int,
        incarnation: int,
    ) -> None:
        super().__init__(GreedyPolicy(policy), environment)
        assert config.evaluation.every_env_steps is not None
        self._every = config.evaluation.every_env_steps
        self._heat_up = config.heat_up_steps
        self._count = config.evaluation.episodes
        self._seed = config.seed
        self._incarnation = incarnation
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
        episodes = [*self.episodes(self._count, int(key.generate_state(1)[0]), stop)]
        if len(episodes) < self._count:
            return False
        self._backend.registry.add_evaluation(
            evaluation(
                episodes,
                weights_version=published.version,
                env_steps=published.env_steps,
                wall_s=time.monotonic() - began,
            ),
            published.blob,
            self._incarnation,
        )
        self._next = self._following(published.env_steps)
        return True

    def evaluate_if_due(self, stop: Callable[[], bool]) -> None:
        """Evaluate if due; deterministic mode calls this after every update."""
        if self.due:
            self.evaluate(stop)

    def _following(self, env_steps: int) -> int:
        """Return the environment steps of the first multiple after `env_steps`."""
        return self._heat_up + (self._multiple(env_steps) + 1) * self._every

    def _multiple(self, env_steps: int) -> int:
        return max(env_steps - self._heat_up, 0) // self._every
