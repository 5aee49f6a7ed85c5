"""Trainings whose episodes are played by a run's actors, by `distrl.Agent`, and by clients of `distrl serve --learn`.

    python -m benchmarks.clients
    python -m benchmarks.clients --only 'masked-*' --seeds 1

Each task has one configuration and one budget of environment steps, whichever way its episodes are played;
`benchmarks.client_training` plays them where a run's actors do not. The last step of the budget ends a training, not
the return that it reaches. A training that fails scores below all others; one by an agent or by clients also fails if
the accounts of its unrolls are not exact.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from benchmarks.client_training import CLIENTS
from benchmarks.measurement import Result
from benchmarks.publishing import measure_and_report, parser
from benchmarks.report import heading, interval_cell, missing, number, read_report, seed_cells, table
from benchmarks.table import Row
from distrl.apps.reports.intervals import interval

MASKED = "distrl.environments.worlds.toy:Masked"
OWN = ("-m", "benchmarks.client_training")
WAYS = {
    "actors": ("a run of actors", ("-m", "distrl", "train")),
    "agent": ("`distrl.Agent`, one loop", (*OWN, "agent")),
    "http": (f"`distrl serve --learn`, {CLIENTS} clients by HTTP", (*OWN, "http")),
    "websocket": (f"`distrl serve --learn`, {CLIENTS} clients by WebSocket", (*OWN, "websocket")),
}
"""Last part of the rows' names -> words, and program."""


class Task(NamedTuple):
    """A task and its configuration.

    Attributes:
        shown: Its name in the table.
        best: The best return that there is; None: unknown.
    """

    shown: str
    preset: str
    env_steps: int
    best: float | None
    sets: tuple[str, ...] = ()


TASKS = {
    "cartpole": Task("CartPole-v1", "cartpole-appo", 100_000, 500.0),
    "masked": Task(
        "12 choices of which a mask allows two",
        "frozenlake-ppo",
        20_000,
        16.0,
        (
            f"environment.id={MASKED}",
            "environment.kwargs={n: 12, length_steps: 16}",
            "network.heads_parameters=[{kind: ppo, action_mask: action_mask}]",
            "actors.environments=8",
        ),
    ),
    "pendulum": Task("Pendulum-v1", "pendulum-sac", 16_000, None),
}
"""First part of the rows' names -> task."""

ROWS = tuple(
    Row(
        f"{name}-{way}",
        task.preset,
        task.shown,
        words,
        None,
        task.env_steps,
        sets=("stop.mean_return=null", *task.sets),
        program=program,
    )
    for name, task in TASKS.items()
    for way, (words, program) in WAYS.items()
)


def block(report: Path) -> str:
    """Return the part of `docs/results.md`."""
    tree, rows, by_row = read_report(report)
    if not tree["results"]:
        return heading(tree, by_row)
    seeds = tree["seeds"]
    heads = ["Task", "Steps", "Played by", *(f"Seed {seed}" for seed in seeds)]
    lines = []
    for row in rows:
        *each, _ = seed_cells(by_row[row.name], seeds)
        scores = interval_cell([result.score for result in by_row[row.name]])
        lines.append([row.task, f"{row.env_steps:,}", row.algorithm, *each, scores])
    told = [f"- {verdict(name, by_row, seeds, tree['random'])}" for name in TASKS]
    parts = [heading(tree, by_row), table([*heads, "Interquartile mean and interval"], lines), "\n".join(told)]
    return "\n\n".join(parts)


def verdict(
    name: str, by_row: Mapping[str, Sequence[Result]], seeds: Sequence[int], random: Mapping[str, float]
) -> str:
    """Return in words whether the intervals of all ways to play a task overlap, and how far ways of a seed lie apart.

    Args:
        random: Task -> mean return of random actions.
    """
    task = TASKS[name]
    known = [] if task.best is None else [f"the best return is {number(task.best)}"]
    known += [f"random actions return {number(random[task.shown])}"] if task.shown in random else []
    named = f"{task.shown} by `{task.preset}`" + (f" ({', '.join(known)})" if known else "")
    measured = {way: by_row.get(f"{name}-{way}", ()) for way in WAYS}
    if any(missing(results, seeds) for results in measured.values()):
        return f"{named}: **incomplete.**"
    found = {way: interval([result.score for result in results]) for way, results in measured.items()}
    apart = [f"{one} and {two}" for one, two in combinations(WAYS, 2) if not found[one].overlaps(found[two])]
    told = f"**apart: {', '.join(apart)}**" if apart else "the intervals of all four overlap"
    by_seed = [[result.score for results in measured.values() for result in results if result.seed == s] for s in seeds]
    if min(map(min, by_seed)) == -math.inf:
        return f"{named}: {told}."
    most = max(max(scores) - min(scores) for scores in by_seed)
    return f"{named}: {told}; under the same seed, ways differ by up to {number(most)}."


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if something failed."""
    given = parser((__doc__ or "").splitlines()[0], "clients").parse_args(arguments)
    return measure_and_report("clients", ROWS, given, block)


if __name__ == "__main__":
    raise SystemExit(main())
