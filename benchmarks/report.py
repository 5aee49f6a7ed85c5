"""Reports: results as one JSON object, and as tables in Markdown."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measurement import Result
from benchmarks.table import Row
from distrl.apps.reports.intervals import Interval, bootstrap, interquartile_mean, interval

GRID = 120
"""Points of a curve over all seeds."""


def report_tree(
    rows: Sequence[Row], results: Sequence[Result], random: Mapping[str, float], command: str, seeds: Sequence[int]
) -> dict[str, Any]:
    """Return all measurements as one JSON object.

    Args:
        rows: All requested rows, with or without a result.
        command: The command that repeats the measurement.
        seeds: Requested seeds of every row.
    """
    return {
        "command": command,
        "seeds": list(seeds),
        "rows": [asdict(row) for row in rows],
        "random": dict(random),
        "results": [asdict(result) for result in results],
    }


def merged(old: Mapping[str, Any], new: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """Merge two reports; rows of the newer one replace those of the older one.

    Results of a row that only the older report has, under another seed, stay if their configuration is the same.

    Args:
        order: Names of all existing rows; other rows are dropped.
    """
    rows = {row["name"]: row for tree in (old, new) for row in tree["rows"]}
    of_row = {result["row"]: result["configuration"] for result in new["results"]}
    results = {
        (result["row"], result["seed"]): result
        for result in old["results"]
        if of_row.get(result["row"], result["configuration"]) == result["configuration"]
    }
    results |= {(result["row"], result["seed"]): result for result in new["results"]}
    names = [name for name in order if name in rows]
    seeds = sorted({*old["seeds"], *new["seeds"]})
    return {
        "command": new["command"],
        "seeds": seeds,
        "rows": [rows[name] for name in names],
        "random": {**old["random"], **new["random"]},
        "results": [results[name, seed] for name in names for seed in seeds if (name, seed) in results],
    }


def read_report(path: Path) -> tuple[dict[str, Any], list[Row], dict[str, list[Result]]]:
    """Return a report as JSON, its rows, and its results by row, an empty list for a row without any."""
    tree = json.loads(path.read_text(encoding="utf-8"))
    rows = [Row(**{name: _tuple(value) for name, value in row.items()}) for row in tree["rows"]]
    by_row: dict[str, list[Result]] = {row.name: [] for row in rows}
    for result in map(Result.of, tree["results"]):
        by_row[result.row].append(result)
    return tree, rows, by_row


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def score_table(
    rows: Sequence[Row],
    by_row: Mapping[str, Sequence[Result]],
    random: Mapping[str, float],
    seeds: Sequence[int],
    *,
    training: bool = False,
) -> str:
    """Return a table with every seed's final score and their interquartile mean.

    Args:
        training: The last column has the training's last 100 episodes, not the verdict on a threshold.
    """
    heads = ["Task", "Algorithm", "Threshold", *(f"Seed {seed}" for seed in seeds)]
    heads += ["Interquartile mean", "Random", "Last 100 episodes of the training" if training else ""]
    lines = []
    for row in rows:
        by_seed = {result.seed: result for result in by_row[row.name]}
        found = random.get(row.task)
        lines.append(
            [
                row.task,
                f"{row.algorithm} (`{row.name}`)",
                threshold(row),
                *(_seed_cell(row, by_seed.get(seed)) for seed in seeds),
                mean_cell([judged(row, result) for result in by_row[row.name]]),
                "–" if found is None else number(found),
                interval_cell([training_score(result) for result in by_row[row.name]])
                if training
                else verdict(row, by_row[row.name], seeds),
            ]
        )
    return table(heads, lines)


def threshold(row: Row) -> str:
    """Return '≥ 475 within 500,000 steps', or '≥ 0.90 in training within 1,000,000 steps'."""
    budget = f"{row.minutes:g} minutes" if row.minutes is not None else f"{row.env_steps:,} steps"
    if row.mean_return is None:
        return f"none, {budget}"
    return f"≥ {number(row.mean_return)}{' in training' if row.measure == 'training' else ''} within {budget}"


def verdict(row: Row, results: Sequence[Result], seeds: Sequence[int]) -> str:
    """Return whether the interquartile mean reaches the threshold; trainings that failed count as the worst."""
    if missing(results, row.under(seeds)):
        return "incomplete"
    if row.mean_return is None:
        return "–"
    scores = [judged(row, result) for result in results]
    return "reached" if interquartile_mean(scores) >= row.mean_return else "**missed**"


def missing(results: Sequence[Result], seeds: Sequence[int]) -> bool:
    """Return whether a seed lacks a result."""
    return not {*seeds} <= {result.seed for result in results}


def heading(tree: Mapping[str, Any], by_row: Mapping[str, Sequence[Result]]) -> str:
    """Return the line that names command, machine, date and duration of the measurements."""
    results = [result for of_row in by_row.values() for result in of_row]
    if not results:
        return "Not measured yet."
    dates, commits, machines = (
        ", ".join(sorted({getattr(result, name) for result in results})) for name in ("date", "commit", "machine")
    )
    seeds = ", ".join(map(str, sorted({result.evaluation_seed for result in results})))
    hours = sum(result.wall_s for result in results) / 3600.0
    return (
        f"`{tree['command']}` on {dates}, commit {commits}: {_runs(len(results))} on {machines}; "
        f"trainings and evaluations took {hours:.2g} hours together. Episodes that judge are of seed {seeds}."
    )


def comparison(rows: Sequence[Row], by_row: Mapping[str, Sequence[Result]], seeds: Sequence[int]) -> str:
    """Return a table of variants of one training at equal environment steps: greedy scores, and training episodes."""
    heads = ["Preset", "Variant", "Settings", "Steps", *(f"Seed {seed}" for seed in seeds)]
    heads += ["Interquartile mean", "Of the last 100 training episodes"]
    lines = []
    for row in rows:
        results = by_row[row.name]
        sets = ", ".join(f"`{value}`" for value in row.sets) or "–"
        training = interval_cell([training_score(result) for result in results])
        lines.append(
            [f"`{row.preset}`", row.algorithm, sets, f"{row.env_steps:,}", *seed_cells(results, seeds), training]
        )
    return table(heads, lines)


def seed_cells(results: Sequence[Result], seeds: Sequence[int]) -> list[str]:
    """Return the final score of each seed, and their interquartile mean."""
    by_seed = {result.seed: result for result in results}
    return [*(_score_cell(by_seed.get(seed)) for seed in seeds), mean_cell([result.score for result in results])]


def training_score(result: Result) -> float:
    """Return the mean return of the last 100 training episodes; -infinity if it failed or no episode ended."""
    failed = result.mean_return is None or result.training_mean_return is None
    return -math.inf if failed else float(result.training_mean_return or 0.0)


def judged(row: Row, result: Result) -> float:
    """Return the number that the row's threshold is of; -infinity for a failed training."""
    return training_score(result) if row.measure == "training" else result.score


def markers(name: str) -> tuple[str, str]:
    """Return the marks at the beginning and the end of a generated part of a page."""
    return f"<!-- {name}: begin, written by benchmarks.{name} -->", f"<!-- {name}: end -->"


def published(page: str, name: str, text: str) -> str:
    """Return the page with `text` between the markers of that name.

    Raises:
        ValueError: The page has no such markers.
    """
    first, last = markers(name)
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the page has no part from {first} to {last}")
    return f"{before}{first}\n{text}\n{last}{after}"


def mean_curve(curves: Sequence[Sequence[tuple[int, float]]]) -> tuple[np.ndarray, Interval]:
    """Return environment steps [K] and, at these, the interquartile mean over seeds with its 95 % interval, [K] each.

    A seed that stopped earlier keeps its last value; steps begin where every seed has a value.
    """
    steps = np.linspace(max(curve[0][0] for curve in curves), max(curve[-1][0] for curve in curves), GRID)
    # interp keeps the last value beyond a curve's end
    values = np.stack([np.interp(steps, *zip(*curve, strict=True)) for curve in curves])
    low, high = bootstrap(values)
    return steps, Interval(interquartile_mean(values), low, high)


def _runs(count: int) -> str:
    return "one run" if count == 1 else f"{count} runs"


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    first, *others = (f"| {' | '.join(cells)} |" for cells in [heads, *lines])
    return "\n".join([first, "|---" * len(heads) + "|", *others])


def _seed_cell(row: Row, result: Result | None) -> str:
    """Return score, steps, and steps beyond the budget if these exceed an update."""
    if result is None:
        return "–"
    beyond = 0 if row.env_steps is None else result.env_steps - row.env_steps
    excess = f", **{beyond:,} over**" if beyond > result.update_steps else ""
    score = _score_cell(result) if result.mean_return is None else number(judged(row, result))
    return f"{score} after {result.env_steps:,}{excess}"


def _score_cell(result: Result | None) -> str:
    if result is None:
        return "–"
    return f"**failed** ({result.stop_reason})" if result.mean_return is None else number(result.mean_return)


def mean_cell(scores: Sequence[float], told: Callable[[float], str] | None = None) -> str:
    """Return the interquartile mean of scores that stand beside it; a dash without scores.

    Of more than three scores it has its interval, which of fewer ones is the least and the greatest.

    Args:
        told: Formats a score. None: as `number` does.
    """
    if len(scores) > 3:
        return interval_cell(scores, told)
    return (told or number)(interquartile_mean(scores)) if scores else "–"


def interval_cell(scores: Sequence[float], told: Callable[[float], str] | None = None) -> str:
    """Return the interquartile mean with its interval; a dash without scores.

    Args:
        told: Formats a score. None: as `number` does.
    """
    if not scores:
        return "–"
    centre, low, high = map(told or number, interval(scores))
    return f"{centre} [{low}, {high}]"


def number(value: float) -> str:
    """Format a return with its significant digits; −∞ for a failed training."""
    if math.isinf(value):
        return "−∞"
    digits = 0 if abs(value) >= 1000 or value == round(value) else 1 if abs(value) >= 20 else 2
    return f"{value:,.{digits}f}".replace("-", "−")
