"""`distrl.train`: from a configuration to a summary, in phases: plan the start, check, open, train, sum up."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.config.load import LoadedConfig
from distrl.config.settings import read_settings
from distrl.data_store.start_plan import StartPlan
from distrl.errors import DistrlError, StoreError
from distrl.interrupt import Interrupt, interruptible
from distrl.launch.checks import Checked, check
from distrl.launch.distributed import train_with_roles
from distrl.launch.head_start import HeadStart
from distrl.launch.monitor import Monitor
from distrl.launch.one_process import Here, train_here
from distrl.launch.outcome import Outcome, is_accepted, summarize
from distrl.launch.start import PlannedRun, opened, plan_start
from distrl.launch.stored_files import StoredFiles
from distrl.observers import OBSERVERS
from distrl.observers.observer import Observer
from distrl.roles.description import RunDescription
from distrl.roles.plan import most_actors
from distrl.runs.run_directory import usable
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
    observers: Sequence[type[Observer]] = (),
    here: Here | None = None,
) -> Summary:
    """Train until a stop condition holds, an operator ends the run, or something fails for good.

    Args:
        run_dir: The run's own directory, made if missing.
        resume: None, "auto", or a run or checkpoint to go on from (see `launch/start.py`).
        run_id: The id of a new run; None: one of the time and a random number. A resumed run keeps its own.
        head_start: The process that becomes the learner, unless the learner is a Ray actor or in this process.
        interrupt: Ends the run when its code is set, as signals do on the main thread; None: signals alone.
        observers: Those of applications, beside the ones of every run.
        here: Trains in this process, if the run is one process; None: `train_here`.

    Returns:
        The summary, also written to summary.json; `exit_code` and `error` in it say how the run ended.

    Raises:
        ConfigError, CheckpointError, MemoryBackendError: Before anything was launched.
    """
    began = time.time(), time.monotonic()
    observers = (*observers, *OBSERVERS)
    start = plan_start(loaded.config, run_dir, resume, run_id)
    checked = check(loaded, run_dir, start.run_id, view.event, observers, new=start.is_new)
    with opened(start, checked, view.event) as (plan, checked, trial):
        summary = _Launch(start, checked, plan, trial, view, head_start, interrupt, began, observers, here).run()
    return summary


@dataclass(frozen=True)
class _Launch:
    """One training in its run directory."""

    start: PlannedRun
    checked: Checked
    plan: StartPlan
    trial: Trial
    view: View
    head_start: HeadStart | None
    interrupt: Interrupt | None
    began: tuple[float, float]  # by the wall clock and by the monotonic clock
    observers: Sequence[type[Observer]]
    here: Here | None = None

    def run(self) -> Summary:
        """Train, and write a summary however the training ends; it stays unless the launch is refused."""
        config, run_dir = self.checked.loaded.config, self.start.run_dir
        description = RunDescription(
            run_id=self.start.run_id,
            run_dir=str(run_dir.resolve()),
            start=self.plan,
            most_actors=most_actors(config),
            config=config,
            spec=self.checked.spec,
        )
        with usable(run_dir):
            monitor = Monitor(
                *(self.start.run_id, run_dir, config, self.view),
                resumed=self.plan.kind == "resumed",
                observers=self.observers,
            )
        files = None
        try:
            if (stored := self.start.stored) is not None:
                files = StoredFiles(
                    *(stored, run_dir, self.checked.loaded),
                    launch=description.launch,
                    after=stored.look().writer,
                    report=monitor.event,
                    begun=lambda: monitor.has_begun(self.plan.update),
                )
            monitor.begin(read_settings(run_dir / "config.yaml"))
            for note in (*self.plan.notes, *self.checked.notes):
                monitor.event(note)
            with interruptible(config.launch.sigterm_exit_code, self.interrupt) as interrupt:
                if config.deterministic:
                    outcome = (self.here or train_here)(description, monitor, interrupt)
                else:
                    outcome = train_with_roles(description, monitor, interrupt, self.head_start)
        except BaseException as error:  # raised again, after the summary is written
            self._sum_up(description, monitor, files, Outcome.of(error), error)
            raise
        return self._sum_up(description, monitor, files, outcome)

    def _sum_up(
        self,
        description: RunDescription,
        monitor: Monitor,
        files: StoredFiles | None,
        outcome: Outcome,
        error: BaseException | None = None,
    ) -> Summary:
        """Write the summary, store the last files, and show the closing lines."""
        self.trial.accepted = is_accepted(outcome, error, has_begun=monitor.has_begun(self.plan.update))
        started, began_at = self.began
        wall_s = time.monotonic() - began_at  # without that of observers that finish
        summary = summarize(description, monitor, outcome, started, wall_s, accepted=self.trial.accepted)
        summary = self._written(summary.model_copy(update={"untracked": monitor.end(summary)}))
        if files is not None and not self.trial.accepted:
            files.abandon()
        elif files is not None:
            try:
                files.finish(description.config.checkpoint.store_give_up_s)
            except StoreError as late:
                summary = self._written(self._with_late_error(summary, late))
        self.view.close(summary)
        return summary

    def _written(self, summary: Summary) -> Summary:
        try:
            summary.write(self.start.run_dir / "summary.json")
        except OSError as late:
            return self._with_late_error(summary, DistrlError(f"the summary cannot be written: {late}"))
        return summary

    def _with_late_error(self, summary: Summary, late: DistrlError) -> Summary:
        """Let a failure after the training be the run's error, unless it has one."""
        if summary.error is not None:
            self.view.event(str(late))
            return summary
        return summary.model_copy(update={"exit_code": summary.exit_code or late.exit_code, "error": str(late)})
