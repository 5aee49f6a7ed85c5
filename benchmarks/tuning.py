"""Settings that a search finds for a small budget of steps, beside the preset's own, under seeds that no trial had.

    python -m benchmarks.tuning --only acrobot

Two workers share a search of 24 trials. The first is killed by SIGKILL after six of them, and started again. Then the
best settings and the preset's are trained under three seeds, and 100 greedy episodes judge the final weights. A
trial's own score is the mean of 30 episodes.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import optuna
import yaml

from benchmarks.measurement import FailedError, run
from benchmarks.publishing import PAGE, say
from benchmarks.report import mean_cell, number
from benchmarks.speed import Entry, listed, measure_each, parser, stamp

HELD_OUT = (101, 102, 103)
EPISODES = 100
JUDGED_BY = 1001
"""Seed of the episodes that judge."""
TRIALS = 24
KILLED_AFTER = 6
"""Ended trials after which the first worker is killed."""
ANY = {
    "network.learning_rate": {"low": 1e-4, "high": 5e-3, "log": True},
    "algorithm.entropy_weight": [0.0, 0.001, 0.01, 0.05],
    "algorithm.gae_lambda": [0.9, 0.95, 0.98],
    "algorithm.epochs": [5, 10, 20],
}
SEARCHES: Mapping[str, Mapping[str, Any]] = {
    "acrobot": {
        "preset": "acrobot-ppo",
        "set": {
            "stop.mean_return": None,
            "stop.env_steps": 30_000,
            "evaluation.every_env_steps": 6_000,
            "evaluation.episodes": 30,
        },
        "vary": {**ANY, "actors.unroll_length_steps": [32, 64, 128]},
    },
    "pendulum": {
        "preset": "pendulum-ppo",
        "set": {
            "stop.env_steps": 100_000,
            "network.learning_rate_schedule_updates": 15_700,  # optimizer steps of this budget
            "evaluation.every_env_steps": 20_000,
            "evaluation.episodes": 30,
        },
        "vary": {**ANY, "algorithm.discount": [0.9, 0.95, 0.98]},
    },
}
"""Task -> its search."""


class Worker:
    """One `distrl tune` with a log of its own."""

    def __init__(self, target: Path, log: Path, *options: str) -> None:
        with log.open("ab") as output:
            command = [sys.executable, "-m", "distrl", "tune", str(target), *options]
            self.process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        self._log = log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End the command if the measurement fails before it has ended."""
        self.process.terminate()
        self.process.wait()

    def kill(self) -> None:
        """Kill the command; what it trains then ends by itself."""
        self.process.kill()
        self.process.wait()

    def wait(self) -> None:
        """Wait for the end.

        Raises:
            FailedError: It ended with another code than 0.
        """
        if code := self.process.wait():
            raise FailedError(f"distrl tune ended with {code}; {self._log} says why", code)


def search(name: str, out: Path) -> Path:
    """Search with two workers, of which one is killed and started again; return the search's directory.

    Raises:
        FailedError: A worker failed.
    """
    out.mkdir(parents=True, exist_ok=True)
    file, place = out / f"{name}.yaml", out / name
    if place.exists():  # an interrupted measurement goes on
        with Worker(place, out / f"{name}-1.log") as worker:
            worker.wait()
        return place
    file.write_text(yaml.safe_dump({**SEARCHES[name], "trials": TRIALS, "pruner": "median"}, sort_keys=False))
    with ExitStack() as workers:
        first = workers.enter_context(Worker(file, out / f"{name}-1.log", "--dir", str(place)))
        while not (place / "0001").exists():
            if first.process.poll() is not None:
                raise FailedError(f"the first worker has ended; {out / f'{name}-1.log'} says why")
            time.sleep(0.5)
        second = workers.enter_context(Worker(place, out / f"{name}-2.log"))
        while _ended(place) < KILLED_AFTER and second.process.poll() is None:
            time.sleep(0.5)
        first.kill()
        say(f"{name}: the first worker is killed after {_ended(place)} trials, and started again")
        workers.enter_context(Worker(place, out / f"{name}-1.log")).wait()
        second.wait()
    return place


def read(place: Path) -> optuna.Study:
    """Return the study of a search."""
    return optuna.load_study(study_name="distrl", storage=f"sqlite:///{place / 'study.db'}")


def _ended(place: Path) -> int:
    return sum(trial.state.is_finished() for trial in read(place).get_trials(deepcopy=False))


def trained(run_dir: Path, seed: int, settings: list[str]) -> float:
    """Train under this seed, unless it has been done, and return the mean return that `judged` does.

    Raises:
        FailedError: The training or the evaluation failed.
    """
    if not (run_dir / "summary.json").exists():
        run(["-m", "distrl", "train", *settings, "--seed", str(seed), "--run-dir", str(run_dir), "--quiet"])
    return judged(run_dir)


def judged(run_dir: Path, episodes: int = EPISODES) -> float:
    """Return the mean return of greedy episodes with the final weights.

    Raises:
        FailedError: The evaluation failed.
    """
    options = ["--episodes", str(episodes), "--seed", str(JUDGED_BY), "--json"]
    mean: float = json.loads(run(["-m", "distrl", "evaluate", str(run_dir), *options]))["mean_return"]
    return mean


def measure(name: str, out: Path) -> Entry:
    """Search, then train both settings under the seeds that no trial had.

    Raises:
        FailedError: Something failed.
    """
    entry: Entry = {"name": name, **stamp()}
    place = search(name, out)
    study = read(place)
    best, states = study.best_trial, [trial.state for trial in study.get_trials(deepcopy=False)]
    entry |= {
        "env_steps": SEARCHES[name]["set"]["stop.env_steps"],
        "trials": len(states),
        "pruned": states.count(optuna.trial.TrialState.PRUNED),
        "best_trial": best.number + 1,
        "best_score": best.value,
        "found": {path: json.loads(value) if isinstance(value, str) else value for path, value in best.params.items()},
    }
    settings = {"preset": [str(place / "base.yaml")], "search": [str(place / "best.yaml")]}
    for which, given in settings.items():
        folder = out / "held-out"
        entry[which] = [trained(folder / f"{name}-{which}-{seed}", seed, given) for seed in HELD_OUT]
        say(f"{name}, settings of the {which}: {', '.join(f'{mean:.1f}' for mean in entry[which])}")
    return entry


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    heads = ["Task", "Steps", "Trials", "Preset's settings", "Best settings", "What the search chose"]
    return listed(report, heads, _line)


def _line(entry: Entry) -> list[str]:
    found = ", ".join(f"`{path.rpartition('.')[2]}` {value:.3g}" for path, value in entry["found"].items())
    return [
        entry["name"],
        f"{entry['env_steps']:,}",
        f"{entry['trials']}, {entry['pruned']} of them pruned",
        *(_told(entry[which]) for which in ("preset", "search")),
        f"{found} (trial {entry['best_trial']}: {number(entry['best_score'])})",
    ]


def _told(means: list[float]) -> str:
    return f"{', '.join(map(number, means))}: {mean_cell(means)}"


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if something failed."""
    given = parser(__doc__, "tuning", list(SEARCHES), PAGE).parse_args(arguments)
    return measure_each("tuning", list(SEARCHES), measure, given, block, PAGE)


if __name__ == "__main__":
    raise SystemExit(main())
