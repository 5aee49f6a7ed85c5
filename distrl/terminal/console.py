"""Views of a run in a terminal: a live panel, or plain lines where stdout is not a terminal."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

from distrl.config import RunConfig
from distrl.config.presets import nearest
from distrl.errors import ConfigError, printable_lines
from distrl.metrics.phrases import NO_EPISODE, RoleRow, return_words, role_states
from distrl.metrics.snapshot import METRICS, Snapshot, amount, number
from distrl.runs.progress import History, goals
from distrl.runs.summary import Summary, closing_text, duration


class View(Protocol):
    """The interface by which a run reports to its user."""

    def update(self, snapshot: Snapshot, roles: Sequence[RoleRow], config: RunConfig) -> None:
        """Take the newest numbers (empty before the first) and heartbeats, about twice a second."""

    def event(self, text: str) -> None:
        """Take one line about an event."""

    def close(self, summary: Summary) -> None:
        """Show the end of the run."""

    def stop(self) -> None:
        """Give the terminal back, however the run ended; a second call does nothing."""


class QuietView:
    """Only events and the final summary, a line at a time, to standard output or `write`."""

    def __init__(self, run_dir: Path | None = None, write: Callable[[str], None] | None = None) -> None:
        self._run_dir = run_dir
        self._write = write or _print

    def update(self, snapshot: Snapshot, roles: Sequence[RoleRow], config: RunConfig) -> None:
        pass

    def event(self, text: str) -> None:
        self._write(text)

    def close(self, summary: Summary) -> None:
        self._write(closing_text(summary, self._run_dir))

    def stop(self) -> None:
        pass


class PlainView(QuietView):
    """One line every `every_s` seconds, and one per event.

    Args:
        dated: Begin lines with date and time, not with the time since the start.
    """

    def __init__(
        self,
        run_dir: Path | None = None,
        *,
        every_s: float = 5.0,
        dated: bool = False,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(run_dir, write)
        self._every_s = every_s
        self._dated = dated
        self._clock = clock
        self._began = clock()
        self._next = self._began
        self._begun = False  # whether numbers have been shown
        self._history = History()

    def update(self, snapshot: Snapshot, roles: Sequence[RoleRow], config: RunConfig) -> None:
        """Write a line when one is due; the first one, and the first one with numbers, at once."""
        self._history.add(snapshot)
        now = self._clock()
        begins = bool(snapshot) and not self._begun
        if now < self._next and not begins:
            return
        self._begun = self._begun or begins
        self._next = now + self._every_s
        self.event(line(snapshot, config, self._history) if snapshot else role_states(roles))

    def event(self, text: str) -> None:
        passed = f"{duration(self._clock() - self._began):>7} "
        now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        super().event(f"{now if self._dated else passed} {text}")


class UntilGoneView:
    """A view whose terminal or pipe may close: the run goes on, and its events are in logs/events.log."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._gone = False

    def update(self, snapshot: Snapshot, roles: Sequence[RoleRow], config: RunConfig) -> None:
        self._show(lambda: self._view.update(snapshot, roles, config))

    def event(self, text: str) -> None:
        self._show(lambda: self._view.event(text))

    def close(self, summary: Summary) -> None:
        self._show(lambda: self._view.close(summary))

    def stop(self) -> None:
        self._show(self._view.stop)

    def _show(self, show: Callable[[], None]) -> None:
        if self._gone:
            return
        try:
            show()
        except OSError:
            self._gone = True
            # What is left in Python's buffer would fail once more when the process ends.
            with suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), sys.stdout.fileno())


SLOW_S = 10.0
"""Time after which a listener that has not returned is reported."""
Listener = Callable[[Snapshot], object]
"""Takes a snapshot, a mapping of names in `metrics.snapshot.METRICS` to values. If it returns False, the run ends."""


class ListenedView:
    """A view, and listeners that get each snapshot once. What a listener raises ends the run, and is raised on.

    Snapshots that follow each other within half a second may be skipped; the last one is not. All have the names of
    `METRICS`, and those that earlier ones had.

    Args:
        stop: Called when a listener returns False.
    """

    def __init__(self, view: View, listeners: Sequence[Listener], stop: Callable[[], None]) -> None:
        self._view = view
        self._listeners = listeners
        self._stop = stop
        self._last: tuple[object, object] | None = None
        self._names = dict.fromkeys(metric.name for metric in METRICS)
        self.event, self.close, self.stop = view.event, view.close, view.stop

    def update(self, snapshot: Snapshot, roles: Sequence[RoleRow], config: RunConfig) -> None:
        """Update the view, then call the listeners if the snapshot is new."""
        self._view.update(snapshot, roles, config)
        identity = snapshot.get("wall_s"), snapshot.get("stop_reason")
        if not snapshot or identity == self._last:  # numbers of roles may have changed since
            return
        self._last = identity
        self._names |= dict.fromkeys(snapshot)
        for listener in self._listeners:
            with self._reported_if_slow(listener):
                goes_on = listener({**self._names, **snapshot}) is not False
            if not goes_on:
                self._stop()

    @contextmanager
    def _reported_if_slow(self, listener: Listener) -> Iterator[None]:
        """Report from another thread that a listener has not returned: the run waits for it with all else."""
        name = getattr(listener, "__qualname__", type(listener).__qualname__)
        told = (
            f"the callback {name} has not returned for {SLOW_S:g} s: until it does, no role is watched or started "
            "again; a second Ctrl-C does not wait for it"
        )
        timer = threading.Timer(SLOW_S, self.event, [told])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


VIEWS = ("auto", "plain", "quiet", "silent")
"""Names of views: the live panel in a terminal and plain lines elsewhere; plain lines; events and the end; nothing."""


def named_view(name: str, run_dir: Path | None = None) -> View:
    """Return the view of that name, or raise ConfigError."""
    if name not in VIEWS:
        raise ConfigError(f"view {name!r}: {nearest(name, [*VIEWS])}")
    if name == "silent":
        return QuietView(run_dir, write=lambda line: None)
    return make_view(plain=name == "plain", quiet=name == "quiet", run_dir=run_dir)


def make_view(*, plain: bool = False, quiet: bool = False, dated: bool = False, run_dir: Path | None = None) -> View:
    """Return the live panel in a terminal, and plain lines elsewhere or on request."""
    if quiet:
        return UntilGoneView(QuietView(run_dir))
    if plain or dated or not sys.stdout.isatty():
        return UntilGoneView(PlainView(run_dir, dated=dated))
    # Imported here: rich costs time that plain lines need not pay.
    from distrl.terminal.live import LiveView

    return UntilGoneView(LiveView(run_dir))


def line(snapshot: Snapshot, config: RunConfig, history: History) -> str:
    """Format a snapshot as one line: steps, speed, return, updates, lag, queue, actors, bottleneck, time to go."""
    stop = config.stop
    steps, speed = amount(snapshot, "env_steps"), amount(snapshot, "env_steps_per_s")
    budget = f" of {stop.env_steps:,}" if stop.env_steps is not None else ""
    parts = [f"steps {steps:,.0f}{budget} · {speed:,.0f}/s"]
    value = number(snapshot.get("mean_return_100"))
    target = f" of {return_words(stop.mean_return)}" if stop.mean_return is not None else ""
    if not config.learns_from_data:
        parts.append(NO_EPISODE if value is None else f"return {return_words(value)}{target}")
    greedy = number(snapshot.get("evaluation_mean_return"))
    if greedy is not None:
        target = f" of {return_words(stop.evaluation_return)}" if stop.evaluation_return is not None else ""
        parts.append(f"greedy {return_words(greedy)}{target}")
    parts.append(f"updates {number(snapshot.get('updates')) or 0.0:,.0f}")
    mean, most = number(snapshot.get("policy_lag_mean")), number(snapshot.get("policy_lag_max"))
    if mean is not None and most is not None:
        parts.append(f"lag {mean:.1f} max {most:,.0f}")
    if not config.learns_from_data:
        parts.append(f"queue {number(snapshot.get('queue_fill')) or 0.0:.0%}")
        parts.append(f"actors {number(snapshot.get('actors_up')) or 0.0:.0f}/{config.actors.count}")
    if snapshot.get("bottleneck") not in (None, "-"):
        parts.append(f"bottleneck {snapshot['bottleneck']}")
    etas = [goal.eta_s for goal in goals(snapshot, config.stop, history) if goal.eta_s is not None]
    if etas:
        parts.append(f"about {duration(min(etas))} to go")
    return " · ".join(parts)


def _print(text: str) -> None:
    print(printable_lines(text), flush=True)  # a log that lags behind its run is of no use
