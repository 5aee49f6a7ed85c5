"""A population that changes the learning rate, beside the best of as many fixed rates, at equal environment steps.

    python -m benchmarks.populations --only 'fitting-*'

Two tasks by PPO within 100,000 steps: Pendulum, without the preset's falling learning rate, and `benchmarks.fitting`,
where a high rate is best at first and a low one later. Each repeat trains four fixed rates, and a population of four
members that begin with rates drawn by chance. Its second member is killed by SIGKILL in the middle. Of the four fixed
rates and of the four members the one with the best last evaluation is chosen, and other greedy episodes judge both.
"""

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.measurement import run
from benchmarks.publishing import PAGE, say
from benchmarks.report import mean_cell, number
from benchmarks.speed import NOTHING, Entry, heading, measure_each, parser, stamp, table
from benchmarks.tuning import Worker, judged
from distrl.runs.last_row import last_row

ENV_STEPS = 100_000
MEMBERS = 4
REPEATS = (1, 2, 3)
"""Seeds of the fixed rates, and the population's `draw_seed`."""


class Task(NamedTuple):
    """One task.

    Attributes:
        shared: Preset and settings of all its trainings.
        rates: Fixed learning rates, as many as members.
        every: Environment steps between two evaluations, and between two comparisons of a member.
        episodes: Episodes that judge.
    """

    shared: Mapping[str, Any]
    rates: tuple[float, ...]
    every: int
    episodes: int


TASKS: Mapping[str, Task] = {
    "pendulum": Task(
        {
            "preset": "pendulum-ppo",
            "set": {
                "actors.count": 1,
                "actors.environments": 16,
                "learner.batch_size": 1,
                "network.learning_rate_schedule": "constant",
                "network.learning_rate_schedule_updates": 0,
                "evaluation.every_env_steps": 10_000,
                "evaluation.episodes": 30,
                "stop.env_steps": ENV_STEPS,
            },
        },
        rates=(1e-4, 3e-4, 1e-3, 3e-3),
        every=10_000,
        episodes=100,
    ),
    "fitting": Task(
        {
            "set": {
                "environment.id": "benchmarks.fitting:Fitting",
                "algorithm.name": "ppo",
                "algorithm.discount": 0.0,
                "algorithm.gae_lambda": 0.0,
                "algorithm.epochs": 5,
                "algorithm.minibatches": 8,
                "algorithm.entropy_weight": 0.0,
                "algorithm.normalize_advantages": "batch",
                "network.optimizer_type": "Adam",
                "network.use_separate_networks_per_head": True,
                "network.middleware_parameters": {"scheme": [64, 64], "activation": "tanh"},
                "network.clip_gradients": 1.0,
                "actors.count": 1,
                "actors.environments": 32,
                "actors.unroll_length_steps": 32,
                "learner.batch_size": 1,
                "checkpoint.every_s": 2,
                "evaluation.every_env_steps": 5_000,
                "evaluation.episodes": 500,
                "evaluation.environments": 50,
                "stop.env_steps": ENV_STEPS,
            },
        },
        rates=(3e-4, 1e-3, 3e-3, 1e-2),
        every=5_000,
        episodes=2_000,
    ),
}
NAMES = [f"{task}-{repeat}" for task in TASKS for repeat in REPEATS]


def fixed(task: Task, repeat: int, out: Path) -> Mapping[float, Path]:
    """Train the fixed rates; return rate -> run.

    Raises:
        FailedError: A training failed.
    """
    file, place = out.with_name(f"{out.name}-fixed.yaml"), out.with_name(f"{out.name}-fixed")
    sweep = {**task.shared, "vary": {"network.learning_rate": list(task.rates)}, "seeds": [repeat]}
    file.write_text(yaml.safe_dump(sweep, sort_keys=False))
    target = [str(place)] if place.exists() else [str(file), "--dir", str(place)]
    run(["-m", "distrl", "sweep", *target])
    return {rate: place / f"{order:04}" for order, rate in enumerate(task.rates, 1)}


def population(task: Task, repeat: int, out: Path) -> Path:
    """Train the members and kill one of them on the way; return the population's directory.

    Raises:
        FailedError: It failed.
    """
    file, place, log = (out.with_name(f"{out.name}{ending}") for ending in (".yaml", "", ".log"))
    search = {
        **task.shared,
        "vary": {"network.learning_rate": {"low": 1e-5, "high": 1e-2, "log": True}},
        "population": {"every_env_steps": task.every},
        "draw_seed": repeat,
    }
    file.write_text(yaml.safe_dump(search, sort_keys=False))
    goes_on = place.exists()  # an interrupted measurement, whose member has been killed
    target = [place] if goes_on else [file, "--dir", place, "--population", MEMBERS]
    with Worker(target[0], log, *map(str, target[1:])) as worker:
        victim = place / "0002"
        while not goes_on and worker.process.poll() is None:
            if (last_row(victim / "metrics.csv").get("env_steps") or 0) >= ENV_STEPS // 2:
                os.kill(json.loads((victim / "run.json").read_text())["pid"], signal.SIGKILL)
                break
            time.sleep(0.2)
        worker.wait()
    return place


def measure(name: str, out: Path) -> Entry:
    """Train both and judge the best of each.

    Raises:
        FailedError: Something failed.
    """
    out.mkdir(parents=True, exist_ok=True)
    kind, _, repeat = name.partition("-")
    task, entry = TASKS[kind], {"name": name, **stamp()}
    by_rate = fixed(task, int(repeat), out / name)
    best_rate = max(by_rate, key=lambda rate: _summary(by_rate[rate])["evaluation_mean_return"])
    entry |= {
        "rates": {f"{rate:g}": judged(path, task.episodes) for rate, path in by_rate.items()},
        "best_rate": f"{best_rate:g}",
    }
    place = population(task, int(repeat), out / name)
    record = json.loads((place / "population.json").read_text())
    summaries = {name: _summary(place / name) for name in record["members"]}
    best = max(summaries, key=lambda name: summaries[name]["evaluation_mean_return"])
    own = [lesson for lesson in record["lessons"] if lesson["member"] == best]
    rates = [lesson["before"]["network.learning_rate"] for lesson in own]
    entry |= {
        "member": judged(place / best, task.episodes),
        "member_rates": [*rates, record["members"][best]["values"]["network.learning_rate"]],
        "lessons": len(record["lessons"]),
        "env_steps": sum(summary["env_steps"] for summary in summaries.values()),
        "imbalances": [summary["imbalance"] for summary in summaries.values()],
        "was_killed": "0002: killed by signal 9; it goes on" in place.with_suffix(".log").read_text(),
    }
    say(f"{name}: fixed {entry['rates'][entry['best_rate']]:.1f}, member {best} {entry['member']:.1f}")
    return entry


def _summary(run_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run_dir / "summary.json").read_text())
    return found


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page: a table for each task, with a last line that sums the repeats up."""
    if not report["results"]:
        return NOTHING
    tables = []
    for name, task in TASKS.items():
        entries = [entry for entry in report["results"] if entry["name"].startswith(f"{name}-")]
        if entries:
            tables.append(_table(task, entries))
    return "\n\n".join([heading(report), *tables])


def _table(task: Task, entries: Sequence[Entry]) -> str:
    heads = ["Repeat", *(f"Fixed {rate:g}" for rate in task.rates), "Chosen of these", "Population's best member"]
    columns = [[entry["rates"][f"{rate:g}"] for entry in entries] for rate in task.rates]
    columns += [[_chosen(entry) for entry in entries], [entry["member"] for entry in entries]]
    last = ["Interquartile mean", *(mean_cell(column, _told) for column in columns), "", ""]
    return table([*heads, "Its learning rates", "Lessons of all"], [*map(_line, entries), last])


def _line(entry: Entry) -> list[str]:
    return [
        entry["name"],
        *(_told(score) for score in entry["rates"].values()),
        f"{_told(_chosen(entry))} ({entry['best_rate']})",
        _told(entry["member"]),
        " → ".join(f"{rate:.2g}" for rate in entry["member_rates"]),
        str(entry["lessons"]),
    ]


def _told(score: float) -> str:
    """Format a score; near 0, where the best ones of `fitting` are, with more digits."""
    return number(score) if abs(score) >= 1.0 else f"{score:.4f}".replace("-", "−")


def _chosen(entry: Entry) -> float:
    score: float = entry["rates"][entry["best_rate"]]
    return score


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if something failed."""
    given = parser(__doc__, "populations", NAMES, PAGE).parse_args(arguments)
    return measure_each("populations", NAMES, measure, given, block, PAGE)


if __name__ == "__main__":
    raise SystemExit(main())
