"""The curriculum in an actor: parameters of next episodes, and the stage with which each episode began."""

import numpy as np

from distrl.config.environment import EnvironmentConfig
from distrl.config.schedules import Progress
from distrl.environments.vector import Step, VectorEnvironment
from distrl.types import FloatArray


class Curriculum:
    """Sets the parameters in force, and adds the stages of rules by a metric to the metrics of episodes.

    Args:
        config: As the run was launched: each of its R rules by a metric has a column for ever.
        environment: The actor's.

    Attributes:
        columns: M + R.
    """

    def __init__(self, config: EnvironmentConfig, environment: VectorEnvironment) -> None:
        self._environment = environment
        self._rules = tuple(config.metric_rules)
        self.columns = len(environment.metrics) + len(self._rules)
        self._now = np.full(len(self._rules), np.nan, np.float32)
        self._stages = np.full((environment.rows, len(self._rules)), np.nan, np.float32)
        self._nothing = np.empty((environment.rows, 0), np.float32)

    def follow(self, config: EnvironmentConfig, progress: Progress) -> None:
        """Let next episodes begin with the parameters in force.

        Args:
            config: With the changes of operators and of the learner.
            progress: Behind the newest weights.
        """
        self._environment.change(config.parameters_at(progress))
        rules = config.metric_rules
        stages = [rules[name].stage if name in rules else np.nan for name in self._rules]
        self._now = np.array(stages, np.float32)

    def begin(self) -> None:
        """Record that an episode has begun in every row."""
        self._stages[:] = self._now

    def add_to(self, metrics: FloatArray | None, step: Step) -> FloatArray | None:
        """Return float32 [B, M + R] if episodes ended in the step: their metrics, then the stages in which they began.

        Args:
            metrics: [B, M], `VectorEnvironment.episode_metrics` of the step; None if M is 0.
        """
        if not self._rules:
            return metrics
        if not step.valid.all():
            self._stages[~step.valid] = self._now
        if not step.ended.any():
            return metrics  # which has no values
        return np.concatenate((self._nothing if metrics is None else metrics, self._stages), axis=1)
