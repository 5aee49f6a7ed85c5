"""Interquartile means, medians, performance profiles and probabilities of improvement, with bootstrap intervals.

Agarwal et al. 2021, arXiv:2108.13264, section 4.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

EVERY_RESAMPLE = 4096
"""Up to this many resamples, each is taken once: intervals of up to five seeds are exact and always the same."""
RESAMPLES = 2000
AT_ONCE = 2**22
"""Numbers of all resamples that are in memory at once, at least those of one column."""
Numbers: TypeAlias = NDArray[np.float64]


class Interval(NamedTuple):
    """A central estimate with its bootstrap interval."""

    centre: float
    low: float
    high: float

    def overlaps(self, other: "Interval") -> bool:
        """Return whether the two intervals overlap."""
        return self.low <= other.high and other.low <= self.high


def interquartile_mean(scores: ArrayLike) -> Numbers:
    """Return the mean of the middle half along the first axis; scores on its edge count by the share inside.

    Args:
        scores: [n, ...], n at least 1. Of three the middle one counts fully and the others a quarter each. A failed
            run may score -inf.

    Returns:
        float64 [...].
    """
    ordered = np.sort(np.asarray(scores, np.float64), axis=0)
    n = len(ordered)
    position = np.arange(n)
    inside = np.clip(np.minimum(position + 1, 0.75 * n) - np.maximum(position, 0.25 * n), 0.0, None)
    counted = ordered[inside > 0.0]  # what is outside may be infinite
    mean: Numbers = np.tensordot(inside[inside > 0.0], counted, axes=1) / inside.sum()
    return mean


def bootstrap(
    scores: ArrayLike,
    level: float = 0.95,
    seed: int = 0,
    centre: Callable[[Numbers], Numbers] = interquartile_mean,
    sizes: Sequence[int] | None = None,
) -> tuple[Numbers, Numbers]:
    """Percentile bootstrap interval of `centre` along the first axis.

    Args:
        scores: [n, ...]; resamples draw from the n seeds, with replacement.
        level: Share of the resamples' means inside.
        seed: Seed of the draws, if there are too many resamples to take all.
        centre: [n, ...] -> [...], the estimate.
        sizes: Numbers of seeds, n together, that are drawn from among themselves, such as those of an environment.
            None: all are one group.

    Returns:
        Lower and upper ends, float64 [...].
    """
    values = np.asarray(scores, np.float64)
    # The order of a resample's scores is of no matter, so equal ones are evaluated once.
    chosen, often = np.unique(np.sort(_resamples(sizes or [len(values)], seed)), axis=0, return_counts=True)
    columns = values.reshape(len(values), -1)
    parts = np.array_split(columns, math.ceil(chosen.size * columns.shape[1] / AT_ONCE) or 1, axis=1)
    # [resamples, n, columns] -> [n, resamples, columns]
    ends = [_ends(centre(np.moveaxis(part[chosen], 1, 0)), level, often) for part in parts]
    low, high = (np.concatenate(each).reshape(values.shape[1:]) for each in zip(*ends, strict=True))
    return low, high


def interval(scores: Sequence[float], sizes: Sequence[int] | None = None) -> Interval:
    """Interquartile mean of one score per seed, with its 95 % interval; `sizes` as of `bootstrap`."""
    low, high = bootstrap(scores, sizes=sizes)
    return Interval(float(interquartile_mean(scores)), float(low), float(high))


def performance_profile(groups: Sequence[ArrayLike], thresholds: ArrayLike) -> tuple[Numbers, Numbers, Numbers]:
    """Share of all runs with a score above each threshold, with its 95 % interval.

    Args:
        groups: For each environment the scores of its runs, [n] each, which are resampled among themselves.
        thresholds: [k].

    Returns:
        Share, lower and upper end, float64 [k] each.
    """
    scores = np.concatenate([np.asarray(group, np.float64) for group in groups])
    above = (scores[:, None] > np.asarray(thresholds, np.float64)).astype(np.float64)
    weights = _counts([np.size(group) for group in groups]) / len(scores)
    return above.mean(axis=0), *_ends(weights @ above)


def improvement(groups: Sequence[ArrayLike], others: Sequence[ArrayLike]) -> Interval:
    """Probability that a run scores more than one of the others, with its 95 % interval; equal scores count half.

    Args:
        groups: For each environment the scores of its runs, [n] each, which are resampled among themselves. The
            probability is the mean over environments.
        others: The same environments, [m] each.
    """
    pairs = [
        (np.asarray(one, np.float64), np.asarray(two, np.float64)) for one, two in zip(groups, others, strict=True)
    ]
    counts = _counts([len(scores) for pair in pairs for scores in pair])
    centre, means, at = 0.0, np.zeros(len(counts)), 0
    for ours, theirs in pairs:
        won = (ours[:, None] > theirs) + 0.5 * (ours[:, None] == theirs)
        first, second = counts[:, at : at + len(ours)], counts[:, at + len(ours) : at + len(ours) + len(theirs)]
        centre += won.mean() / len(pairs)
        means += ((first @ won) * second).sum(axis=1) / (won.size * len(pairs))
        at += len(ours) + len(theirs)
    low, high = _ends(means)
    return Interval(float(centre), float(low), float(high))


def median_interval(values: Sequence[float]) -> Interval:
    """Median of repeated measurements, with its 95 % interval."""
    low, high = bootstrap(values, centre=median)
    return Interval(float(np.median(values)), float(low), float(high))


def ratio_of_medians(new: Sequence[float], old: Sequence[float]) -> Interval:
    """Median of `new` over median of `old`, measured independently, with its 95 % bootstrap interval."""
    random = np.random.default_rng(0)
    tops, bottoms = (
        np.median(np.asarray(values, np.float64)[random.integers(len(values), size=(RESAMPLES, len(values)))], axis=1)
        for values in (new, old)
    )
    low, high = _ends(tops / bottoms)
    return Interval(float(np.median(new) / np.median(old)), float(low), float(high))


def median(values: Numbers) -> Numbers:
    """Return the median along the first axis."""
    found: Numbers = np.median(values, axis=0)
    return found


def _resamples(sizes: Sequence[int], seed: int = 0) -> NDArray[np.int64]:
    """Return positions of scores, [resamples, sum of sizes]: each group is drawn from itself, with replacement."""
    begins = [0, *itertools.accumulate(sizes)]
    if math.prod(n**n for n in sizes) <= EVERY_RESAMPLE:
        draws = [itertools.product(range(begin, begin + n), repeat=n) for begin, n in zip(begins, sizes, strict=False)]
        return np.array([[*itertools.chain(*parts)] for parts in itertools.product(*draws)])
    random = np.random.default_rng(seed)
    drawn = [begin + random.integers(n, size=(RESAMPLES, n)) for begin, n in zip(begins, sizes, strict=False)]
    return np.concatenate(drawn, axis=1)


def _counts(sizes: Sequence[int]) -> Numbers:
    """Return how often each score is drawn, [resamples, sum of sizes]."""
    chosen = _resamples(sizes)
    rows, n = chosen.shape
    flat = (chosen + n * np.arange(rows)[:, None]).ravel()
    return np.bincount(flat, minlength=rows * n).reshape(rows, n).astype(np.float64)


def _ends(means: Numbers, level: float = 0.95, often: NDArray[np.int64] | None = None) -> tuple[Numbers, Numbers]:
    """Return the ends of the percentile interval along the first axis; each mean counts as often as `often` says."""
    tail = 100.0 * (1.0 - level) / 2.0
    # The ends are means of resamples; with three seeds they are the least and the greatest score.
    low, high = np.percentile(means, [tail, 100.0 - tail], axis=0, method="inverted_cdf", weights=often)
    return low, high
