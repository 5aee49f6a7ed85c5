"""Wall-clock time from the command to the exit until CartPole is solved (100 training episodes with a mean of 475).

    python -m benchmarks.solve
    python -m benchmarks.solve --only jax --seeds 4 5

Several seeds with the learner on TensorFlow and on JAX, in turns, each right after `import tensorflow` alone, which
measures the machine's speed at that moment. A training that does not count fills the caches first. A training that
spends its budget before it has solved the task is marked.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import whole_run
from benchmarks.measurement import FailedError
from benchmarks.publishing import say
from benchmarks.speed import Entry, chosen, finish, goal, listed, parser, stamp

MEAN_RETURN = 475
MOST_BEYOND_S = 4.0
"""Goal of the time beyond the import, with TensorFlow."""
MOST_S = {"jax": 7.0}
"""Goal of the whole time, with JAX."""


def measure(backends: Sequence[str], seeds: Sequence[int], out: Path) -> list[Entry]:
    """Measure one entry for each framework, with a run for each seed.

    Raises:
        FailedError: A training failed.
    """
    entries: list[Entry] = [{"name": name, **stamp(), "runs": []} for name in backends]
    for name in backends:
        whole_run.fill_caches(out / "runs" / name, name)
    for seed in seeds:
        for entry in entries:
            name, alone_s = entry["name"], whole_run.import_s()
            sets = [f"seed={seed}", f"stop.mean_return={MEAN_RETURN}"]
            ran = whole_run.run(out / "runs" / f"{name}-{seed}", name, sets)
            run = {
                "seed": seed,
                "import_s": round(alone_s, 2),
                "first_update_s": round(ran.first_update_s, 2),
                "exit_s": round(ran.exit_s, 2),
                "env_steps": ran.env_steps,
                "solved": ran.stop_reason == "mean_return",
            }
            entry["runs"].append(run)
            say(f"{name} seed {seed}: {_told(run)}, import tensorflow {alone_s:.1f} s, {ran.env_steps:,} steps")
    return entries


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    heads = ["Learner", "Seeds", "From the command to the exit", "Median", "`import tensorflow` alone", "Beyond it"]
    return listed(report, [*heads, "Goal", "Environment steps"], _line)


def _line(entry: Entry) -> list[str]:
    runs = entry["runs"]
    took_s, alone_s = (median(run[figure] for run in runs) for figure in ("exit_s", "import_s"))
    beyond_s = median(run["exit_s"] - run["import_s"] for run in runs)
    return [
        entry["name"],
        ", ".join(str(run["seed"]) for run in runs),
        " / ".join(map(_told, runs)),
        f"{took_s:.1f} s",
        f"{alone_s:.1f} s",
        f"{beyond_s:+.1f} s",
        _verdict(entry["name"], runs, took_s, beyond_s),
        f"{median(run['env_steps'] for run in runs):,.0f}",
    ]


def _told(run: Mapping[str, Any]) -> str:
    return f"{run['exit_s']:.1f} s" + ("" if run["solved"] else " (**not solved**)")


def _verdict(name: str, runs: Sequence[Mapping[str, Any]], took_s: float, beyond_s: float) -> str:
    if not all(run["solved"] for run in runs):
        return "every seed, **missed**"
    if name in MOST_S:
        return f"in all {goal(took_s, most=MOST_S[name])}"
    return f"beyond {goal(beyond_s, most=MOST_BEYOND_S)}"


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if a training failed."""
    made = parser(__doc__, "solve", whole_run.BACKENDS)
    made.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N", help="(default: 1 2 3)")
    given = made.parse_args(arguments)
    try:
        entries = measure(chosen(whole_run.BACKENDS, given.only), given.seeds, given.out)
    except FailedError as error:
        say(f"failed: {error}")
        return 1
    finish("solve", entries, given, block)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
