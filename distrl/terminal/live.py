"""The live panel: how far, how fast, how well, who takes part, and what limits it."""

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from distrl.config import RunConfig
from distrl.errors import printable
from distrl.metrics.phrases import NO_EPISODE, UNKNOWN, RoleRow, return_words, role_states, verdict
from distrl.metrics.snapshot import Snapshot, amount, number
from distrl.runs.progress import Goal, History, goals
from distrl.runs.summary import Summary, closing_text, duration

MOST_ACTORS = 8
_STATE_STYLES = {"acting": "green", "training": "green", "starting": "yellow", "paused": "magenta", "stopping": "dim"}


class LiveView:
    """A panel that is redrawn in place; events scroll by above it."""

    def __init__(self, run_dir: Path | None = None, console: Console | None = None) -> None:
        self._run_dir = run_dir
        self._console = console or Console(highlight=False)
        # Without a refresh thread: the panel changes when numbers come, twice a second.
        self._live = Live(console=self._console, auto_refresh=False)
        self._history = History()
        self._began = time.monotonic()

    def update(self, snapshot: Snapshot, roles: Sequence[RoleRow], config: RunConfig) -> None:
        """Draw the panel, or redraw it."""
        self._history.add(snapshot)
        name = self._run_dir.name if self._run_dir is not None else ""
        elapsed = duration(time.monotonic() - self._began)
        if not self._live.is_started:
            self._live.start()
        self._live.update(panel(snapshot, roles, config, self._history, name=name, elapsed=elapsed), refresh=True)

    def event(self, text: str) -> None:
        """Print a line above the panel, with the time of day."""
        self._console.print(Text.assemble((time.strftime("%H:%M:%S  "), "dim"), printable(text)))

    def close(self, summary: Summary) -> None:
        """Leave the last panel where it is and print the end of the run."""
        self.stop()
        outcome, _, rest = closing_text(summary, self._run_dir).partition("\n")
        self._console.print(Text(outcome, style="bold green" if summary.exit_code == 0 else "bold red"))
        self._console.print(Text(rest), soft_wrap=True)

    def stop(self) -> None:
        """Stop redrawing and show the cursor again."""
        self._live.stop()


def panel(
    snapshot: Snapshot, roles: Sequence[RoleRow], config: RunConfig, history: History, *, name: str, elapsed: str
) -> RenderableType:
    """Return the whole panel."""
    parts: list[RenderableType] = []
    if snapshot:
        parts += [_goals(goals(snapshot, config.stop, history)), Text(), _numbers(snapshot, history)]
    else:
        parts += [Text(role_states(roles), style="yellow")]
    actors = [row for row in roles if row["role"] == "actor"]
    if actors:
        parts += [Text(), _actors(actors)]
    if snapshot:
        parts += [Text(), Text.assemble(("bottleneck  ", "dim"), verdict(snapshot))]
    title = Text.assemble(
        ("distrl", "bold cyan"), ("  ", ""), config.environment.id, ("  ·  ", "dim"), config.algorithm.name
    )
    if name:
        title.append_text(Text.assemble(("  ·  ", "dim"), name))
    foot = Text(f"{elapsed} elapsed", style="dim")
    return Panel(
        Group(*parts),
        title=title,
        title_align="left",
        subtitle=foot,
        subtitle_align="right",
        border_style="bright_black",
        padding=(1, 2),
    )


def _goals(found: Sequence[Goal]) -> RenderableType:
    if not found:
        return Text("no stop condition: runs until it is stopped", style="dim")
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(style="dim")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", style="dim", no_wrap=True, min_width=9)
    for goal in found:
        bar = ProgressBar(total=1.0, completed=goal.fraction, style="bright_black", complete_style="cyan")
        eta = UNKNOWN if goal.eta_s is None else duration(goal.eta_s)
        grid.add_row(goal.name, _amount(goal), bar, f"{int(100 * goal.fraction)} %", f"ETA {eta}")
    return grid


def _amount(goal: Goal) -> Text:
    shape = ",.0f" if goal.unit == "count" else ",.1f"
    now = UNKNOWN if goal.now is None else format(goal.now, shape)
    return Text.assemble((now, "bold"), (f" / {goal.target:{shape}}", "dim"))


def _numbers(snapshot: Snapshot, history: History) -> Table:
    grid = Table.grid(padding=(0, 2), expand=True)
    for _ in range(2):
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(ratio=1, no_wrap=True)
    steps, speed = _quantity(amount(snapshot, "env_steps")), amount(snapshot, "env_steps_per_s")
    rate = amount(snapshot, "updates_per_s")
    grid.add_row("steps", steps, "speed", _quantity(speed, unit="steps/s"))
    updates = _quantity(rate, ",.0f" if rate >= 10 else ".1f", "updates/s")
    grid.add_row("updates", _quantity(amount(snapshot, "updates")), "", updates)
    grid.add_row("episodes", _quantity(amount(snapshot, "episodes")), "queue", _queue(snapshot))
    grid.add_row("return", _returns(snapshot), "lag", _lag(snapshot))
    if number(snapshot.get("evaluation_mean_return")) is not None:
        at = amount(snapshot, "evaluation_env_steps")
        grid.add_row("greedy", _evaluation(snapshot), "of step", _quantity(at))
    spark = history.sparkline(20)
    restarts = amount(snapshot, "restarts")
    if spark or restarts:
        told = Text(f"{restarts:,.0f}", style="yellow") if restarts else ""
        grid.add_row("", Text(spark, style="cyan"), "restarts" if restarts else "", told)
    return grid


def _quantity(value: float, shape: str = ",.0f", unit: str = "") -> Text:
    return Text.assemble((format(value, shape), "bold"), (f" {unit}" if unit else "", "dim"))


def _returns(snapshot: Snapshot) -> Text:
    value, best = number(snapshot.get("mean_return_100")), number(snapshot.get("best_mean_return_100"))
    if value is None:
        return Text(NO_EPISODE, style="dim")
    return Text.assemble((return_words(value), "bold"), ("" if best is None else f"  best {return_words(best)}", "dim"))


def _evaluation(snapshot: Snapshot) -> Text:
    value, best = (amount(snapshot, name) for name in ("evaluation_mean_return", "best_evaluation_return"))
    return Text.assemble((return_words(value), "bold"), (f"  best {return_words(best)}", "dim"))


def _lag(snapshot: Snapshot) -> Text:
    mean, most = number(snapshot.get("policy_lag_mean")), number(snapshot.get("policy_lag_max"))
    if mean is None or most is None:
        return Text(UNKNOWN, style="dim")
    return Text.assemble((f"{mean:.1f}", "bold"), (f" mean · {most:,.0f} max updates", "dim"))


def _queue(snapshot: Snapshot) -> Text:
    fill = min(max(amount(snapshot, "queue_fill"), 0.0), 1.0)
    entries = amount(snapshot, "queue_entries")
    full = round(8 * fill)
    unrolls = "unroll" if entries == 1 else "unrolls"
    return Text.assemble(
        ("█" * full, "cyan"),
        ("░" * (8 - full), "bright_black"),
        f" {fill:.0%}",
        (f" · {entries:,.0f} {unrolls}", "dim"),
    )


def _actors(actors: Sequence[RoleRow]) -> RenderableType:
    table = Table(box=None, expand=True, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("actor", no_wrap=True)
    table.add_column("state", ratio=1, no_wrap=True)
    for heading in ("steps/s", "version", "last step"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in actors[:MOST_ACTORS]:
        state = Text(row["state"], style=_STATE_STYLES.get(row["state"], "yellow"))
        version = f"{row['weights_version']:,}" if row["weights_version"] else UNKNOWN
        age = f"{duration(row['last_step_age_s'])} ago"
        table.add_row(str(row["id"]), state, f"{row['env_steps_per_s']:,.0f}", version, age)
    if len(actors) <= MOST_ACTORS:
        return table
    return Group(table, Text(f"…      and {role_states(actors[MOST_ACTORS:])}", style="dim"))
