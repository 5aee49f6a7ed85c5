"""The worth of hindsight and of curiosity: the same trainings with and without them.

    python -m benchmarks.ablations --only 'mountaincar-*'

Hindsight: the preset `bitflip-dqn-her` with 10, 16 and 25 bits that must be flipped to a goal (Andrychowicz et al.
2017, figure 1). Four episodes fill an unroll, and a training ends at the environment's own reward threshold.
Curiosity: the presets with random network distillation. 100 greedy episodes judge the final weights.
"""

from pathlib import Path

from benchmarks.publishing import measure_and_report, parser
from benchmarks.report import heading, read_report, score_table
from benchmarks.table import Row

BITS = {10: 30_000, 16: 60_000, 25: 120_000}
"""Bits -> environment steps."""
CURIOUS = {"mountaincar-ppo-rnd": "MountainCar-v0", "key-and-door-ppo-rnd": "a key and a door"}
"""Preset -> its task; half a million steps."""


def rows() -> list[Row]:
    """Return every training with and without what it is about."""
    return [
        *(_hindsight(bits, steps, with_it) for bits, steps in BITS.items() for with_it in (True, False)),
        *(_curiosity(preset, task, with_it) for preset, task in CURIOUS.items() for with_it in (True, False)),
    ]


def _hindsight(bits: int, env_steps: int, with_it: bool) -> Row:
    sets = [
        f"environment.kwargs.n={bits}",
        f"actors.unroll_length_steps={4 * (bits + 1)}",
        f"stop.mean_return={1.0 - 0.55 * bits:g}",
        *([] if with_it else ["algorithm.replay.hindsight=null"]),
    ]
    name, variant = (f"{bits}-bits-her", "with hindsight") if with_it else (f"{bits}-bits-plain", "without")
    return Row(name, "bitflip-dqn-her", f"{bits} bits", variant, None, env_steps, sets=tuple(sets))


def _curiosity(preset: str, task: str, with_it: bool) -> Row:
    sets = () if with_it else ("algorithm.curiosity=null",)
    name, variant = (preset, "with curiosity") if with_it else (preset.replace("rnd", "plain"), "without")
    return Row(name, preset, task, variant, None, 500_000, sets=sets)


def block(report: Path) -> str:
    """Return the part of `docs/results.md`."""
    tree, measured, by_row = read_report(report)
    if not tree["results"]:
        return heading(tree, by_row)
    return f"{heading(tree, by_row)}\n\n{score_table(measured, by_row, tree['random'], tree['seeds'], training=True)}"


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    given = parser((__doc__ or "").splitlines()[0], "ablations").parse_args(arguments)
    return measure_and_report("ablations", rows(), given, block)


if __name__ == "__main__":
    raise SystemExit(main())
