"""The effect of V-trace: IMPALA on CartPole while every unroll is ten updates old.

    python -m benchmarks.staleness

Trainings at equal environment steps, in one process, so that the lag is exact: without lag; with a lag of ten updates;
and with that lag but without correction, the loss being given importance weights of 1. The lag is injected by
`benchmarks/lagged_training.py`. These three are made at the preset's own learning rate, and at a lower one, at which
ten updates change the policy less. Every run is judged by 100 greedy episodes, and by its last 100 training episodes:
CartPole ends at 500, so that the greedy ones may hide what was lost.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.intervals import interval
from benchmarks.measurement import Result
from benchmarks.publishing import measure_and_report, parser
from benchmarks.report import comparison, heading, missing, read_report, training_score
from benchmarks.table import Row

LAG_UPDATES = 10
ENV_STEPS = 800_000
KEPT = 0.9
"""Share of the result without lag that V-trace must keep, and share that must be lost without correction."""
SHARED = (
    *("stop.mean_return=null", "algorithm.minibatches=1"),
    *("actors.environments=64", "actors.unroll_length_steps=32"),
)
"""The whole budget; and updates that are one step of the optimizer each, on 2,048 environment steps."""
LAGGED = ("--lag", str(LAG_UPDATES))
VARIANTS = {
    "lag-0": ("no lag, V-trace", ("--lag", "0")),
    "lag-10": (f"lag of {LAG_UPDATES} updates, V-trace", LAGGED),
    "lag-10-uncorrected": (f"lag of {LAG_UPDATES} updates, no correction", (*LAGGED, "--no-correction")),
}
RATES = {
    "": ("At a learning rate of 0.001", ("network.learning_rate=0.001",)),
    "preset-": ("At the preset's own learning rate of 0.0015", ()),
}
"""Beginning of the rows' names -> in words, and what is set."""

ROWS = tuple(
    Row(
        f"{rate}{variant}",
        "cartpole-impala",
        "CartPole-v1",
        words,
        None,
        ENV_STEPS,
        sets=(*SHARED, *sets),
        program=("-m", "benchmarks.lagged_training", *options),
    )
    for rate, (_, sets) in RATES.items()
    for variant, (words, options) in VARIANTS.items()
)


def block(report: Path) -> str:
    """Return the part of `docs/results.md`."""
    tree, rows, by_row = read_report(report)
    if not tree["results"]:
        return heading(tree, by_row)
    verdicts = [f"- {words}: {verdict(by_row, tree['seeds'], rate)}" for rate, (words, _) in RATES.items()]
    return "\n\n".join([heading(tree, by_row), comparison(rows, by_row, tree["seeds"]), "\n".join(verdicts)])


def verdict(by_row: Mapping[str, Sequence[Result]], seeds: Sequence[int], rate: str) -> str:
    """How much of the result without lag is kept at one learning rate, by both measures."""
    measured = [by_row.get(f"{rate}{variant}", ()) for variant in VARIANTS]
    if not any(measured):
        return "not measured yet."
    if any(missing(results, seeds) for results in measured):
        return "**incomplete.**"
    told = []
    for what, score in (("100 greedy episodes", lambda result: result.score), ("the training's own", training_score)):
        whole, corrected, uncorrected = (interval([score(result) for result in results]).centre for results in measured)
        if not whole > 0.0:
            told.append(f"by {what}, **nothing is learned without lag**")
            continue
        kept, left = (max(found, 0.0) / whole for found in (corrected, uncorrected))
        met = "as it must" if kept >= KEPT else f"**missing the {KEPT:.0%} it must keep**"
        lost = "" if left < KEPT else ", **which is no visible loss**"
        told.append(f"by {what}, V-trace keeps {kept:.0%}, {met}, and without correction {left:.0%} are left{lost}")
    return f"{'; '.join(told)}."


def main(arguments: list[str] | None = None) -> int:
    """Measures and reports."""
    given = parser((__doc__ or "").splitlines()[0], "staleness").parse_args(arguments)
    return measure_and_report("staleness", ROWS, given, block)


if __name__ == "__main__":
    raise SystemExit(main())
