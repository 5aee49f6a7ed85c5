"""Learning results of each algorithm on each task: train, evaluate, and report; `make learning`.

    python -m benchmarks.learning --only 'cartpole-*' --seeds 1 2 3 --out runs/learning

Every (row, seed) is trained by `distrl train --preset …` up to the row's budget of environment steps, or until the
preset's own `stop.mean_return` is reached by its training episodes, and then judged by `distrl evaluate --seed N` over
100 greedy episodes with the final weights, N being 1000 + the training's seed. Runs go one after the other. Results
that are there and of the same configuration are kept, so that the same command goes on where it was interrupted. A
training that failed is a result, the worst there is; one that was interrupted is none. `--publish` puts the rows that
were measured into the committed report, and writes `docs/results.md`.
"""

from pathlib import Path

from benchmarks.pictures import draw_curves, draw_scores
from benchmarks.published import equal_steps
from benchmarks.publishing import measure_and_report, parser
from benchmarks.report import heading, read_report, score_table
from benchmarks.table import ROWS

CURVES = "![Mean return of the last 100 training episodes over environment steps](images/learning-curves.svg)"
SCORES = "![Final scores of all seeds with interquartile means and 95 % intervals](images/learning-scores.svg)"


def main(arguments: list[str] | None = None) -> int:
    """Measures and reports; 1 if something failed, which does not include thresholds that were missed."""
    given = parser((__doc__ or "").splitlines()[0], "learning").parse_args(arguments)
    return measure_and_report("learning", ROWS, given, block, draw)


def block(report: Path) -> str:
    """Return the part of `docs/results.md`."""
    tree, rows, by_row = read_report(report)
    if not tree["results"]:
        return heading(tree, by_row)
    table = score_table(rows, by_row, tree["random"], tree["seeds"])
    return "\n\n".join([heading(tree, by_row), table, CURVES, SCORES, *equal_steps(rows, by_row)])


def draw(report: Path, folder: Path) -> None:
    """The two pictures."""
    tree, rows, by_row = read_report(report)
    draw_curves(folder / "learning-curves.svg", rows, by_row, tree["random"])
    draw_scores(folder / "learning-scores.svg", rows, by_row)


if __name__ == "__main__":
    raise SystemExit(main())
