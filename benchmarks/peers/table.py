"""The table: medians of all runs, distrl against the best peer, and failures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.peers.contenders import CONTENDERS, TASKS, Contender
from benchmarks.peers.results import Measured, median

COLUMNS = (
    "CartPole-v1, steps/s",
    "HalfCheetah-v5, steps/s",
    "return after {halfcheetah:g} s",
    "Pong 84×84×4, skip 4, steps/s",
    "first update after",
    "CartPole ≥ 475",
    "memory (PSS)",
)
Figure = Callable[[Measured], float | None]
FIGURES: tuple[tuple[str, Figure, Callable[[float], str], bool], ...] = (
    ("cartpole", lambda one: one.steps_per_s, lambda value: f"{value:,.0f}", True),
    ("halfcheetah", lambda one: one.steps_per_s, lambda value: f"{value:,.0f}", True),
    ("halfcheetah", lambda one: one.mean_return, lambda value: f"{value:,.0f}", True),
    ("pong", lambda one: one.steps_per_s, lambda value: f"{value:,.0f}", True),
    ("cartpole", lambda one: one.first_update_s, lambda value: f"{value:.1f} s", False),
    ("solve", lambda one: one.solved_s, lambda value: f"{value:.1f} s", False),
    ("cartpole", lambda one: one.pss_bytes, lambda value: f"{value / 1e9:.2f} GB", False),
)
"""Columns: task, figure, format, and whether more is better."""


def table(results: Sequence[Measured], seconds: dict[str, float]) -> str:
    """Return Markdown: a row for each measured contender, then distrl against the best peer, then the failures.

    Args:
        results: Results of every contender, task and repetition.
        seconds: Task -> duration of a run.
    """
    heads = [column.format(**seconds) for column in COLUMNS]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    measured = [contender for contender in CONTENDERS if any(one.contender == contender.name for one in results)]
    for contender in measured:
        lines.append(f"| {contender.label} | {' | '.join(cells(contender, results, seconds))} |")
    for contender in measured:
        if contender.ours and any(not other.ours for other in measured):
            lines.append(f"| *{contender.label} / best peer* | {' | '.join(ratios(contender, measured, results))} |")
    return "\n".join([*lines, *failures(results)])


def cells(contender: Contender, results: Sequence[Measured], seconds: dict[str, float]) -> list[str]:
    """Return a cell for each column: "–" if not measured, "18,400 (1)" if there are fewer runs than of others."""
    found = []
    most = max(one.repetition for one in results)
    for task, figure, written, _ in FIGURES:
        runs = _of(contender, task, results)
        well = [one for one in runs if one.failure is None]
        value = median(well, figure)
        if task == "solve" and well:
            found.append(_solved(well, written, seconds[task]))
        elif value is not None:
            found.append(written(value) + (f" ({len(well)})" if len(well) < most else ""))
        else:
            found.append("failed" if runs and not well else "–")
    return found


def _solved(well: Sequence[Measured], written: Callable[[float], str], seconds: float) -> str:
    """Return the times of all repetitions, as their spread matters."""
    told = [f"not in {seconds:g} s" if one.solved_s is None else written(one.solved_s) for one in well]
    return " / ".join(told)


def ratios(ours: Contender, measured: Sequence[Contender], results: Sequence[Measured]) -> list[str]:
    """Return our median over the best median among the peers for each column: '1.62×'."""
    found = []
    for task, figure, _, more_is_better in FIGURES:
        mine = _all_well(ours, task, results, figure)
        peers = [_all_well(peer, task, results, figure) for peer in measured if not peer.ours]
        known = [value for value in peers if value is not None]
        best = (max if more_is_better else min)(known) if known else None
        found.append("–" if mine is None or not best or best < 0 else f"{mine / best:.2f}×")
    return found


def _all_well(contender: Contender, task: str, results: Sequence[Measured], figure: Figure) -> float | None:
    """Return the median if every run succeeded and has the figure: one success of three has no typical time."""
    runs = _of(contender, task, results)
    return median(runs, figure) if all(one.failure is None and figure(one) is not None for one in runs) else None


def _of(contender: Contender, task: str, results: Sequence[Measured]) -> list[Measured]:
    return [one for one in results if (one.contender, one.task) == (contender.name, task)]


def failures(results: Sequence[Measured]) -> list[str]:
    """Return a line for each failed contender and task, with the last line of its output."""
    found: dict[tuple[str, str], list[Measured]] = {}
    for one in results:
        if one.failure is not None:
            found.setdefault((one.contender, one.task), []).append(one)
    told = [f"- {name}, {task}: failed {len(runs)} times: {runs[-1].failure}" for (name, task), runs in found.items()]
    return ["", *told] if told else []


def report(results: Sequence[Measured], seconds: dict[str, float], commands: str) -> dict[str, Any]:
    """Return the content of `peers.json`: every run, and their table."""
    conditions = sorted({f"{one.machine}, {one.date}, distrl {one.commit}" for one in results})
    return {
        "command": commands,
        "conditions": conditions,
        "highest_load_before_a_run": max((one.load for one in results), default=0.0),
        "seconds": {name: seconds[name] for name in TASKS if name in seconds},
        "table": table(results, seconds).splitlines(),
        "results": [asdict(one) for one in results],
    }


def block(told: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    most = max(one["repetition"] for one in told["results"])
    where, load = "; ".join(told["conditions"]), told["highest_load_before_a_run"]
    how = f"Medians of {most} runs, of fewer where a number in brackets says so; load before a run: {load:.1f} at most."
    return "\n".join([f"`{told['command']}` on {where}. {how}", "", *told["table"]])
