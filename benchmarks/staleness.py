"""The effect of V-trace: IMPALA on CartPole when every unroll is ten updates old.

    python -m benchmarks.staleness

Trainings at equal environment steps, in one process, so that the lag is exact: without lag; with a lag of ten updates;
and with that lag but without correction, by importance weights of 1 in the loss. `benchmarks/lagged_training.py` makes
the lag. All three run at the preset's own learning rate, and at a lower one, at which ten updates change the policy
less. Two measures judge every run: 100 greedy episodes, and its last 100 training episodes, because CartPole ends at
500, so that greedy episodes may hide a loss.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measurement import Result
from benchmarks.publishing import measure_and_report, parser
from benchmarks.report import comparison, heading, missing, read_report, training_score
from benchmarks.table import Row
from distrl.apps.reports.intervals import interval

LAG_UPDATES = 10
ENV_STEPS = 800_000
KEPT = 0.9
"""Share of the result without lag that V-trace must keep; without correction the result must fall below it."""
SHARED = (
    *("stop.mean_return=null", "algorithm.minibatches=1"),
    *("actors.environments=64", "actors.unroll_length_steps=32"),
)
"""Settings of all variants: the whole budget, and updates of one optimizer step on 2,048 environment steps."""
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
"""First part of the rows' names -> words, and settings."""

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
    """Return in words the share of the result without lag that is kept at one learning rate, by both measures."""
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
    """Measure and report."""
    given = parser((__doc__ or "").splitlines()[0], "staleness").parse_args(arguments)
    return measure_and_report("staleness", ROWS, given, block)


if __name__ == "__main__":
    raise SystemExit(main())
