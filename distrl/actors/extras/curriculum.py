"""The curriculum in an actor: parameters of next episodes, and the stage with which each episode began."""

from dataclasses import replace

import numpy as np

from distrl.actors.acting import PolicyOutput
from distrl.actors.extras.extra import Extra
from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.config.schedules import Progress
from distrl.environments.vector import EnvironmentStep, VectorEnvironment
from distrl.types import EPISODE_METRICS, FloatArray, Unroll


class Curriculum(Extra):
    """Sets the parameters in force, and adds the stages of rules by a metric to the metrics of episodes.

    Episodes of an unroll have float32 [E, M + R]: their metrics, then the stages in which they began; NaN: in none.

    Args:
        config: As the run was launched: each of its R rules by a metric has a column for ever.
        environment: The actor's.
    """

    def __init__(self, config: EnvironmentConfig, environment: VectorEnvironment) -> None:
        self._environment = environment
        self._rules = tuple(config.metric_rules)
        self._now = np.full(len(self._rules), np.nan, np.float32)
        self._stages = np.full((environment.rows, len(self._rules)), np.nan, np.float32)

    def reset(self, config: RunConfig, progress: Progress) -> None:
        self.begin(config, progress)
        self._stages[:] = self._now

    def begin(self, config: RunConfig, progress: Progress) -> None:
        """Begin an unroll; episodes that begin in it have the parameters in force."""
        self._environment.change(config.environment.parameters_at(progress))
        rules = config.environment.metric_rules
        stages = [rules[name].stage if name in rules else np.nan for name in self._rules]
        self._now = np.array(stages, np.float32)
        self._ended: list[FloatArray] = [np.empty((0, len(self._rules)), np.float32)]

    def add(self, output: PolicyOutput, step: EnvironmentStep) -> None:
        if not self._rules:
            return
        if not step.valid.all():
            self._stages[~step.valid] = self._now
        if step.ended.any():
            self._ended.append(self._stages[step.ended])

    def close(self, unroll: Unroll) -> Unroll:
        if not self._rules:
            return unroll
        columns = [np.concatenate(self._ended)]
        if EPISODE_METRICS in unroll.extras:
            columns.insert(0, unroll.extras[EPISODE_METRICS])
        return replace(unroll, extras={**unroll.extras, EPISODE_METRICS: np.concatenate(columns, axis=1)})
