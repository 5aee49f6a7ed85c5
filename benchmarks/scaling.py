"""Speed by the number of actors, with environments that take most of the time.

    python -m benchmarks.scaling
    python -m benchmarks.scaling --only 'processes-*' --seconds 10
    python -m benchmarks.scaling --only processes-1 processes-16 ray-1 ray-16

Real trainings through the command line, `distrl train`, of one environment per actor that sleeps 10 ms in every step
and does nothing else. What keeps sixteen actors from sixteen times the rate of one is distrl: waiting for each other in
the memory backend, for room, for weights, for the learner. The rate is over the seconds after every actor is at work
and a warm-up. The ratio is that rate to so many times the rate with one actor of the same launcher, in the same report.
"""

import csv
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measurement import FailedError, run
from benchmarks.publishing import say
from benchmarks.speed import Entry, chosen, finish, goal, listed, parser, share, stamp
from distrl.runs.summary import Summary

LAUNCHERS = {"processes": "process", "ray": "ray"}
ACTORS = (1, 2, 4, 8, 16)
NAMES = tuple(f"{launcher}-{actors}" for launcher in LAUNCHERS for actors in ACTORS)
STEP_S = 0.01
STEPS = 20
WARM_UP_S = 4.0
LEAST_RATIO = 0.95

Row = Mapping[str, str]
"""One line of metrics.csv."""


def sets(launcher: str, actors: int, seconds: float) -> list[str]:
    """Return the changes to the CartPole preset: environment, actors, stop condition.

    An update takes four unrolls, so that the learner's work per step does not depend on the number of actors.
    """
    return [
        "environment.id=benchmarks.sleeping:Sleeping",
        f"environment.kwargs={{step_s: {STEP_S}}}",
        f"actors.count={actors}",
        "actors.environments=1",
        f"actors.unroll_length_steps={STEPS}",
        "learner.batch_size=4",
        "algorithm.minibatches=1",
        # Room for an unroll of every actor, so that no actor waits because of a short queue.
        f"memory.queue_batches={actors}",
        f"launch.launcher={LAUNCHERS[launcher]}",
        "stop.mean_return=null",
        "stop.env_steps=null",
        f"stop.minutes={(seconds + WARM_UP_S + 2.0 * actors) / 60.0}",  # actors start one after the other
    ]


def measure(launcher: str, actors: int, seconds: float, out: Path) -> Entry:
    """Run one training.

    Raises:
        FailedError: The training failed, or was too short after all actors had started.
    """
    run_dir, where = out / "runs" / f"{launcher}-{actors}", stamp()
    if run_dir.exists():
        shutil.rmtree(run_dir)
    options = [argument for value in sets(launcher, actors, seconds) for argument in ("--set", value)]
    began = time.monotonic()
    run(["-m", "distrl", "train", "--preset", "cartpole-impala", "--run-dir", str(run_dir), "--quiet", *options])
    summary = Summary.read(run_dir / "summary.json")
    with (run_dir / "metrics.csv").open(encoding="utf-8") as file:
        rate, measured_s = steady_rate(list(csv.DictReader(file)), actors)
    return {
        "name": f"{launcher}-{actors}",
        **where,
        "launcher": launcher,
        "actors": actors,
        "env_steps_per_s": rate,
        "measured_s": measured_s,
        "took_s": time.monotonic() - began,
        "learner_idle_share": summary.learner_idle_share,
        "actors_blocked_share": summary.actors_blocked_share,
    }


def steady_rate(rows: Sequence[Row], actors: int) -> tuple[float, float]:
    """Return environment steps per second from `WARM_UP_S` after all actors had started, and the seconds measured.

    Raises:
        FailedError: Less than two seconds were measured.
    """
    up_s = next((float(row["wall_s"]) for row in rows if int(row["actors_up"]) == actors), None)
    steady = [row for row in rows if up_s is not None and float(row["wall_s"]) >= up_s + WARM_UP_S]
    if not steady or (measured_s := float(steady[-1]["wall_s"]) - float(steady[0]["wall_s"])) < 2.0:
        raise FailedError(f"{actors} actors were not all at work long enough; give --seconds more")
    return (float(steady[-1]["env_steps"]) - float(steady[0]["env_steps"])) / measured_s, measured_s


def linear(entries: Sequence[Entry]) -> dict[str, float]:
    """Return name -> rate per actor, relative to one actor of the same launcher; without that one, none."""
    ones = {entry["launcher"]: entry["env_steps_per_s"] for entry in entries if entry["actors"] == 1}
    return {
        entry["name"]: entry["env_steps_per_s"] / (entry["actors"] * ones[entry["launcher"]])
        for entry in entries
        if entry["launcher"] in ones
    }


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    ratios = linear(report["results"])
    heads = ["Actors", "Steps/s", "Of linear", "Goal", "Learner idle", "Actors blocked"]
    return listed(report, heads, lambda entry: _line(entry, ratios.get(entry["name"])))


def _line(entry: Entry, ratio: float | None) -> list[str]:
    return [
        f"{entry['actors']} {'actor' if entry['actors'] == 1 else 'actors'}, {entry['launcher']}",
        f"{entry['env_steps_per_s']:,.1f}",
        "–" if ratio is None else f"{ratio:.3f}",
        goal(ratio, least=LEAST_RATIO) if ratio is not None and entry["actors"] == max(ACTORS) else "–",
        *(share(entry[name]) for name in ("learner_idle_share", "actors_blocked_share")),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if a training failed."""
    made = parser(__doc__, "scaling", NAMES)
    made.add_argument("--seconds", type=float, default=20.0, help="measured of each (default: %(default)s)")
    given = made.parse_args(arguments)
    entries, failures = [], []
    for name in chosen(NAMES, given.only):
        launcher, _, actors = name.partition("-")
        say(f"{name} …")
        try:
            entries.append(measure(launcher, int(actors), given.seconds, given.out))
        except FailedError as error:
            failures.append(f"{name}: {error}")
            say(f"  failed: {error}")
        else:
            say(f"  {entries[-1]['env_steps_per_s']:,.1f} steps/s, took {entries[-1]['took_s']:.0f} s")
    finish("scaling", entries, given, block)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
