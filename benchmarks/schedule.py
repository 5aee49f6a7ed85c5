"""A sequence of measurements with its progress and the estimated time left."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.measurement import FailedError, Result, kept_results, measure, random_return
from benchmarks.report import judged
from benchmarks.table import Row

Todo = tuple[Row, int]
"""A row and a seed."""


def open_measurements(rows: Sequence[Row], seeds: Sequence[int], kept: Sequence[Result]) -> list[Todo]:
    """Return the missing runs: all rows under the first seed, then under the next."""
    done = {(result.row, result.seed) for result in kept}
    return [(row, seed) for seed in seeds for row in rows if seed in row.under(seeds) and (row.name, seed) not in done]


def remaining_s(todo: Sequence[Todo], done: Sequence[Result]) -> float | None:
    """Estimate the seconds left, from other seeds of the same row or from the mean of all; None: unknown."""
    if not done:
        return None
    by_row: dict[str, list[float]] = {}
    for result in done:
        by_row.setdefault(result.row, []).append(result.wall_s)
    means = {row: sum(walls) / len(walls) for row, walls in by_row.items()}
    usual = sum(means.values()) / len(means)
    return sum(means.get(row.name, 60.0 * row.minutes if row.minutes else usual) for row, _ in todo)


def measure_all(
    rows: Sequence[Row], seeds: Sequence[int], out: Path, tell: Callable[[str], None]
) -> tuple[list[Result], list[str]]:
    """Measure all missing results.

    Returns:
        All results, in the order of rows and seeds, and one line per failure.
    """
    todo = open_measurements(rows, seeds, kept_results(out, rows, seeds))
    total = sum(len(row.under(seeds)) for row in rows)
    if len(todo) < total:
        tell(f"{total - len(todo)} of {total} are there already")
    failures = []
    for index, (row, seed) in enumerate(todo):
        name = f"[{total - len(todo) + index + 1}/{total}] {row.name} seed {seed}"
        tell(f"{name} …")
        began = time.monotonic()
        try:
            told = result_words(row, measure(row, seed, out))
        except FailedError as error:
            told = f"failed: {error}"
            failures.append(f"{row.name} seed {seed}: {error}")
        left = remaining_s(todo[index + 1 :], kept_results(out, rows, seeds))
        tell(f"{name}: {told} in {in_words(time.monotonic() - began)}" + (f" · {in_words(left)} to go" if left else ""))
    results = kept_results(out, rows, seeds)
    return results, failures + measure_random(rows, results, out)


def measure_random(rows: Sequence[Row], results: Sequence[Result], out: Path) -> list[str]:
    """Measure the missing returns of random actions in every task with a result; return one line per failure."""
    failures = []
    for row in rows:
        # A run that did not fail first: it surely has a policy.
        of_row = sorted(
            (result for result in results if result.row == row.name), key=lambda one: one.failure is not None
        )
        try:
            if of_row:
                random_return(row, of_row[0].seed, out)
        except FailedError as error:
            failures.append(f"random actions in {row.task}: {error}")
    return failures


def result_words(row: Row, result: Result) -> str:
    """Return 'mean return 497.1 (>= 475) after 212,992 steps'."""
    if result.mean_return is None:
        return f"FAILED ({result.failure}) after {result.env_steps:,} steps"
    score = judged(row, result)
    goal = "" if row.mean_return is None else f" ({'>=' if score >= row.mean_return else 'MISSED'} "
    goal += f"{row.mean_return:,g})" if goal else ""
    return f"mean return {score:,.1f}{goal} after {result.env_steps:,} steps"


def in_words(seconds: float) -> str:
    """Return a duration as '100 s', '7 min' or '2.5 h'."""
    whole = round(seconds)
    return f"{whole} s" if whole < 100 else f"{whole / 60:.0f} min" if whole < 6000 else f"{whole / 3600:.1f} h"
