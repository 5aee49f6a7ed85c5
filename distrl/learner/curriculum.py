"""The learner's part of a curriculum: episodes of the present stage of each rule by a metric."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from distrl.config.curriculum import RETURN, SUCCESS, MetricRule

_Finite = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(kw_only=True)
class StageEpisodes:
    """The newest episodes of a rule's present stage. Checkpoints hold them.

    Attributes:
        metric, episodes: Of the rule.
        stage: None while an operator's value replaces the rule.
        values: The metric of the newest episodes that began in this stage, at most `episodes`, oldest first; episodes
            of which it is unknown do not count.
    """

    metric: str
    episodes: Annotated[int, Field(ge=1)]
    stage: Annotated[int, Field(ge=0)] | None = None
    values: list[_Finite] = field(default_factory=list)

    def enter(self, stage: int | None) -> None:
        """Begin another stage without episodes; nothing changes in the present one."""
        if stage != self.stage:
            self.stage, self.values = stage, []

    def add(self, stages: Iterable[float], values: Iterable[float | None]) -> None:
        """Take episodes that ended, in order.

        Args:
            stages: The stages in which they began; NaN: in none.
            values: Their metric; None or NaN where unknown.
        """
        known = (
            float(value)
            for stage, value in zip(stages, values, strict=True)
            if stage == self.stage and value is not None and math.isfinite(value)
        )
        self.values = [*self.values, *known][-self.episodes :]

    @property
    def mean(self) -> float | None:
        """Mean of the metric; None before there are as many episodes as the rule wants."""
        return sum(self.values) / len(self.values) if len(self.values) == self.episodes else None


def begun(
    rules: Mapping[str, MetricRule], before: Mapping[str, StageEpisodes], changed: Collection[str] = ()
) -> dict[str, StageEpisodes]:
    """Return the episodes of each rule: those of an earlier launch, unless it went by another metric.

    Args:
        changed: Keys of `environment.metrics` that mean something else than before.
    """
    found = {}
    for name, rule in rules.items():
        earlier = before.get(name)
        found[name] = StageEpisodes(metric=rule.metric, episodes=rule.episodes)
        if earlier is not None and earlier.metric == rule.metric and rule.metric not in changed:
            found[name].stage, found[name].values = earlier.stage, earlier.values[-rule.episodes :]
    return found


def results(
    metric: str,
    returns: Sequence[float],
    successes: Sequence[int],
    metrics: Mapping[str, Sequence[float]],
) -> Sequence[float | None]:
    """Return the values by which a rule goes, of episodes that ended.

    Args:
        metric: `MetricRule.metric`.
        successes: 1, 0, or -1 where unknown.
        metrics: Key of `environment.metrics` -> value of each episode.
    """
    if metric in metrics:
        return metrics[metric]
    if metric == SUCCESS:
        return [success if success >= 0 else None for success in successes]
    assert metric == RETURN  # or the configuration is refused
    return returns


def next_stage(rule: MetricRule, episodes: StageEpisodes) -> int | None:
    """Return the stage that follows now; None: the present one goes on."""
    mean, stage = episodes.mean, episodes.stage
    if mean is None or stage is None or stage != rule.stage or mean < rule.above:
        return None
    return stage + 1 if stage + 1 < len(rule.values) else None
