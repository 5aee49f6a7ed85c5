"""Resources that processes use."""

import time
from typing import NamedTuple

import psutil

from tests.waiting import lasts


class Taken(NamedTuple):
    """By one process, now."""

    rss_mb: float
    descriptors: int
    threads: int

    @staticmethod
    def by(pid: int) -> "Taken":
        process = psutil.Process(pid)
        return Taken(process.memory_info().rss / 1e6, process.num_fds(), process.num_threads())


def cpu_share(pid: int, for_s: float) -> float:
    """Return the share of one core over the next seconds."""
    process, began = psutil.Process(pid), time.monotonic()
    before = sum(process.cpu_times()[:2])
    lasts(for_s)
    return (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)


def slope_per_h(times_s: list[float], values: list[float]) -> float:
    """Return the slope of the least-squares line."""
    mean_t, mean_v = sum(times_s) / len(times_s), sum(values) / len(values)
    squares = sum((t - mean_t) ** 2 for t in times_s)
    return 3600.0 * sum((t - mean_t) * (v - mean_v) for t, v in zip(times_s, values, strict=True)) / squares
