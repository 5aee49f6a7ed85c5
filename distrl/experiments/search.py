"""A search for good settings as its file describes it.

preset: acrobot-ppo
set: {stop.env_steps: 100000, evaluation.every_env_steps: 10000}
vary:
  network.learning_rate: {low: 1e-4, high: 1e-2, log: true}
  algorithm.entropy_weight: {low: 0.0, high: 0.02}
pruner: median
trials: 30
"""

from typing import Literal

from pydantic import Field, model_validator

from distrl.experiments.sweep import Varying


class Search(Varying):
    """Settings to search, how they are proposed, and the budget."""

    sampler: Literal["tpe", "random"] = "tpe"
    """tpe: the Tree-structured Parzen Estimator (Bergstra et al. 2011), which learns from earlier trials."""
    pruner: Literal["none", "median"] = "none"
    """median: stop a trial whose best evaluation so far is below the median of the others' evaluations of that number,
    from four complete trials on. It needs `evaluation.every_env_steps`."""
    draw_seed: int = Field(0, ge=0)
    """Seed of the sampler."""
    trials: int = Field(30, ge=1)
    """Trials of all workers together."""
    minutes: float | None = Field(None, gt=0.0)
    """Minutes of one launch, after which its trials are stopped; the next launch, or another worker, goes on with them.
    null: no limit."""

    @model_validator(mode="after")
    def _searches(self) -> "Search":
        if not self.vary:
            raise ValueError("vary names no setting to search; name some")
        return self
