"""The path of a run's records: from Redis, or the learner in this process, to all observers of the run."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from distrl.config import RunConfig
from distrl.config.settings import Settings
from distrl.errors import printable
from distrl.launch.changes import Changes, evaluation_text
from distrl.launch.totals import Totals
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.ledger import LedgerCounts
from distrl.memory_backend.records import RoleStatus
from distrl.observers import OBSERVERS
from distrl.observers.fleet_state import FleetState
from distrl.observers.observer import ObservedRun, Observer
from distrl.runs.summary import Summary
from distrl.terminal.console import View

P = ParamSpec("P")
T = TypeVar("T")


class Monitor:
    """Passes what is new of a run to its observers while the run lasts.

    Args:
        resumed: Whether this launch goes on from a checkpoint of an earlier one.
        observers: Are called in this order.

    Attributes:
        fleet: What the supervisor knows of the roles.
        ledger: Newest counts of unrolls.

    Raises:
        ConfigError, OSError: An observer cannot open its files.
    """

    def __init__(
        self,
        run_id: str,
        run_dir: Path,
        config: RunConfig,
        view: View,
        *,
        resumed: bool = False,
        observers: Sequence[type[Observer]] = OBSERVERS,
    ) -> None:
        self.totals = Totals()
        self.fleet = FleetState(config.actors.count)
        self.ledger = LedgerCounts()
        self._view = view
        self._changes = Changes()
        self._read_up_to: dict[str, str] = {}  # kind of record -> id of the newest one that was read
        self._refused: set[str | None] = set()  # files that could not be written the last time
        self._observers: list[Observer] = [self.totals]
        run = ObservedRun(run_id, run_dir, config, resumed, view, self.event)
        try:
            for kind in observers:
                self._observers.append(kind(run))
        except BaseException:
            self.end(None)
            raise

    def has_begun(self, before: int) -> bool:
        """Whether this launch has taken unrolls, or made updates beyond those `before` it, so that it is accepted."""
        return self.ledger.used > 0 or self.updates > before

    @property
    def updates(self) -> int:
        return int(self.totals.latest.get("updates") or 0)

    def begin(self, settings: Settings) -> None:
        """Let the observers begin."""
        self._call(Observer.begin, settings)

    def update(self, backend: Backend, roles: Sequence[RoleStatus]) -> None:
        """Pass on what is new since the last call; `roles` are up."""
        registry = backend.registry
        self.ledger = backend.ledger.counts()
        self.fleet.roles = roles
        self._report(self._changes.of_counts(self.ledger))
        self._report(self._changes.of_roles(roles))
        for snapshot in self._new("snapshots", registry.snapshots):
            self._report(self._changes.of_snapshot(snapshot))
            last = snapshot.get("stop_reason") is not None
            self._call(Observer.snapshot, {**snapshot, **self.fleet.columns(last=last)})
        for evaluation in self._new("evaluations", registry.evaluations):
            self._call(Observer.evaluation, evaluation)
            self.event(evaluation_text(evaluation))
        self._report(self._changes.of_ignored(registry.ignored))
        self._call(Observer.roles, self.fleet)

    def report_requests(self, backend: Backend) -> None:
        """Record requests of operators since the last call."""
        for request in self._new("requests", backend.registry.requests):
            self.event(f"asked: {request.what} (by {request.by})")

    def event(self, text: str) -> None:
        """Report one line; an environment's words may hold escape sequences."""
        self._call(Observer.event, printable(" ".join(text.splitlines())))

    def show(self, line: str) -> None:
        """Print a line of a role's log, which has its own file."""
        self._view.event(printable(line))

    def end(self, summary: Summary | None) -> Mapping[str, str]:
        """Let the observers finish; nothing may be reported afterwards.

        Returns:
            Name -> what it lacks, for `untracked` in the summary.
        """
        lacking: dict[str, str] = {}
        with ExitStack() as ending:  # also if one of them fails; it calls the last one first
            for observer in reversed(self._observers):
                ending.callback(self._end, observer, summary, lacking)
            self._report(self._changes.at_end())
        return lacking

    def _report(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.event(line)

    def _new(self, kind: str, read: Callable[[str], Sequence[tuple[str, T]]]) -> Iterator[T]:
        for entry_id, record in read(self._read_up_to.get(kind, "0")):
            self._read_up_to[kind] = entry_id
            yield record

    def _call(self, method: Callable[Concatenate[Observer, P], None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call a method of every observer that has it."""
        for observer in self._observers:
            if getattr(type(observer), method.__name__) is not method:  # not that of the Protocol, which does nothing
                with self._tolerating(observer):
                    getattr(observer, method.__name__)(*args, **kwargs)

    def _end(self, observer: Observer, summary: Summary | None, lacking: dict[str, str]) -> None:
        with self._tolerating(observer):
            lacking |= observer.end(summary) or {}

    @contextmanager
    def _tolerating(self, observer: Observer) -> Iterator[None]:
        """Let an error of the observer's file cost its content, not the training.

        It is reported once, until the file is written again.
        """
        try:
            yield
        except OSError as error:
            if observer.writes is None:
                raise
            if observer.writes not in self._refused:
                self._view.event(f"{observer.writes} cannot be written: {error}")
            self._refused.add(observer.writes)
        else:
            self._refused.discard(observer.writes)
