"""Time from the command of a training to its first update, and memory.

    python -m benchmarks.startup
    python -m benchmarks.startup --only jax --repetitions 3

CartPole's preset with the learner on TensorFlow and on JAX, in turns, each right after `import tensorflow` alone: the
machine's speed drifts, and only the time beyond that import could be saved. The figure is the median over the
repetitions, with its 95 % interval. A training that does not count fills the caches first.

Memory is the greatest proportional set size of all processes of a run together: with two actors, and with a third one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import whole_run
from benchmarks.measurement import FailedError
from benchmarks.publishing import say
from benchmarks.speed import Entry, around, chosen, finish, goal, listed, parser, stamp
from distrl.apps.reports.intervals import median_interval

MEMORY_S = 15.0
MOST_BEYOND_S = 2.0
MOST_GB = 0.9
MOST_PER_ACTOR_MB = 120


def measure(backends: Sequence[str], repetitions: int, out: Path) -> list[Entry]:
    """Measure one entry for each framework.

    Raises:
        FailedError: A training failed.
    """
    entries: list[Entry] = [{"name": name, **stamp(), "import_s": [], "first_update_s": []} for name in backends]
    for name in backends:
        whole_run.fill_caches(out / "runs" / name, name)
    for _ in range(repetitions):
        for entry in entries:
            alone_s = whole_run.import_s()
            ran = whole_run.run(out / "runs" / entry["name"], entry["name"], ["stop.updates=1"])
            entry["import_s"].append(round(alone_s, 2))
            entry["first_update_s"].append(round(ran.first_update_s, 2))
            say(f"{entry['name']}: import tensorflow {alone_s:.1f} s, first update after {ran.first_update_s:.1f} s")
    return [{**entry, **measure_memory(entry["name"], out)} for entry in entries]


def measure_memory(backend: str, out: Path) -> dict[str, Any]:
    """Return the MB of each role with two actors, and the MB that a third one adds to all of them together.

    Raises:
        FailedError: A training failed.
    """
    ends = [f"stop.minutes={MEMORY_S / 60.0:g}", "stop.mean_return=null", "stop.env_steps=null"]
    two, three = (
        whole_run.run(out / "runs" / backend, backend, [*ends, f"actors.count={count}"], watches_memory=True).memory_mb
        for count in (2, 3)
    )
    more_mb = sum(three.values()) - sum(two.values())
    say(f"{backend}: {sum(two.values()):,.0f} MB with two actors, one more {more_mb:,.0f} MB")
    return {"pss_mb": {role: round(size, 1) for role, size in two.items()}, "actor_more_mb": round(more_mb, 1)}


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    heads = ["Learner", "`import tensorflow` alone", "First update", "Beyond the import, s [95 %]", "Goal"]
    heads += ["Memory, two actors", "Goal", "One actor more", "Goal", "Runs"]
    return listed(report, heads, _line)


def _line(entry: Entry) -> list[str]:
    alone, first = entry["import_s"], entry["first_update_s"]
    beyond = median_interval([later - earlier for earlier, later in zip(alone, first, strict=True)])
    gigabytes = sum(entry["pss_mb"].values()) / 1000.0
    return [
        entry["name"],
        f"{median(alone):.1f} s",
        f"{median(first):.1f} s",
        around(beyond),
        goal(beyond.centre, most=MOST_BEYOND_S),
        f"{gigabytes:.2f} GB",
        goal(gigabytes, most=MOST_GB),
        f"{entry['actor_more_mb']:.0f} MB",
        goal(entry["actor_more_mb"], most=MOST_PER_ACTOR_MB),
        f"{len(first)}",
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if a training failed."""
    made = parser(__doc__, "startup", whole_run.BACKENDS)
    made.add_argument("--repetitions", type=int, default=5, metavar="N", help="of each start (default: %(default)s)")
    given = made.parse_args(arguments)
    try:
        entries = measure(chosen(whole_run.BACKENDS, given.only), given.repetitions, given.out)
    except FailedError as error:
        say(f"failed: {error}")
        return 1
    finish("startup", entries, given, block)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
