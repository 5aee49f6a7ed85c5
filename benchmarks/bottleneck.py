"""Bottleneck verdicts of trainings with one deliberately slow side, which the verdict must name.

    python -m benchmarks.bottleneck
    python -m benchmarks.bottleneck --only slow-learner --seconds 30

Two real trainings by `distrl train`, of CartPole's presets with two actors. In one of them an environment sleeps 10 ms
in every step, so that the learner has almost nothing to do. In the other the learner trains forty times on every
unroll. The shares and the verdict are those of `distrl status` at the end of the training.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measurement import FailedError, run
from benchmarks.publishing import say
from benchmarks.speed import Entry, chosen, finish, listed, parser, share, stamp
from distrl.runs.summary import Summary


class Case(NamedTuple):
    """A training with one slow side."""

    preset: str
    sets: tuple[str, ...]
    verdict: str  # that is right


SLEEPING = ("environment.id=benchmarks.sleeping:Sleeping", "actors.environments=1", "actors.unroll_length_steps=20")
CASES = {
    "slow-environments": Case("cartpole-impala", (*SLEEPING, "algorithm.minibatches=1"), "actors"),
    "slow-learner": Case("cartpole-appo", ("algorithm.epochs=40",), "learner"),
}


def measure(name: str, seconds: float, out: Path) -> Entry:
    """Run one training.

    Raises:
        FailedError: The training failed.
    """
    case, run_dir, where = CASES[name], out / "runs" / name, stamp()
    shutil.rmtree(run_dir, ignore_errors=True)
    endless = ("stop.mean_return=null", "stop.env_steps=null", f"stop.minutes={seconds / 60.0}")
    options = [argument for value in (*case.sets, *endless) for argument in ("--set", value)]
    run(["-m", "distrl", "train", "--preset", case.preset, "--run-dir", str(run_dir), "--quiet", *options])
    summary = Summary.read(run_dir / "summary.json")
    shares = {share: getattr(summary, share) for share in ("learner_idle_share", "actors_blocked_share")}
    return {"name": name, **where, **shares, "verdict": summary.bottleneck, "right": case.verdict}


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    return listed(report, ["Training", "Learner idle", "Actors blocked", "Verdict", "Goal"], _line)


def _line(entry: Entry) -> Sequence[str]:
    told = "met" if entry["verdict"] == entry["right"] else "**missed**"
    waits = [share(entry[name]) for name in ("learner_idle_share", "actors_blocked_share")]
    return [entry["name"], *waits, entry["verdict"], f"{entry['right']}, {told}"]


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if a training failed."""
    made = parser(__doc__, "bottleneck", list(CASES))
    made.add_argument("--seconds", type=float, default=20.0, help="of each training (default: %(default)s)")
    given = made.parse_args(arguments)
    entries, failed = [], False
    for name in chosen(list(CASES), given.only):
        say(f"{name}, {given.seconds:g} s …")
        try:
            entries.append(measure(name, given.seconds, given.out))
        except FailedError as error:
            failed = True
            say(f"  failed: {error}")
    finish("bottleneck", entries, given, block)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
