"""The path of a run's numbers: from the learner to the terminal, the CSV, TensorBoard, trackers and the summary."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from distrl.apps.trackers.tracker import Ending, TrackedRun
from distrl.apps.trackers.tracking import Tracking
from distrl.config import RunConfig
from distrl.config.secrets import masked
from distrl.config.settings import Settings
from distrl.config.tensorboard import TensorBoardConfig
from distrl.errors import ConfigError, printable
from distrl.launch.role_rows import RoleRows
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.ledger import LedgerCounts
from distrl.memory_backend.records import Evaluation, RoleStatus, blocked_share, rates_while_paused
from distrl.metrics.phrases import return_words
from distrl.metrics.sinks import CsvSink, TensorBoardSink, meta_text, settings_text
from distrl.metrics.snapshot import Snapshot
from distrl.roles.plan import Role
from distrl.runs.evaluations import EVALUATIONS, write_evaluation
from distrl.terminal.console import View


class Monitor:
    """Collects the reports of roles while a run lasts."""

    def __init__(self, config: RunConfig, run_dir: Path, view: View) -> None:
        self._config = config
        self._view = view
        self._tensorboard = _open_tensorboard(config.tensorboard, run_dir)
        try:
            self._csv = CsvSink(run_dir / "metrics.csv")
        except BaseException:  # it is damaged
            self._tensorboard.close()
            raise
        self._role_rows = RoleRows(run_dir / "roles.csv", config.launch.role_rows_s)
        self._evaluations = run_dir / EVALUATIONS
        self._events = (run_dir / "logs" / "events.log").open("a", encoding="utf-8")
        self._after = "0"
        self._evaluations_after = self._requests_after = "0"
        self._first: Snapshot = {}
        self._ignored: Counter[str] = Counter()
        self._refused: set[str] = set()  # files that could not be written the last time
        self._unsaved: object = None  # why the newest checkpoint could not be written, as last reported
        self._actors_up = 0
        self._rss_mb = self._cpu_cores = 0.0
        self._blocked: float | None = None
        self._blocked_so_far = (0.0, 0)  # sum and number
        self._problems: dict[str, str] = {}  # name of a role -> as last reported
        self.latest: Snapshot = {}
        self.ledger = LedgerCounts()
        self.peak_rss_mb: dict[str, float] = {}
        self.restarts = 0
        self.actors_wanted: int | None = None
        self._tracking: Tracking | None = None
        self.untracked: dict[str, str] = {}

    def write_configuration(self, settings: Settings) -> None:
        """Write the settings where `tensorboard.labels` ask for them, without secrets."""
        parameters = self._config.tensorboard
        texts = {"configuration": settings_text(settings)}
        if parameters.meta:
            texts["meta"] = meta_text(masked("tensorboard.meta", parameters.meta))
        for name, markdown in texts.items():
            if parameters.has("configuration"):
                self._keep("TensorBoard's files", partial(self._tensorboard.text, name, markdown))
        if parameters.has("print_configuration"):
            for path, setting in settings.items():
                self._view.event(f"{path}: {setting.text}")

    def track(self, run_id: str, run_dir: Path, *, resumed: bool) -> None:
        """Prepare the trackers of the configuration.

        Args:
            run_dir: Absolute path.
            resumed: Whether this launch goes on from a checkpoint of an earlier one.
        """
        if self._config.trackers.used:
            tree = self._config.model_dump(mode="json")
            shown = {name: masked(name, value) for name, value in tree.items()}
            run = TrackedRun(run_id, run_dir, shown, resumed)
            self._tracking = Tracking(self._config.trackers, run, self.event)

    def end_trackers(self, ending: Ending, accepted: bool = True) -> None:
        """Let the trackers finish, and keep what they lack in `untracked`; unless `accepted` they do not even begin."""
        if self._tracking is not None:
            self.untracked = self._tracking.finish(ending) if accepted else {}
            self._tracking = None

    def scaled(self, actors: int) -> None:
        """Show this as the number of actors that the run must have."""
        parameters = self._config.actors.model_copy(update={"count": actors})
        self._config = self._config.model_copy(update={"actors": parameters})

    @property
    def has_begun(self) -> bool:
        """Whether the learner of this launch has taken unrolls: the launch is accepted."""
        return self.ledger.used > 0

    @property
    def updates(self) -> int:
        return int(self.latest.get("updates") or 0)

    def update(self, backend: Backend, roles: Sequence[RoleStatus]) -> None:
        """Record the snapshots that are new since the last call, and update the view; `roles` are up."""
        self._take_counts(backend.ledger.counts())
        self._actors_up = sum(role.role == "actor" for role in roles)
        self._blocked = blocked_share(roles)
        self._rss_mb = sum(role.rss_mb for role in roles)
        self._cpu_cores = sum(role.cpu_share for role in roles)
        for role in roles:
            name = Role.of(role).name
            self.peak_rss_mb[name] = max(self.peak_rss_mb.get(name, 0.0), role.peak_rss_mb)
            if role.problem and role.problem != self._problems.get(name):
                self.event(f"{name}: {role.problem}")
            self._problems[name] = role.problem
        self._keep("roles.csv", lambda: self._role_rows.write(roles))
        for entry_id, snapshot in backend.registry.snapshots(self._after):
            self._after = entry_id
            self._take(snapshot)
        for entry_id, evaluation in backend.registry.evaluations(self._evaluations_after):
            self._evaluations_after = entry_id
            self._keep(EVALUATIONS, partial(write_evaluation, self._evaluations, asdict(evaluation)))
            self.event(_words(evaluation))
        self._report_ignored(backend)
        shown = self.latest and {**self.latest, **rates_while_paused(roles)}
        self._view.update(shown, [asdict(role) for role in roles], self._config)

    def _take_counts(self, counts: LedgerCounts) -> None:
        """Keep the newest counts, and report a fail-over of Redis."""
        before, self.ledger = self.ledger, counts
        if counts.failovers > before.failovers:
            self.event(
                f"Redis has failed over or was restarted ({counts.failovers:,} so far), and may have lost its "
                "last writes; repeat requests of the moments before"
            )
        if counts.lost_to_failover > before.lost_to_failover:
            self.event(
                f"{counts.lost_to_failover - before.lost_to_failover:,} unrolls were lost to a fail-over of Redis"
            )

    def report_requests(self, backend: Backend) -> None:
        """Record requests of operators since the last call."""
        for entry_id, request in backend.registry.requests(self._requests_after):
            self._requests_after = entry_id
            self.event(f"asked: {request.what} (by {request.by})")

    def _report_ignored(self, backend: Backend) -> None:
        """Report, once per kind, that another program writes to the run's keys."""
        for what in backend.registry.ignored.keys() - self._ignored.keys():
            self.event(
                f"ignored {what} in Redis that distrl has not written: another program writes to this run's keys"
            )
        self._ignored |= backend.registry.ignored

    def rate(self, name: str) -> float:
        """Increase of `name` per second since the first snapshot of this launch; with one snapshot, its own rate."""
        now, first = self.latest, self._first
        elapsed_s = _known(now, "wall_s") - _known(first, "wall_s")
        if elapsed_s <= 0.0:
            return _known(first, f"{name}_per_s")
        return (_known(now, name) - _known(first, name)) / elapsed_s

    def _take(self, snapshot: Snapshot) -> None:
        """Write one snapshot to every file, and report its changes."""
        self._report_changes(snapshot)
        if self._first and self._blocked is not None:  # before the first update there was nothing to wait for
            total, looks = self._blocked_so_far
            self._blocked_so_far = (total + self._blocked, looks + 1)
        blocked = self._blocked
        total, looks = self._blocked_so_far
        if snapshot.get("stop_reason") is not None and looks:  # the last value is the mean of the run
            blocked = total / looks
        fleet: Snapshot = {
            "actors_up": self._actors_up,
            "actors_wanted": self.actors_wanted,
            "rss_mb": round(self._rss_mb, 1),
            "cpu_cores": round(self._cpu_cores, 3),
            "restarts": self.restarts,
            "actors_blocked_share": blocked,
        }
        self.latest = {**snapshot, **fleet}
        self._first = self._first or self.latest
        self._keep("metrics.csv", lambda: self._csv.write(self.latest))
        self._keep("TensorBoard's files", lambda: self._tensorboard.write(self.latest))
        if self._tracking is not None:
            self._tracking.record(self.latest)

    def _report_changes(self, snapshot: Snapshot) -> None:
        """Report what a snapshot says that the one before it did not."""
        missing = snapshot.get("missing_workers")
        if missing != self.latest.get("missing_workers"):
            self.event(f"rounds go on without {missing}" if missing else "rounds have every worker again")
        origin = snapshot.get("origin")
        if origin and origin != self.latest.get("origin"):
            self.event(f"the learner {origin}")
        unreported = snapshot.get("unreported")
        if unreported and unreported != self.latest.get("unreported"):
            self.event(f"environment.metrics: info of the last 100 episodes does not have {unreported}")
        unsaved = snapshot.get("unsaved")
        if unsaved and snapshot.get("stop_reason") is None and unsaved != self._unsaved:
            self.event(f"no checkpoint can be written: {unsaved}")
        saved = unsaved is None and snapshot.get("checkpoint_age_s") is not None  # by this learner, not the one before
        if saved and self._unsaved:
            self.event("checkpoints are written again")
        self._unsaved = None if saved else unsaved or self._unsaved
        unstored = snapshot.get("unstored")
        if unstored and not self.latest.get("unstored"):  # each attempt may fail in other words
            self.event(f"the data store lacks the newest checkpoint: {unstored}; it is tried again")
        elif self.latest.get("unstored") and not unstored and saved:
            self.event("checkpoints are stored again")

    def event(self, text: str) -> None:
        """Print one line for the user and to logs/events.log; an environment's words may hold escape sequences."""
        text = printable(" ".join(text.splitlines()))
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}"
        self._keep("logs/events.log", lambda: print(line, file=self._events, flush=True))
        self._view.event(text)

    def show(self, line: str) -> None:
        """Print a line of a role's log, which has its own file."""
        self._view.event(printable(line))

    def _keep(self, place: str, write: Callable[[], object]) -> None:
        """Write to one of the files. An error costs its content, not the training; it is reported once."""
        try:
            write()
        except OSError as error:
            if place not in self._refused:
                self._view.event(f"{place} cannot be written: {error}")
            self._refused.add(place)
        else:
            self._refused.discard(place)

    def close(self) -> None:
        """Close every file, with the same tolerance of a full disk."""
        if self._ignored:
            counts = ", ".join(f"{what} ({count})" for what, count in sorted(self._ignored.items()))
            self.event(f"ignored in all, of what distrl has not written: {counts}")
        self._keep("TensorBoard's files", self._tensorboard.close)
        self._keep("metrics.csv", self._csv.close)
        self._keep("logs/events.log", self._events.close)


def _known(snapshot: Snapshot, name: str) -> float:
    return float(snapshot.get(name) or 0.0)


def _words(found: Evaluation) -> str:
    others = "".join(f"; in {name}: {_result_words(other)}" for name, other in found.others.items())
    unknown = "" if found.score is not None else f"; not the best, as {found.best_by} is unknown (evaluation.best_by)"
    return f"evaluation at {found.env_steps:,} steps: {_result_words(found)}{others}{unknown}"


def _result_words(found: Evaluation) -> str:
    success = "" if found.success_rate is None else f", {found.success_rate:.1%} of them successful"
    known = {key: value for key, value in found.metrics.items() if value is not None}
    metrics = "".join(f", {key} {return_words(value)}" for key, value in known.items())
    cut = f", {found.cut_episodes} of them cut short at evaluation.max_episode_steps" if found.cut_episodes else ""
    return (
        f"return {return_words(found.mean_return)} ± {return_words(found.std_return)} over {found.episodes} "
        f"episodes{success}{metrics}{cut}"
    )


def _open_tensorboard(parameters: TensorBoardConfig, run_dir: Path) -> TensorBoardSink:
    folder = parameters.folder(run_dir)
    try:
        return TensorBoardSink(folder, parameters)
    except OSError as error:
        raise ConfigError(
            f"TensorBoard's files cannot be written to {folder} ({error.strerror}); set tensorboard.directory"
        ) from error
