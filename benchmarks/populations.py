"""A population that changes the learning rate, beside the best of as many fixed rates, at equal environment steps.

    python -m benchmarks.populations --only 1

Pendulum by PPO within 100,000 steps, without the preset's falling learning rate: a high rate is best at first, and a
low one later. Each repeat trains four fixed rates, and a population of four members that begin with rates drawn by
chance. Its second member is killed by SIGKILL in the middle. Of the four fixed rates and of the four members the one
with the best last evaluation is chosen, and 100 greedy episodes of another seed judge both.
"""

import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measurement import FailedError, run
from benchmarks.publishing import PAGE, say
from benchmarks.report import interval_cell, number
from benchmarks.speed import Entry, chosen, finish, listed, parser, stamp
from benchmarks.tuning import Worker, judged
from distrl.runs.last_row import last_row

ENV_STEPS = 100_000
RATES = (1e-4, 3e-4, 1e-3, 3e-3)
MEMBERS = len(RATES)
SHARED: Mapping[str, Any] = {
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
}
REPEATS = ("1", "2", "3")
"""Names of the repeats: the seed of the fixed rates, and the draw_seed of the population."""


def fixed(repeat: str, out: Path) -> Mapping[float, Path]:
    """Train the fixed rates; return rate -> run.

    Raises:
        FailedError: A training failed.
    """
    file, place = out / f"fixed-{repeat}.yaml", out / f"fixed-{repeat}"
    sweep = {**SHARED, "vary": {"network.learning_rate": list(RATES)}, "seeds": [int(repeat)]}
    file.write_text(yaml.safe_dump(sweep, sort_keys=False))
    target = [str(place)] if place.exists() else [str(file), "--dir", str(place)]
    run(["-m", "distrl", "sweep", *target])
    return {rate: place / f"{order:04}" for order, rate in enumerate(RATES, 1)}


def population(repeat: str, out: Path) -> Path:
    """Train the members and kill one of them on the way; return the population's directory.

    Raises:
        FailedError: It failed.
    """
    file, place, log = (out / f"population-{repeat}{ending}" for ending in (".yaml", "", ".log"))
    search = {
        **SHARED,
        "vary": {"network.learning_rate": {"low": 1e-5, "high": 1e-2, "log": True}},
        "population": {"every_env_steps": 10_000},
        "draw_seed": int(repeat),
    }
    file.write_text(yaml.safe_dump(search, sort_keys=False))
    target = [place] if place.exists() else [file, "--dir", place, "--population", MEMBERS]
    worker = Worker(target[0], log, *map(str, target[1:]))
    victim = place / "0002"
    while worker.process.poll() is None and (last_row(victim / "metrics.csv").get("env_steps") or 0) < ENV_STEPS // 2:
        time.sleep(0.2)
    if worker.process.poll() is None:
        os.kill(json.loads((victim / "run.json").read_text())["pid"], signal.SIGKILL)
    worker.wait()
    return place


def measure(repeat: str, out: Path) -> Entry:
    """Train both and judge the best of each.

    Raises:
        FailedError: Something failed.
    """
    out.mkdir(parents=True, exist_ok=True)
    entry: Entry = {"name": repeat, **stamp()}
    by_rate = fixed(repeat, out)
    best_rate = max(by_rate, key=lambda rate: _summary(by_rate[rate])["evaluation_mean_return"])
    entry |= {"rates": {f"{rate:g}": judged(path) for rate, path in by_rate.items()}, "best_rate": f"{best_rate:g}"}
    place = population(repeat, out)
    record = json.loads((place / "population.json").read_text())
    summaries = {name: _summary(place / name) for name in record["members"]}
    best = max(summaries, key=lambda name: summaries[name]["evaluation_mean_return"])
    own = [lesson for lesson in record["lessons"] if lesson["member"] == best]
    rates = [lesson["before"]["network.learning_rate"] for lesson in own]
    entry |= {
        "member": judged(place / best),
        "member_rates": [*rates, record["members"][best]["values"]["network.learning_rate"]],
        "lessons": len(record["lessons"]),
        "env_steps": sum(summary["env_steps"] for summary in summaries.values()),
        "imbalances": [summary["imbalance"] for summary in summaries.values()],
        "was_killed": "0002: killed by signal 9; it goes on" in place.with_suffix(".log").read_text(),
    }
    say(f"repeat {repeat}: fixed {entry['rates'][entry['best_rate']]:.1f}, member {best} {entry['member']:.1f}")
    return entry


def _summary(run_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run_dir / "summary.json").read_text())
    return found


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page, with a last line that sums the repeats up."""
    heads = ["Repeat", *(f"Fixed {rate:g}" for rate in RATES), "Chosen of these", "Population's best member"]
    entries = report["results"]
    text = listed(report, [*heads, "Its learning rates", "Lessons of all"], _line)
    if not entries:
        return text
    columns = [[entry["rates"][f"{rate:g}"] for entry in entries] for rate in RATES]
    columns += [[_chosen(entry) for entry in entries], [entry["member"] for entry in entries]]
    means = [interval_cell(column) for column in columns]
    return f"{text}\n| {' | '.join(['Interquartile mean [95 %]', *means, '', ''])} |"


def _line(entry: Entry) -> list[str]:
    return [
        entry["name"],
        *(number(score) for score in entry["rates"].values()),
        f"{number(_chosen(entry))} ({entry['best_rate']})",
        number(entry["member"]),
        " → ".join(f"{rate:.2g}" for rate in entry["member_rates"]),
        str(entry["lessons"]),
    ]


def _chosen(entry: Entry) -> float:
    score: float = entry["rates"][entry["best_rate"]]
    return score


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if something failed."""
    given = parser(__doc__, "populations", REPEATS, PAGE).parse_args(arguments)
    repeats = chosen(REPEATS, given.only)
    entries: list[Entry] = []
    for repeat in repeats:
        try:
            entries.append(measure(repeat, given.out))
        except FailedError as error:
            say(f"failed: repeat {repeat}: {error}")
    if entries:
        finish("populations", entries, given, block, PAGE)
    return int(len(entries) < len(repeats))


if __name__ == "__main__":
    raise SystemExit(main())
