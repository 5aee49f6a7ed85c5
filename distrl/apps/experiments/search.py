"""A search for good settings as its file describes it.

preset: acrobot-ppo
set: {stop.env_steps: 100000, evaluation.every_env_steps: 10000}
vary:
  network.learning_rate: {low: 1e-4, high: 1e-2, log: true}
  algorithm.entropy_weight: {low: 0.0, high: 0.02}
pruner: median
trials: 30
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from distrl.apps.experiments.sweep import Planned, Varying
from distrl.config.section import Section


class Population(Section):
    """Members that train at the same time, learn from each other, and change settings while they train.

    Population-based training: Jaderberg et al. 2017, arXiv:1711.09846, section 3, with truncation selection.
    """

    members: int = Field(8, ge=2, le=1000)
    """Runs that train at the same time."""
    every_env_steps: int = Field(20_000, ge=1)
    """Environment steps of a member between two comparisons with the others."""
    share: float = Field(0.25, gt=0.0, le=0.5)
    """Share of the members: one of the worst takes the networks and the settings of one of the best."""
    factors: tuple[float, float] = (0.8, 1.25)
    """A setting that was taken is multiplied by one of these, by chance."""
    redraw: float = Field(0.25, ge=0.0, le=1.0)
    """Probability that it is drawn anew from its values instead."""

    @model_validator(mode="after")
    def _changes(self) -> "Population":
        if not all(0.0 < factor < math.inf for factor in self.factors):
            raise ValueError(f"factors must be finite numbers above 0, not {list(self.factors)}")
        return self


class Search(Varying):
    """Settings to search, how they are proposed, and the budget."""

    sampler: Literal["tpe", "random"] = "tpe"
    """tpe: the Tree-structured Parzen Estimator (Bergstra et al. 2011), which learns from earlier trials."""
    pruner: Literal["none", "median"] = "none"
    """median: stop a trial whose best evaluation so far is below the median of the others' evaluations of that number,
    from four complete trials on. It needs `evaluation.every_env_steps`."""
    draw_seed: int = Field(0, ge=0)
    """Seed of what is drawn. Trial or member N trains under seed N, and 1,000 higher with each further `draw_seed`."""
    trials: int = Field(30, ge=1)
    """Trials of all workers together."""
    minutes: float | None = Field(None, gt=0.0)
    """Minutes of one launch, after which its trials are stopped; the next launch, or another worker, goes on with them.
    null: no limit."""
    population: Population | None = None
    """In place of trials: members that learn from each other."""

    @model_validator(mode="after")
    def _searches(self) -> "Search":
        if not self.vary:
            raise ValueError("vary names no setting to search; name some")
        if self.population is not None:
            self._check_population()
        return self

    def planned(self, number: int, values: Mapping[str, Any]) -> Planned:
        """Return the run of a trial or a member with these settings.

        Args:
            number: Counted from 1.
        """
        return Planned(number, values, seed=1000 * self.draw_seed + number)

    def _check_population(self) -> None:
        for name in ("trials", "sampler", "pruner"):
            if self.is_changed(name):
                raise ValueError(f"{name} has no use with population; leave it out")
        for path, varied in self.vary.items():
            if varied.when:
                raise ValueError(f"vary.{path}.when: members change settings while they train, without conditions")
