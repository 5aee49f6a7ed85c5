"""The rules of population-based training: scores, the member to learn from, and the settings to go on with.

Jaderberg et al. 2017, arXiv:1711.09846, section 3: exploit by truncation selection, explore by perturbation.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distrl.apps.experiments.search import Population, Search
from distrl.apps.experiments.sweep import Varied
from distrl.metrics.snapshot import Value

ENOUGH = 100
"""Episodes after which networks that were taken over have a score: `mean_return_100` then has none of the former."""


@dataclass(frozen=True)
class Taken:
    """A member's totals when it took its networks over."""

    env_steps: int
    episodes: int

    @classmethod
    def of(cls, row: Mapping[str, Value]) -> "Taken":
        """Return the totals of its newest row of metrics.csv."""
        return cls(*(int(_number(row, name) or 0) for name in ("env_steps", "episodes")))


def score_of(row: Mapping[str, Value], taken: Taken | None, *, evaluates: bool) -> float | None:
    """Return the mean return of a member's present networks; None if it is not known yet.

    Args:
        row: Its newest row of metrics.csv.
        taken: None: its networks are its own.
        evaluates: Whether it has evaluations, which count alone; else its last episodes do.
    """
    if evaluates:
        at, evaluated = _number(row, "evaluation_env_steps"), _number(row, "evaluation_mean_return")
        return evaluated if taken is None or (at or 0.0) > taken.env_steps else None
    has_enough = taken is None or (_number(row, "episodes") or 0.0) - taken.episodes >= ENOUGH
    return _number(row, "mean_return_100") if has_enough else None


def _number(row: Mapping[str, Value], name: str) -> float | None:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def teacher_of(name: str, scores: Mapping[str, float], share: float, chance: random.Random) -> str | None:
    """Return the member that `name` learns from, one of the best by chance; None unless `name` is one of the worst.

    Args:
        scores: Member -> score, of the members that have one. Equal scores are in the order of the mapping.
        share: Share of the members that are the worst, and that are the best; at least one member each.
    """
    if name not in scores:
        return None
    count = max(1, math.floor(share * len(scores)))
    ranked = sorted(scores, key=lambda each: scores[each])
    if len(ranked) < 2 or name not in ranked[:count] or scores[ranked[-1]] <= scores[name]:
        return None
    return chance.choice([each for each in ranked[-count:] if scores[each] > scores[name]])


def first_values(search: Search, number: int) -> dict[str, Any]:
    """Return the settings that a member begins with."""
    chance = random.Random(f"{search.draw_seed} {number}")
    return search.chosen(lambda _, varied: varied.draw(chance))


def explored(
    values: Mapping[str, Any], vary: Mapping[str, Varied], population: Population, chance: random.Random
) -> dict[str, Any]:
    """Return the settings of a teacher, changed a little or drawn anew."""
    return {
        path: varied.draw(chance)
        if chance.random() < population.redraw
        else _perturbed(values[path], varied, chance.choice(population.factors))
        for path, varied in vary.items()
    }


def _perturbed(value: Any, varied: Varied, factor: float) -> Any:
    """Return the value times `factor`, within the bounds; of a list, the neighbour in that direction."""
    if varied.values is not None:
        index = varied.values.index(value) + (1 if factor > 1.0 else -1)
        return varied.values[min(max(index, 0), len(varied.values) - 1)]
    assert varied.low is not None
    assert varied.high is not None
    changed = value * factor
    if isinstance(varied.low, int) and isinstance(varied.high, int):
        whole = round(changed)
        if whole == value:  # as 1 times 1.25 is
            whole += (factor > 1.0) - (factor < 1.0)
        return min(max(whole, varied.low), varied.high)
    return float(min(max(changed, varied.low), varied.high))
