"""The worth of hindsight: DQN on 10, 16 and 25 bits that must be flipped to a goal, with and without it.

    python -m benchmarks.hindsight

The preset `bitflip-dqn-her` with other numbers of bits (Andrychowicz et al. 2017, figure 1). Four episodes fill an
unroll. A training ends at the environment's own reward threshold, or when its steps are spent. 100 greedy episodes
judge it.
"""

from pathlib import Path

from benchmarks.publishing import measure_and_report, parser
from benchmarks.report import heading, read_report, score_table
from benchmarks.table import Row

BUDGETS = {10: 30_000, 16: 60_000, 25: 120_000}
"""Bits -> environment steps."""
VARIANTS = {"her": "with hindsight", "plain": "without hindsight"}


def rows() -> list[Row]:
    """Return every number of bits with and without hindsight."""
    return [_row(bits, name) for bits in BUDGETS for name in VARIANTS]


def _row(bits: int, name: str) -> Row:
    sets = [
        f"environment.kwargs.n={bits}",
        f"actors.unroll_length_steps={4 * (bits + 1)}",
        f"stop.mean_return={1.0 - 0.55 * bits:g}",
    ]
    if name == "plain":
        sets.append("algorithm.replay.hindsight=null")
    task = f"{bits} bits flipped to a goal"
    return Row(f"{bits}-bits-{name}", "bitflip-dqn-her", task, VARIANTS[name], None, BUDGETS[bits], sets=tuple(sets))


def block(report: Path) -> str:
    """Return the part of `docs/results.md`."""
    tree, measured, by_row = read_report(report)
    if not tree["results"]:
        return heading(tree, by_row)
    return f"{heading(tree, by_row)}\n\n{score_table(measured, by_row, tree['random'], tree['seeds'])}"


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    given = parser((__doc__ or "").splitlines()[0], "hindsight").parse_args(arguments)
    return measure_and_report("hindsight", rows(), given, block)


if __name__ == "__main__":
    raise SystemExit(main())
