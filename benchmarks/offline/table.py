"""The part of docs/results.md: sets, scores, speed and what SAC makes of IQL."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.offline.cells import LIBRARIES, QUICK, RETURNS, SETS, SLOW, normalised
from benchmarks.offline.settings import ALGORITHMS
from benchmarks.report import number, table
from benchmarks.speed import NOTHING, Entry, heading
from distrl.apps.reports.intervals import Interval, bootstrap

ORDER = ("bc", "td3_bc", "iql", "cql")
"""The table has the algorithms in this order."""
ENOUGH = 3
"""Seeds of both libraries behind an interval."""


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    entries: Sequence[Entry] = report["results"]
    if not entries:
        return NOTHING
    parts = [heading(report)]
    for environment in RETURNS:
        of_environment = [entry for entry in entries if entry["environment"] == environment]
        parts += [text for make in (_recorded, _scores, _online) if (text := make(environment, of_environment))]
    return "\n\n".join([*parts, *([speed] if (speed := _speed(entries)) else [])])


def _recorded(environment: str, entries: Sequence[Entry]) -> str:
    """Return a sentence about SAC, and a table of the sets that something has learned from."""
    used = {entry["data"]: entry["parts"] for entry in entries if entry["kind"] in ("offline", "online")}
    lines = []
    for name in (name for name in SETS if name in used):
        parts = used[name]
        episodes, rows = (sum(part[key] for part in parts) for key in ("episodes", "rows"))
        mean = sum(part["mean_return"] * part["episodes"] for part in parts) / episodes
        lines.append([name, f"{rows:,}", f"{episodes:,}", number(mean), f"{normalised(environment, mean):.1f}"])
    told = [_sac(entry) for entry in entries if entry["kind"] in ("sac", "expert")]
    listed = table(["Set", "Rows", "Episodes", "Mean return", "Score"], lines)
    return f"{environment}. {' '.join(told)}\n\n{listed}" if lines else ""


def _sac(entry: Entry) -> str:
    steps, best = max(entry["curve"], key=lambda point: point[1])
    policy = "medium" if entry["kind"] == "sac" else "expert"
    return (
        f"SAC's {policy} policy is that after {steps:,} of {entry['env_steps']:,} steps, with a mean return of "
        f"{number(best)} in its evaluation."
    )


def _scores(environment: str, entries: Sequence[Entry]) -> str:
    """Return a table of the scores after the last update, with a line for each set and algorithm."""
    offline = [entry for entry in entries if entry["kind"] == "offline"]
    lines = []
    for data in SETS:
        for algorithm in ORDER:
            cells = [entry for entry in offline if (entry["data"], entry["algorithm"]) == (data, algorithm)]
            if cells:
                ours, theirs = (_by_seed(environment, cells, library) for library in LIBRARIES)
                lines.append(
                    [data, ALGORITHMS[algorithm].label, *map(_listed, (ours, theirs)), difference(ours, theirs)]
                )
    updates = ", ".join(sorted({f"{entry['updates']:,}" for entry in offline}))
    heads = ["Set", f"Algorithm, {updates} updates", "distrl: seeds 0, 1, 2 · mean", "d3rlpy: the same", "Difference"]
    return table(heads, lines) if lines else ""


def _by_seed(environment: str, cells: Sequence[Entry], library: str) -> dict[int, float]:
    """Return seed -> score."""
    found = sorted((entry["seed"], entry["mean_return"]) for entry in cells if entry["library"] == library)
    return {seed: normalised(environment, mean) for seed, mean in found}


def _listed(by_seed: Mapping[int, float]) -> str:
    """Return '50.1, 48.2 · 49.2'; a dash for a seed that is missing."""
    if not by_seed:
        return "–"
    each = ", ".join(f"{by_seed[seed]:.1f}" if seed in by_seed else "–" for seed in range(max(by_seed) + 1))
    return f"{each} · {np.mean([*by_seed.values()]):.1f}".replace("-", "−")


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    """Return the difference of the means; with its 95 % bootstrap interval if both have `ENOUGH` seeds."""
    if not ours or not theirs:
        return "–"
    found = difference_interval([*ours.values()], [*theirs.values()])
    if min(len(ours), len(theirs)) < ENOUGH:
        return f"{found.centre:+.1f}".replace("-", "−")
    return f"{found.centre:+.1f} [{found.low:+.1f}, {found.high:+.1f}]".replace("-", "−")


def difference_interval(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Return the mean of one side less that of the other; both are resampled among themselves."""
    count = len(ours)

    def centre(values: np.ndarray) -> np.ndarray:
        found: np.ndarray = values[:count].mean(axis=0) - values[count:].mean(axis=0)
        return found

    scores = np.array([*ours, *theirs])
    low, high = bootstrap(scores, centre=centre, sizes=[count, len(theirs)])
    return Interval(float(centre(scores)), float(low), float(high))


def _online(environment: str, entries: Sequence[Entry]) -> str:
    """Return a table of SAC after IQL: evaluations and the end."""
    lines = []
    for entry in sorted((entry for entry in entries if entry["kind"] == "online"), key=lambda entry: entry["seed"]):
        curve = ", ".join(f"{number(mean)} ({steps:,})" for steps, mean in entry["curve"])
        lines.append([str(entry["seed"]), number(entry["offline_return"]), curve, number(entry["mean_return"])])
    heads = ["Seed", "After IQL on medium-replay", "Evaluations of SAC (after steps)", "At the end"]
    return f"SAC after IQL, {environment}, mean returns:\n\n{table(heads, lines)}" if lines else ""


def _speed(entries: Sequence[Entry]) -> str:
    """Return a table of updates per second, of pairs that were measured one after the other."""
    lines = []
    for algorithm in ORDER:
        pairs = [*_pairs([entry for entry in entries if entry["algorithm"] == algorithm])]
        if pairs:
            ratios = [ours / theirs for ours, theirs in pairs]
            rates = [f"{np.median(side):.1f}" for side in zip(*pairs, strict=True)]
            spread = f"{np.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
            lines.append([ALGORITHMS[algorithm].label, str(len(pairs)), *rates, spread])
    heads = ["Algorithm", "Pairs", "distrl, updates/s", "d3rlpy, updates/s", "Ratio: median [least, greatest]"]
    return table(heads, lines) if lines else ""


def _pairs(entries: Sequence[Entry]) -> Iterator[tuple[float, float]]:
    """Yield the rates of both libraries on one set with one seed."""
    rates: dict[str, dict[tuple[str, str, int], float]] = {library: {} for library in LIBRARIES}
    for entry in (entry for entry in entries if entry["kind"] == "offline"):
        rates[entry["library"]][entry["environment"], entry["data"], entry["seed"]] = entry["updates_per_s"]
    for where, ours in rates["distrl"].items():
        if where in rates["d3rlpy"]:
            yield ours, rates["d3rlpy"][where]


assert {*ORDER} == {*QUICK, *SLOW} == {*ALGORITHMS}
