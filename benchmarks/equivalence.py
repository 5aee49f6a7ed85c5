"""The same training by different launchers: equal results at equal environment steps.

    python -m benchmarks.equivalence

CartPole with the presets' own settings, except for the number of actors and the launcher: one process with the memory
backend in memory; one and four actors as processes over Redis; four as Ray actors over Redis. Every run takes the same
number of environment steps, too few to finish learning. 100 greedy episodes judge it.
"""

import itertools
from pathlib import Path

from benchmarks.publishing import measure_and_report, parser, scores
from benchmarks.report import comparison, heading, missing, read_report
from benchmarks.table import Row
from distrl.apps.reports.intervals import interval

VARIANTS = {
    "in-memory": ("one process, in memory", ("actors.count=0",)),
    "process-1": ("1 actor process, Redis", ("actors.count=1",)),
    "process-4": ("4 actor processes, Redis", ("actors.count=4",)),
    "ray-4": ("4 Ray actors, Redis", ("actors.count=4", "launch.launcher=ray")),
}
BUDGETS = {"cartpole-impala": 500_000, "cartpole-dqn": 50_000}


def rows() -> list[Row]:
    """Return every variant of each preset."""
    return [
        Row(f"{preset}-{name}", preset, "CartPole-v1", words, None, budget, sets=("stop.mean_return=null", *sets))
        for preset, budget in BUDGETS.items()
        for name, (words, sets) in VARIANTS.items()
    ]


def block(report: Path) -> str:
    """Return the part of `docs/results.md`."""
    tree, measured, by_row = read_report(report)
    if not tree["results"]:
        return heading(tree, by_row)
    return "\n\n".join([heading(tree, by_row), comparison(measured, by_row, tree["seeds"]), verdict(report)])


def verdict(report: Path) -> str:
    """Return a line on intervals that do not overlap; empty if a result is missing or there is none to compare."""
    tree, measured, by_row = read_report(report)
    open_rows = [f"`{row.name}`" for row in measured if missing(by_row[row.name], tree["seeds"])]
    if open_rows:
        return f"**Incomplete: {', '.join(open_rows)}.**"
    around = {row: interval(values) for row, values in scores(report).items()}
    pairs = [*itertools.combinations(measured, 2)]
    if not any(one.preset == other.preset for one, other in pairs):
        return "**Incomplete: there is nothing to compare.**"
    apart = [
        f"`{one.name}` and `{other.name}`"
        for one, other in pairs
        if one.preset == other.preset and not around[one.name].overlaps(around[other.name])
    ]
    return (
        f"**Apart by greedy episodes: {', '.join(apart)}.**"
        if apart
        else "By greedy episodes all intervals of a preset overlap."
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    given = parser((__doc__ or "").splitlines()[0], "equivalence").parse_args(arguments)
    return measure_and_report("equivalence", rows(), given, block)


if __name__ == "__main__":
    raise SystemExit(main())
