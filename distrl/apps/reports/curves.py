"""Curves of runs: one quantity over another, smoothed, thinned out, and several seeds as a band."""

import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from distrl.apps.reports.intervals import bootstrap, interquartile_mean, median
from distrl.config.presets import nearest
from distrl.errors import ConfigError
from distrl.metrics.snapshot import X_AXES
from distrl.runs.metrics_csv import Numbers, Table

Statistic = Literal["mean", "iqm", "interval", "median"]


class Curve(NamedTuple):
    """Points of one run: both float64 [n], x never falling, without unknown values."""

    x: Numbers
    y: Numbers


class Band(NamedTuple):
    """Several runs as one: all float64 [n]."""

    x: Numbers
    centre: Numbers
    low: Numbers
    high: Numbers


def curve(table: Table, name: str, over: str = "steps") -> Curve:
    """Return the points at which both a column and the x axis, a key of `X_AXES`, are known."""
    for column in (X_AXES[over], name):
        if column not in table:
            raise ConfigError(f"no metric is named {column!r}; {nearest(column, [*table])}")
    x, y = table[X_AXES[over]], table[name]
    known = np.isfinite(x) & np.isfinite(y)
    return Curve(x[known], y[known])


def smoothed(values: Numbers, window: int) -> Numbers:
    """Return the mean of each value and those before it, `window` in all, fewer at the beginning.

    Args:
        values: float64 [n], finite.
        window: At least 1, which changes nothing.
    """
    if window <= 1 or len(values) == 0:
        return values
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(ends - window, 0)
    means: Numbers = (sums[ends] - sums[begins]) / (ends - begins)
    return means


def thinned(points: Curve, most: int) -> Curve:
    """Return at most `most` points that look the same: minimum and maximum of equal stretches, and both ends.

    Args:
        most: At least 4.
    """
    n = len(points.x)
    if n <= most:
        return points
    edges = np.linspace(0, n, (most - 2) // 2 + 1).astype(int)
    kept = {0, n - 1}
    for begin, end in itertools.pairwise(edges):
        stretch = points.y[begin:end]
        kept |= {begin + int(stretch.argmin()), begin + int(stretch.argmax())}
    at = np.array(sorted(kept))
    return Curve(points.x[at], points.y[at])


def band(curves: Sequence[Curve], statistic: Statistic = "mean", points: int = 400) -> Band:
    """Combine several runs at common x, by linear interpolation, over the range in which all of them are known.

    Args:
        curves: At least one, each of at least one point.
        statistic: "mean": the mean, and one standard deviation (with n as the divisor) to either side. "iqm": the
            interquartile mean, and the quartiles around it (Agarwal et al. 2021, arXiv:2108.13264, section 4).
            "interval": the interquartile mean, and the 95 % bootstrap interval of it. "median": the median and its
            interval.
        points: Most points of the result.
    """
    first, last = max(one.x[0] for one in curves), min(one.x[-1] for one in curves)
    x = np.unique(np.concatenate([one.x for one in curves]))
    x = x[(x >= first) & (x <= last)]
    if len(x) > points:
        x = np.linspace(first, last, points)
    values = np.stack([np.interp(x, one.x, one.y) for one in curves])
    if statistic == "mean":
        centre, deviation = values.mean(axis=0), values.std(axis=0)
        return Band(x, centre, centre - deviation, centre + deviation)
    if statistic == "median":
        return Band(x, np.median(values, axis=0), *bootstrap(values, centre=median))
    low, high = bootstrap(values) if statistic == "interval" else np.quantile(values, [0.25, 0.75], axis=0)
    return Band(x, interquartile_mean(values), low, high)


def by_number(label: str) -> tuple[bool, float, str]:
    """Return a sort key of labels: numbers by size, then texts."""
    try:
        return False, float(label), label
    except ValueError:
        return True, 0.0, label
