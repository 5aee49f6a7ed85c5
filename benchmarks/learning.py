"""Learning results of each algorithm on each task: train, evaluate, and report; `make learning`.

    python -m benchmarks.learning --only 'cartpole-*' --seeds 1 2 3 --out runs/learning

`distrl train --preset …` trains every (row, seed) up to the row's budget of environment steps, or until its training
episodes reach the preset's own `stop.mean_return`. Then `distrl evaluate --seed N` plays 100 greedy episodes with the
final weights, where N is 1000 + the training's seed. Runs go one after the other. Existing results of the same
configuration are kept, so that the same command continues after an interruption. A failed training is a result, the
worst possible one; an interrupted one is none. `--publish` adds the measured rows to the committed report and writes
`docs/results.md`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measurement import Result
from benchmarks.pictures import draw_curves, draw_scores
from benchmarks.published import equal_steps
from benchmarks.publishing import measure_and_report, parser
from benchmarks.report import heading, read_report, score_table
from benchmarks.slm_lab import beside_slm_lab
from benchmarks.table import ROWS

CURVES = "![Mean return of the last 100 training episodes over environment steps](images/learning-curves.svg)"
SCORES = "![Final scores of all seeds with interquartile means and 95 % intervals](images/learning-scores.svg)"


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if something failed. Missed thresholds are no failure."""
    given = parser((__doc__ or "").splitlines()[0], "learning").parse_args(arguments)
    return measure_and_report("learning", ROWS, given, block, draw)


def block(report: Path) -> str:
    """Return the part of `docs/results.md`."""
    tree, rows, by_row = read_report(report)
    if not tree["results"]:
        return heading(tree, by_row)
    table = score_table(rows, by_row, tree["random"], tree["seeds"])
    parts = [heading(tree, by_row), table, *unmeasured(by_row), CURVES, SCORES]
    return "\n\n".join([*parts, *beside_slm_lab(rows, by_row), *equal_steps(rows, by_row)])


def unmeasured(by_row: Mapping[str, Sequence[Result]]) -> list[str]:
    """Return a sentence with the presets that have no result, or nothing."""
    names = [f"`{row.name}`" for row in ROWS if not by_row.get(row.name)]
    return [f"Not measured yet, under any seed: {', '.join(names)}."] if names else []


def draw(report: Path, folder: Path) -> None:
    """Draw the two pictures."""
    tree, rows, by_row = read_report(report)
    draw_curves(folder / "learning-curves.svg", rows, by_row, tree["random"])
    draw_scores(folder / "learning-scores.svg", rows, by_row)


if __name__ == "__main__":
    raise SystemExit(main())
