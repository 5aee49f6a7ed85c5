"""The output of `distrl status` and `distrl bench`."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from distrl.errors import printable
from distrl.memory_backend.records import RoleStatus
from distrl.metrics.phrases import NO_EPISODE, UNKNOWN, lost_words, return_words, used_words, waiting_words
from distrl.metrics.snapshot import Snapshot, amount, number
from distrl.role_kinds import KINDS
from distrl.runs.reading import SILENT_S, Reading
from distrl.runs.summary import duration

_ORDER = [*KINDS]


def print_status(run_id: str, found: Reading) -> None:
    """Print a live run: requests of operators, progress, roles with the ages of their heartbeats, all unrolls."""
    control, counts, supervisor, snapshot = found.control, found.counts, found.supervisor, found.latest
    console = Console(highlight=False)
    asked = f"stopping ({control.stop})" if control.stop is not None else "paused" if control.paused else "running"
    autoscales = supervisor is not None and supervisor.autoscales
    fixed = None if autoscales else control.target_actors
    target = ", autoscaling" if autoscales else "" if fixed is None else f", {fixed} actors requested"
    console.print(Text.assemble((printable(run_id), "bold"), printable(f"  {asked}{target}")))
    if not snapshot:
        console.print("no update yet")
    else:
        console.print(Text(printable(_progress(snapshot))))
    if supervisor is not None and supervisor.actors_wanted is not None:
        console.print(Text(printable(f"actors wanted: {supervisor.actors_wanted} ({supervisor.wanted_because})")))
    if found.roles:
        console.print(_roles([*zip(found.roles, found.ages_s, strict=True)]))
    for line in _gpus(found.roles):
        console.print(Text(line))
    dropped = sum(counts.dropped.values())
    console.print(
        f"unrolls: {counts.produced + counts.foreign:,} produced, {used_words(counts.trained, counts.stored)}, "
        f"{counts.queued:,} queued, {counts.in_flight:,} in flight, {dropped:,} dropped, "
        f"{lost_words(counts.lost, counts.lost_to_failover)}"
        + (f"; fail-overs of Redis: {counts.failovers:,}" if counts.failovers else "")
    )


def _gpus(roles: Sequence[RoleStatus]) -> list[str]:
    """Return a line for each GPU that a role computes on, with the load of all its users."""
    loads = [(role, gpu) for role in roles if role.machine is not None for gpu in role.machine.gpus]
    return [
        f"GPU of the {role.name}: {printable(gpu.name)}, {gpu.busy_share:.0%} busy, "
        f"{gpu.memory_used_mb:,.0f} of {gpu.memory_mb:,.0f} MB used"
        for role, gpu in loads
    ]


def print_bench(report: Mapping[str, Any]) -> None:
    """Print the limit of this machine, and how much of it the pipeline reached."""
    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    for heading in ("", "µs per step", "steps/s on one core"):
        table.add_column(heading, justify="left" if not heading else "right")
    for part, key in (("environment", "env"), ("policy", "policy"), ("learner", "learner")):
        seconds = float(report[f"{key}_s_per_step"])
        table.add_row(part, f"{1e6 * seconds:.3f}", f"{1 / seconds:,.0f}" if seconds > 0 else UNKNOWN)
    console.print(table)
    console.print(
        f"\nlimit     {report['limit_steps_per_s']:>12,.0f} steps/s if every core did nothing else\n"
        f"measured  [bold]{report['env_steps_per_s']:>12,.0f}[/] steps/s end to end, while learning\n"
        f"ratio     {report['ratio']:>12.0%}"
    )
    lag = report["policy_lag"]
    if lag["mean"] is not None:
        console.print(f"lag       {lag['mean']:>12.1f} updates mean, p95 {lag['p95']:,.0f}, max {lag['max']:,.0f}")
    waits = waiting_words(report.get("learner_idle_share"), report.get("actors_blocked_share"))
    if waits:
        console.print(f"waits     {waits}")
    console.print(f"verdict   bottleneck: {report['verdict']}")


def _progress(snapshot: Snapshot) -> str:
    value = number(snapshot.get("mean_return_100"))
    count = {name: amount(snapshot, name) for name in ("env_steps", "env_steps_per_s", "updates")}
    told = NO_EPISODE if value is None else f"return {return_words(value)}"
    greedy = number(snapshot.get("evaluation_mean_return"))
    told += "" if greedy is None else f" · greedy {return_words(greedy)}"
    waits = waiting_words(*(number(snapshot.get(name)) for name in ("learner_wait_share", "actors_blocked_share")))
    return (
        f"steps {count['env_steps']:,.0f} · {count['env_steps_per_s']:,.0f}/s · updates {count['updates']:,.0f} "
        f"· {told} · bottleneck {snapshot.get('bottleneck') or '-'}" + (f" · waits: {waits}" if waits else "")
    )


def _roles(aged: Sequence[tuple[RoleStatus, float]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("role", no_wrap=True)
    table.add_column("state", min_width=8)  # a narrow terminal breaks it between words
    for heading in ("steps/s", "version", "step", "silent", "MB", "starts", "pid"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("host")
    for role, heartbeat_s in sorted(aged, key=lambda one: (_ORDER.index(one[0].role), one[0].id)):
        age = duration(role.last_step_age_s)
        rate, version = f"{role.env_steps_per_s:,.0f}", f"{role.weights_version:,}"
        starts = f"{role.incarnation}"
        told = Text(duration(heartbeat_s), style="red" if heartbeat_s > SILENT_S else "")
        state, host = Text(printable(role.state)), Text(printable(role.host))
        table.add_row(role.name, state, rate, version, age, told, f"{role.rss_mb:,.0f}", starts, str(role.pid), host)
    return table
