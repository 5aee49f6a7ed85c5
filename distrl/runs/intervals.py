"""Interquartile means and medians with bootstrap intervals (Agarwal et al. 2021, arXiv:2108.13264, section 4)."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distrl.runs.curves import interquartile_mean

EVERY_RESAMPLE = 4096
"""Up to this many resamples, each is taken once: intervals of up to five seeds are exact and always the same."""
RESAMPLES = 2000


class Interval(NamedTuple):
    """A central estimate with its bootstrap interval."""

    centre: float
    low: float
    high: float

    def overlaps(self, other: "Interval") -> bool:
        """Return whether the two intervals overlap."""
        return self.low <= other.high and other.low <= self.high


def bootstrap(
    scores: ArrayLike,
    level: float = 0.95,
    seed: int = 0,
    centre: Callable[[NDArray[np.float64]], NDArray[np.float64]] = interquartile_mean,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Percentile bootstrap interval of `centre` along the first axis.

    Args:
        scores: [n, ...]; resamples draw from the n seeds, with replacement.
        level: Share of the resamples' means inside.
        seed: Seed of the draws, if there are too many resamples to take all.
        centre: [n, ...] -> [...], the estimate.

    Returns:
        Lower and upper ends, float64 [...].
    """
    values = np.asarray(scores, np.float64)
    n = len(values)
    if n**n <= EVERY_RESAMPLE:
        chosen = np.array(list(itertools.product(range(n), repeat=n)))
    else:
        chosen = np.random.default_rng(seed).integers(n, size=(RESAMPLES, n))
    means = centre(np.moveaxis(values[chosen], 1, 0))  # [resamples, n, ...] -> [n, resamples, ...]
    tail = 100.0 * (1.0 - level) / 2.0
    # The ends are means of resamples; with three seeds they are the least and the greatest score.
    low, high = np.percentile(means, [tail, 100.0 - tail], axis=0, method="inverted_cdf")
    return low, high


def interval(scores: Sequence[float]) -> Interval:
    """Interquartile mean of one score per seed, with its 95 % interval."""
    low, high = bootstrap(scores)
    return Interval(float(interquartile_mean(np.asarray(scores, np.float64))), float(low), float(high))


def median_interval(values: Sequence[float]) -> Interval:
    """Median of repeated measurements, with its 95 % interval."""
    low, high = bootstrap(values, centre=_median)
    return Interval(float(np.median(values)), float(low), float(high))


def ratio_of_medians(new: Sequence[float], old: Sequence[float]) -> Interval:
    """Median of `new` over median of `old`, measured independently, with its 95 % bootstrap interval."""
    random = np.random.default_rng(0)
    tops, bottoms = (
        np.median(np.asarray(values, np.float64)[random.integers(len(values), size=(RESAMPLES, len(values)))], axis=1)
        for values in (new, old)
    )
    low, high = np.percentile(tops / bottoms, [2.5, 97.5], method="inverted_cdf")
    return Interval(float(np.median(new) / np.median(old)), float(low), float(high))


def _median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.median(values, axis=0)
    return found
