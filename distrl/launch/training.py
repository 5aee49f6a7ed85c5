"""`distrl.train`: from a configuration to a summary, in phases: check, open the directory, train, sum up."""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from distrl.apps.trackers.tracker import Ending
from distrl.config import RunConfig
from distrl.config.load import LoadedConfig, dump, load
from distrl.config.settings import read_settings
from distrl.config.stores import is_store_url
from distrl.data_store.atomic import put_file
from distrl.data_store.stored_run import StoredRun
from distrl.errors import ConfigError, DistrlError, StoreError
from distrl.interrupt import Interrupt, interruptible
from distrl.launch.checks import Checked, check
from distrl.launch.data_store import fetch_run, go_back, is_only_stored, open_stored_run, require_id, resumed_run
from distrl.launch.distributed import train_with_roles
from distrl.launch.going_back import begin_at
from distrl.launch.head_start import HeadStart
from distrl.launch.manifest import write_manifest
from distrl.launch.monitor import Monitor
from distrl.launch.one_process import train_here
from distrl.launch.outcome import Outcome, is_accepted, summarize
from distrl.launch.stored_files import StoredFiles
from distrl.launch.warm_start import with_first_weights
from distrl.learner.replay_set_up import empty_replay_note
from distrl.memory_backend.keys import checked_run_id
from distrl.roles.description import RunDescription
from distrl.roles.plan import most_actors
from distrl.runs.run_directory import (
    Opened,
    branches,
    names_checkpoint,
    open_run_directory,
    require_free,
    run_id_of,
    run_to_resume,
    usable,
)
from distrl.runs.summary import Summary
from distrl.runs.trial import Trial
from distrl.terminal.console import View


def train(
    loaded: LoadedConfig,
    *,
    run_dir: Path,
    resume: str | None,
    run_id: str | None = None,
    view: View,
    head_start: HeadStart | None = None,
    interrupt: Interrupt | None = None,
) -> Summary:
    """Train until a stop condition holds, an operator ends the run, or something fails for good.

    Args:
        run_dir: The run's own directory, made if missing.
        resume: None, "auto", or a run or checkpoint to go on from (see `open_run_directory`). STORE/RUN, the URL of a
            run in the store of the configuration: what the store has is fetched first.
        run_id: The id of a new run; None: one of the time and a random number. A resumed run keeps its own.
        head_start: The process that becomes the learner, unless the learner is a Ray actor or in this process.
        interrupt: Ends the run when its code is set, as signals do if this is the main thread; None: signals alone.

    Returns:
        The summary, also written to summary.json; `exit_code` and `error` in it say how the run ended.

    Raises:
        ConfigError, CheckpointError, MemoryBackendError: Before anything was launched.
    """
    began = time.time(), time.monotonic()
    run_id, is_new = _settled_id(loaded.config, run_dir, resume, run_id)
    stored = open_stored_run(loaded.config, run_id, new=is_new)
    fetch: Callable[[], Sequence[str]] | None = None
    if stored is not None and resume is not None and not names_checkpoint(resume):
        fetch = partial(fetch_run, stored, run_dir, resume, view.event)
    checked = check(loaded, run_dir, run_id, view.event)
    if elsewhere := stored is not None and fetch is not None and is_only_stored(stored, run_dir):
        fetch = partial(_fetched, fetch, checked, run_dir, view.event)
    else:
        checked = with_first_weights(checked, run_to_resume(run_dir, resume), view.event)
    trial = Trial(view.event)
    with open_run_directory(run_dir, resume, fetch, trial) as opened:
        if elsewhere:
            checked = with_first_weights(checked, run_dir, view.event)
        if opened.chosen is not None:
            opened = _at_chosen(opened, opened.chosen, run_dir, checked.loaded.config)
            if stored is not None and not is_new:
                go_back(stored, run_dir)
        write_config(run_dir, checked.loaded)
        is_resumed = opened.update > 0 and not is_new
        launch = _Launch(
            checked, run_dir, run_id, opened, is_resumed, view, head_start, interrupt, began, stored, trial
        )
        summary = launch.run()
    return summary


def _settled_id(config: RunConfig, run_dir: Path, resume: str | None, run_id: str | None) -> tuple[str, bool]:
    """Return the id of the run, and whether it is a new one.

    Raises:
        ConfigError: The directory is taken, or it is not clear which run is to go on.
    """
    chosen = None if run_id is None else checked_run_id(run_id)
    if resume is not None and is_store_url(resume):
        chosen = resumed_run(resume, config.checkpoint.store)
    require_free(run_dir, resume)
    is_new = resume is None or branches(run_dir, resume)
    if not is_new:
        require_id(config, run_dir, chosen)
    return _run_id(run_dir, chosen), is_new


def _fetched(
    fetch: Callable[[], Sequence[str]], checked: Checked, run_dir: Path, report: Callable[[str], None]
) -> Sequence[str]:
    """Fetch a run, and refuse first weights that are not those which it began with."""
    notes = fetch()
    with_first_weights(checked, run_dir, report)
    return notes


def _at_chosen(opened: Opened, chosen: Path, run_dir: Path, config: RunConfig) -> Opened:
    """Make the chosen checkpoint the newest of the directory, and add a note on that."""
    before = chosen.parent.parent / "config.yaml"
    if before.is_file():
        _check_same_task(before, config)
    note = begin_at(run_dir, chosen, opened.env_steps, with_id=config.checkpoint.store is not None)
    return opened if note is None else replace(opened, notes=(*opened.notes, note))


def _run_id(run_dir: Path, chosen: str | None) -> str:
    """Return the id of the run in the directory; if it holds none, the chosen one or a new one.

    Raises:
        ConfigError: Another one was chosen for a run that has an id.
    """
    kept = run_id_of(run_dir)
    if kept is None:
        return chosen or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    if chosen not in (None, kept):
        raise ConfigError(f"the run in {run_dir} has the id {kept}, not {chosen}; leave --run-id out to resume it")
    return checked_run_id(kept)


@dataclass(frozen=True)
class _Launch:
    """One training in its run directory."""

    checked: Checked
    run_dir: Path
    run_id: str
    opened: Opened
    is_resumed: bool
    view: View
    head_start: HeadStart | None
    interrupt: Interrupt | None
    began: tuple[float, float]  # by the wall clock and by the monotonic clock
    stored: StoredRun | None  # its folder in the data store
    trial: Trial

    def run(self) -> Summary:
        """Train, and write a summary however the training ends; it stays unless the launch is refused."""
        config = self.checked.loaded.config
        description = RunDescription(
            run_id=self.run_id,
            run_dir=str(self.run_dir.resolve()),
            resumed_update=self.opened.update,
            resumed_wall_s=self.opened.wall_s,
            most_actors=most_actors(config),
            config=config,
            spec=self.checked.spec,
        )
        with usable(self.run_dir):
            write_manifest(self.run_dir, description.run_id, config)
            monitor = Monitor(config, self.run_dir, self.view)
        files = self._store_files(description, monitor)
        try:
            self._report_start(description, monitor)
            monitor.track(self.run_id, self.run_dir.resolve(), resumed=self.is_resumed)
            with interruptible(config.launch.sigterm_exit_code, self.interrupt) as interrupt:
                if config.deterministic:
                    outcome = train_here(description, monitor, interrupt)
                else:
                    outcome = train_with_roles(description, monitor, interrupt, self.head_start)
        except BaseException as error:  # raised again, after the summary is written
            outcome = Outcome.of(error)
            self.trial.accepted = is_accepted(outcome, error, has_begun=monitor.has_begun)
            self._sum_up(description, monitor, outcome, files)
            raise
        self.trial.accepted = is_accepted(outcome, None, has_begun=monitor.has_begun)
        return self._sum_up(description, monitor, outcome, files)

    def _store_files(self, description: RunDescription, monitor: Monitor) -> StoredFiles | None:
        """Begin to store the run's own files, if there is a data store."""
        if self.stored is None:
            return None
        after = self.stored.look().writer
        loaded, launch = self.checked.loaded, description.launch
        return StoredFiles(
            *(self.stored, self.run_dir, loaded),
            launch=launch,
            after=after,
            report=monitor.event,
            begun=lambda: monitor.has_begun,
        )

    def _report_start(self, description: RunDescription, monitor: Monitor) -> None:
        monitor.write_configuration(read_settings(self.run_dir / "config.yaml"))
        empty = empty_replay_note(description.config, self.run_dir / "checkpoints", self.opened.update)
        for note in (f"run {description.run_id} in {self.run_dir}", *self.opened.notes, *self.checked.notes, empty):
            if note:
                monitor.event(note)

    def _sum_up(
        self, description: RunDescription, monitor: Monitor, outcome: Outcome, files: StoredFiles | None
    ) -> Summary:
        """Write the summary and show the closing lines. A failure to write it is the run's error, unless it has one."""
        started, began_at = self.began
        wall_s = time.monotonic() - began_at  # without the trackers' time
        monitor.end_trackers(Ending(outcome.exit_code, outcome.stop_reason, outcome.error), self.trial.accepted)
        monitor.close()
        summary = summarize(description, self.opened, monitor, outcome, started, wall_s)
        summary = summary.model_copy(update={"accepted": self.trial.accepted})
        try:
            summary.write(self.run_dir / "summary.json")
        except OSError as error:
            unwritten = f"the summary cannot be written: {error}"
            if outcome.error is None:
                code = outcome.exit_code or DistrlError.exit_code
                summary = summary.model_copy(update={"exit_code": code, "error": unwritten})
            else:
                self.view.event(unwritten)
        if files is not None:
            summary = self._store_last(summary, files)
        self.view.close(summary)
        return summary

    def _store_last(self, summary: Summary, files: StoredFiles) -> Summary:
        """Store the last files. A failure is the run's error, unless it has one."""
        if not self.trial.accepted:
            files.abandon()
            return summary
        try:
            files.finish(self.checked.loaded.config.checkpoint.store_give_up_s)
        except StoreError as error:
            if summary.error is not None:
                self.view.event(str(error))
                return summary
            code = summary.exit_code or error.exit_code
            summary = summary.model_copy(update={"exit_code": code, "error": str(error)})
            with usable(self.run_dir):
                summary.write(self.run_dir / "summary.json")
        return summary


def write_config(run_dir: Path, loaded: LoadedConfig) -> None:
    """Write config.yaml of this launch.

    Raises:
        ConfigError: The directory's run is of another environment or algorithm.
    """
    path = run_dir / "config.yaml"
    if path.exists():
        _check_same_task(path, loaded.config)
    with usable(run_dir):
        put_file(path, dump(loaded).encode(), private=True)


def _check_same_task(path: Path, config: RunConfig) -> None:
    earlier = load(file=path).config
    for name, now, then in (
        ("environment.id", config.environment.id, earlier.environment.id),
        ("algorithm.name", config.algorithm.name, earlier.algorithm.name),
    ):
        if now != then:
            raise ConfigError(f"the run to resume has {name} {then}, not {now}; choose another --run-dir for {now}")
