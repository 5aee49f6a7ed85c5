"""The rules of population-based training: the member to learn from, and the settings to go on with.

Jaderberg et al. 2017, arXiv:1711.09846, section 3: exploit by truncation selection, explore by perturbation.
"""

import math
import random
from collections.abc import Mapping
from typing import Any

from distrl.experiments.search import Population, Search
from distrl.experiments.sweep import Varied


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
    changed = min(max(value * factor, varied.low), varied.high)
    return round(changed) if isinstance(varied.low, int) and isinstance(varied.high, int) else float(changed)
