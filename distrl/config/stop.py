"""StopConfig: the conditions that end a training."""

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import Field

from distrl.config.environment import InfoKey
from distrl.config.evaluation import EvaluationConfig
from distrl.config.section import Section


class Budget(NamedTuple):
    """A stop condition that counts: a field of the section `stop`, of the learner's state and of snapshots.

    Attributes:
        short: Name in lists of goals and of runs.
        counted: What it counts, in sentences.
    """

    field: str
    short: str
    counted: str


BUDGETS = (
    Budget("env_steps", "steps", "environment steps"),
    Budget("episodes", "episodes", "episodes"),
    Budget("updates", "updates", "updates"),
)
"""One more such condition is a line here, and a field of `StopConfig`."""


class StopConfig(Section):
    """Conditions that end the training; the first one to hold ends it. Without any, it trains until stopped."""

    mean_return: float | None = None
    """Mean return of the last 100 episodes reaches this."""
    evaluation_return: float | None = None
    """Mean return of an evaluation reaches this, see `evaluation`."""
    env_steps: int | None = Field(None, ge=1)
    """Environment steps of all actors that the learner has taken in, those of stale unrolls included."""
    metrics: dict[InfoKey, float] = Field(default_factory=dict)
    """Key of `environment.metrics` -> mean of the last 100 episodes that it reaches; one of several is enough."""
    episodes: int | None = Field(None, ge=1)
    """Episodes of all actors that ended. The learner looks at every condition after each update, and while it waits."""
    updates: int | None = Field(None, ge=1)
    """Updates of the learner."""
    minutes: float | None = Field(None, gt=0.0)
    """Minutes of training."""

    def check(self, evaluation: EvaluationConfig, metrics: Mapping[str, str], first_update_steps: int) -> None:
        """Refuse conditions on evaluations and metrics that there are not, and an end before the first update.

        Args:
            metrics: `environment.metrics`.
            first_update_steps: Environment steps before the first update, as far as the configuration tells.
        """
        if self.evaluation_return is not None and evaluation.every_env_steps is None:
            raise ValueError(
                f"stop.evaluation_return: {self.evaluation_return:g} waits for evaluations, and there are none; "
                "set evaluation.every_env_steps"
            )
        if undeclared := [key for key in self.metrics if key not in metrics]:
            raise ValueError(
                f"stop.metrics.{undeclared[0]} waits for a metric that is not in environment.metrics; declare it there "
                f"(for example {undeclared[0]}: sum), or leave it out"
            )
        if self.env_steps is not None and self.env_steps < first_update_steps:
            raise ValueError(
                f"stop.env_steps: {self.env_steps} is over before anything is learned; the first update needs "
                f"{first_update_steps} (algorithm.replay.min_size_steps, and learner.batch_size by samples_per_insert)"
            )
