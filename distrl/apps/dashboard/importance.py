"""Which settings mattered: the share of an outcome's variance that each setting explains alone.

The share is eta squared of a one-way analysis: the variance between the groups of runs with the same value, divided by
the whole variance. With few runs it is large by chance alone, with k values of n runs (k - 1) / (n - 1) on average. So
it is compared with the shares that permutations of the outcomes over the runs give.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ENOUGH = 4
"""Least number of runs with an outcome."""
CLASSES = 3
"""Classes of equal size into which numbers are sorted that hardly occur twice, as in random searches."""
RUNS_A_VALUE = 2.0
"""Least mean number of runs with the same value; numbers with fewer are sorted into classes."""
EVERY_PERMUTATION = 5040
"""Up to this many permutations, those of seven runs, each is taken once; else `PERMUTATIONS` by chance."""
PERMUTATIONS = 2000
Numbers = NDArray[np.float64]


class Importance(NamedTuple):
    """Importance of one setting.

    Attributes:
        share: Share of the outcome's variance between the groups, 0 to 1.
        chance: 95 % of the permutations give at most this share.
        p: Share of the permutations with a share at least as large, after Holm's correction for the number of settings.
        groups: Number of values, or of classes of them.
        in_classes: Whether the values were sorted into classes.
    """

    share: float
    chance: float
    p: float
    groups: int
    in_classes: bool


def importances(
    settings: Mapping[str, Sequence[float | str]], outcomes: Sequence[float], seed: int = 0
) -> dict[str, Importance]:
    """Return setting -> its importance, the most certain first; settings that cannot be judged are left out.

    Args:
        settings: Name -> its value in each run; numbers, or texts for anything else.
        outcomes: The outcome of each run, finite.
        seed: Seed of the permutations, if there are too many to take all.
    """
    values = np.asarray(outcomes, np.float64)
    if len(values) < ENOUGH or np.ptp(values) == 0.0:
        return {}
    values = (values - values.mean()) / np.abs(values).max()
    shuffled = _permutations(values, seed)
    found = {}
    for name, each in settings.items():
        groups, in_classes = _groups(each)
        count = int(groups.max()) + 1
        if 1 < count < len(values):
            share = float(_shares(groups, count, values[None])[0])
            shares = _shares(groups, count, shuffled)
            reached = np.count_nonzero(shares >= share - 1e-9)
            p = reached / len(shuffled) if _is_exact(len(values)) else (reached + 1) / (len(shuffled) + 1)
            found[name] = Importance(share, float(np.quantile(shares, 0.95)), float(p), count, in_classes)
    return _corrected(found)


def _groups(values: Sequence[float | str]) -> tuple[NDArray[np.intp], bool]:
    """Return the number of each run's group, and whether the groups are classes of numbers."""
    _, groups = np.unique(np.asarray([f"{value!r}" for value in values]), return_inverse=True)
    numeric = not any(isinstance(value, str) for value in values)
    if not numeric or len(values) >= RUNS_A_VALUE * (groups.max() + 1):
        return groups, False
    numbers = np.asarray(values, np.float64)
    edges = np.quantile(numbers, np.arange(1, CLASSES) / CLASSES, method="higher")
    _, classes = np.unique(np.searchsorted(edges, numbers, side="right"), return_inverse=True)
    return classes, True


def _shares(groups: NDArray[np.intp], count: int, outcomes: Numbers) -> Numbers:
    """Return the share between the groups for each row of outcomes, [rows, n] with mean 0."""
    members = np.zeros((outcomes.shape[1], count))
    members[np.arange(len(groups)), groups] = 1.0
    sums = outcomes @ members
    shares: Numbers = (sums**2 / members.sum(axis=0)).sum(axis=1) / (outcomes**2).sum(axis=1)
    return shares


def _is_exact(n: int) -> bool:
    return math.factorial(min(n, 20)) <= EVERY_PERMUTATION


def _permutations(values: Numbers, seed: int) -> Numbers:
    """Return permuted outcomes, [permutations, n]."""
    if _is_exact(len(values)):
        return np.array([*itertools.permutations(values)])
    return np.random.default_rng(seed).permuted(np.tile(values, (PERMUTATIONS, 1)), axis=1)


def _corrected(found: Mapping[str, Importance]) -> dict[str, Importance]:
    """Correct p for the number of settings (Holm 1979), and order by it."""
    ordered = sorted(found.items(), key=lambda item: (item[1].p, -item[1].share))
    corrected, least = {}, 0.0
    for place, (name, one) in enumerate(ordered):
        least = max(least, min(1.0, one.p * (len(ordered) - place)))
        corrected[name] = one._replace(p=least)
    return corrected
