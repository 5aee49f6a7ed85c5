"""Results as one JSON object, and what people read of it: a table in Markdown, curves and scores as pictures."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.intervals import Interval, bootstrap, interquartile_mean, interval
from benchmarks.measurement import Result
from benchmarks.table import Row

GRID = 120
"""Points of a curve over all seeds."""


def report_tree(
    rows: Sequence[Row], results: Sequence[Result], random: Mapping[str, float], command: str, seeds: Sequence[int]
) -> dict[str, Any]:
    """All that was measured.

    Args:
        rows: Those that were to be measured, be there a result or not.
        command: What measures the same again.
        seeds: That every row was to be measured under.
    """
    return {
        "command": command,
        "seeds": list(seeds),
        "rows": [asdict(row) for row in rows],
        "random": dict(random),
        "results": [asdict(result) for result in results],
    }


def merged(old: Mapping[str, Any], new: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """Two reports in one: rows of the newer take the place of the older's.

    What only the older has of a row, under another seed, stays where it is of the same configuration.

    Args:
        order: Names of all rows there are; a row that is not among them any more goes.
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
    """A report as JSON; its rows; its results by row, an empty list where there is none."""
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
) -> str:
    """Every seed's final score, and what they come to."""
    heads = ["Task", "Algorithm", "Threshold", *(f"Seed {seed}" for seed in seeds)]
    heads += ["Interquartile mean [95 %]", "Random", ""]
    lines = [_line(heads), "|---" * len(heads) + "|"]
    for row in rows:
        by_seed = {result.seed: result for result in by_row[row.name]}
        found = random.get(row.task)
        lines.append(
            _line(
                [
                    row.task,
                    f"{row.algorithm} (`{row.name}`)",
                    threshold(row),
                    *(_seed_cell(row, by_seed.get(seed)) for seed in seeds),
                    _interval_cell([result.score for result in by_row[row.name]]),
                    "–" if found is None else number(found),
                    verdict(row, by_row[row.name], seeds),
                ]
            )
        )
    return "\n".join(lines)


def threshold(row: Row) -> str:
    """'≥ 475 within 500,000 steps'."""
    budget = f"{row.minutes:g} minutes" if row.minutes is not None else f"{row.env_steps:,} steps"
    return f"none, {budget}" if row.mean_return is None else f"≥ {number(row.mean_return)} within {budget}"


def verdict(row: Row, results: Sequence[Result], seeds: Sequence[int]) -> str:
    """Return whether the interquartile mean reaches the threshold; trainings that failed count as the worst."""
    if missing(results, row.under(seeds)):
        return "incomplete"
    if row.mean_return is None:
        return "–"
    return "reached" if interquartile_mean([result.score for result in results]) >= row.mean_return else "**missed**"


def missing(results: Sequence[Result], seeds: Sequence[int]) -> bool:
    """There is a seed without a result."""
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
    """A table of variants of one training at equal environment steps: greedy scores, and the training's own."""
    heads = ["Preset", "Variant", "Settings", "Steps", *(f"Seed {seed}" for seed in seeds)]
    heads += ["Interquartile mean [95 %]", "Of the last 100 training episodes"]
    lines = [_line(heads), "|---" * len(heads) + "|"]
    for row in rows:
        by_seed = {result.seed: result for result in by_row[row.name]}
        cells = [_score_cell(by_seed.get(seed)) for seed in seeds]
        around = [_interval_cell([result.score for result in by_seed.values()])]
        around.append(_interval_cell([training_score(result) for result in by_seed.values()]))
        sets = ", ".join(f"`{value}`" for value in row.sets) or "–"
        lines.append(_line([f"`{row.preset}`", row.algorithm, sets, f"{row.env_steps:,}", *cells, *around]))
    return "\n".join(lines)


def training_score(result: Result) -> float:
    """Mean return of the last 100 training episodes; the worst there is where it failed or no episode ended."""
    failed = result.mean_return is None or result.training_mean_return is None
    return -math.inf if failed else float(result.training_mean_return or 0.0)


def markers(name: str) -> tuple[str, str]:
    """Return the marks at the beginning and the end of a generated part of a page."""
    return f"<!-- {name}: begin, written by benchmarks.{name} -->", f"<!-- {name}: end -->"


def published(page: str, name: str, text: str) -> str:
    """The page with `text` in the place of what it has between the markers of that name.

    Raises:
        ValueError: It has none.
    """
    first, last = markers(name)
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the page has no part from {first} to {last}")
    return f"{before}{first}\n{text}\n{last}{after}"


def mean_curve(curves: Sequence[Sequence[tuple[int, float]]]) -> tuple[np.ndarray, Interval]:
    """Environment steps [K]; interquartile mean over seeds at these, and its 95 % interval, [K] each.

    A seed that stopped earlier keeps its last value; steps begin where every seed has a value.
    """
    steps = np.linspace(max(curve[0][0] for curve in curves), max(curve[-1][0] for curve in curves), GRID)
    # interp keeps the last value beyond a curve's end
    values = np.stack([np.interp(steps, *zip(*curve, strict=True)) for curve in curves])
    low, high = bootstrap(values)
    return steps, Interval(interquartile_mean(values), low, high)


def _runs(count: int) -> str:
    return "one run" if count == 1 else f"{count} runs"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _seed_cell(row: Row, result: Result | None) -> str:
    """Score, steps, and how far it went beyond a budget of steps, if by more than an update."""
    if result is None:
        return "–"
    beyond = 0 if row.env_steps is None else result.env_steps - row.env_steps
    told = f", **{beyond:,} over**" if beyond > result.update_steps else ""
    return f"{_score_cell(result)} after {result.env_steps:,}{told}"


def _score_cell(result: Result | None) -> str:
    if result is None:
        return "–"
    return f"**failed** ({result.stop_reason})" if result.mean_return is None else number(result.mean_return)


def _interval_cell(scores: Sequence[float]) -> str:
    if not scores:
        return "–"
    around = interval(scores)
    return f"{number(around.centre)} [{number(around.low)}, {number(around.high)}]"


def number(value: float) -> str:
    """With as many digits as say something; −∞ for what failed."""
    if math.isinf(value):
        return "−∞"
    digits = 0 if abs(value) >= 1000 or value == round(value) else 1 if abs(value) >= 20 else 2
    return f"{value:,.{digits}f}".replace("-", "−")
