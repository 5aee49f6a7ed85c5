"""Evaluates published weights beside the training, whenever this has come far enough."""

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


class PublishedEvaluator:
    """Plays `evaluation.episodes` with the newest weights once they have crossed a multiple of `every_env_steps`.

    Attributes:
        weights_version: Of the newest evaluation, also while it lasts; 0 before the first.

    Args:
        policy, environment: Nobody else's.
        after_env_steps: Environment steps behind the weights that were last evaluated; 0: none were.
        incarnation: The evaluator's, as `registry.register_evaluator` gave it.
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
        assert config.evaluation.every_env_steps is not None
        self._every = config.evaluation.every_env_steps
        self._heat_up = config.heat_up_steps
        self._count = config.evaluation.episodes
        self._seed = config.seed
        self._incarnation = incarnation
        self._backend = backend
        self._policy = policy
        self._environment = environment
        self._evaluator = Evaluator(GreedyPolicy(policy), environment)
        self._next = self._following(after_env_steps)
        self.weights_version = 0

    @property
    def env_steps(self) -> int:
        """Valid steps of all evaluations so far."""
        return self._evaluator.env_steps

    @property
    def last_step_at(self) -> float:
        """Monotonic seconds of the newest one."""
        return self._evaluator.last_step_at

    @property
    def can_evaluate(self) -> bool:
        """There are weights."""
        return self._backend.weights.version() > 0

    @property
    def due(self) -> bool:
        """The newest weights have crossed the next multiple."""
        return self._backend.weights.env_steps() >= self._next

    def evaluate(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Evaluates the newest weights and tells the registry; False if stopped before all episodes had ended.

        Raises:
            FencedError: There is a newer evaluator; the result is dropped.
        """
        published = self._backend.weights.fetch()
        assert published is not None  # otherwise nothing is due, nor can it evaluate
        began = time.monotonic()
        arrays, names = decode_weights(published.blob).arrays, self._policy.weight_names
        self._policy.set_weights(Weights(published.version, {name: arrays[name] for name in arrays if name in names}))
        self.weights_version = published.version
        # By the multiple: the same whether a run was resumed or not.
        key = np.random.SeedSequence(self._seed, spawn_key=(3, self._multiple(published.env_steps)))
        episodes = [*self._evaluator.episodes(self._count, int(key.generate_state(1)[0]), stop)]
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
        """As deterministic mode calls it after every update."""
        if self.due:
            self.evaluate(stop)

    def close(self) -> None:
        """Closes the environments."""
        self._environment.close()

    def _following(self, env_steps: int) -> int:
        """The environment steps at which the multiple after `env_steps` lies."""
        return self._heat_up + (self._multiple(env_steps) + 1) * self._every

    def _multiple(self, env_steps: int) -> int:
        return max(env_steps - self._heat_up, 0) // self._every
