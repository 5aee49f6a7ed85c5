"""Train the runs of a sweep, several at a time, and go on where an earlier launch ended."""

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from distrl.apps.config.configuration import load
from distrl.apps.experiments.directory import RunResult, SweepDirectory, SweepRun
from distrl.apps.experiments.runs_here import ConcurrentRuns, runs_here
from distrl.apps.experiments.sweep import Planned, Sweep, every_run, number_of_runs, planned_runs
from distrl.config.document import parse_mapping
from distrl.config.load import LoadedConfig, dump_given
from distrl.data_store.atomic import remove_temporaries
from distrl.errors import EXIT_OK, ConfigError
from distrl.interrupt import Interrupt, interruptible
from distrl.metrics.phrases import return_words
from distrl.runs.summary import duration

_POLL_S = 0.1
CHECKED = 500
BARREN = 10
"""Runs in a row that fail before their first step, after which a sweep without a number of runs ends."""
PROGRESS_S = 30.0
"""Time between two lines about the runs under way."""
_IN_ORDER = " after a last checkpoint"
Say = Callable[[str], None]


class LaunchEnd(NamedTuple):
    """The end of a launch of a sweep.

    Attributes:
        runs: Every run that has begun, in the order of their numbers.
        left: Runs that have not ended; None where only time or steps limit them.
        exit_code: 0; 1 if runs have failed; 130 after Ctrl-C.
    """

    runs: list[SweepRun]
    left: int | None
    exit_code: int


def check_runs(sweep: Sweep, base: LoadedConfig) -> None:
    """Check the configurations of the first `CHECKED` combinations before anything is trained.

    Raises:
        ConfigError: One line that names the combination; or a grid has too many.
    """
    number_of_runs(sweep)
    checked: set[tuple[str, ...]] = set()
    tree = parse_mapping(dump_given(base), "the shared configuration")
    for planned in planned_runs(sweep):
        if len(checked) >= CHECKED:
            break
        if (combination := tuple(planned.sets)) not in checked:
            checked.add(combination)
            try:
                load(file=tree, sets=planned.sets)
            except ConfigError as error:
                raise ConfigError(f"run {planned.name} ({planned.words}): {error}") from error


def run_sweep(
    sweep: Sweep,
    directory: SweepDirectory,
    parallel: int,
    say: Say,
    *,
    again: bool = False,
    elsewhere: ConcurrentRuns | None = None,
) -> LaunchEnd:
    """Train every run that has not ended yet. A run that fails ends nothing but itself.

    Args:
        parallel: Most runs at once, which share the cores out.
        again: Also train runs that failed in an earlier launch.
        elsewhere: Place where the runs train; None: they are processes of this machine.

    Raises:
        ConfigError: Another process works on the sweep, or the target refuses a run.
        DistrlError: The list of runs cannot be written.
    """
    with directory.locked(say) as lock, interruptible(sigterm_code=EXIT_OK) as interrupt, ExitStack() as held:
        remove_temporaries(directory.path)
        runs = elsewhere or held.enter_context(runs_here(directory, parallel, lock))
        return _Launch(sweep, directory, runs, parallel, interrupt, say, again).run()


class _Launch:
    def __init__(
        self,
        sweep: Sweep,
        directory: SweepDirectory,
        runs_under_way: ConcurrentRuns,
        parallel: int,
        interrupt: Interrupt,
        say: Say,
        again: bool,
    ) -> None:
        self._sweep, self._directory, self._under_way, self._parallel = sweep, directory, runs_under_way, parallel
        self._interrupt, self._say, self._again = interrupt, say, again
        self._total = number_of_runs(sweep)
        begun, self._minutes_before = directory.index(every_run(sweep))
        self._runs = {run.planned.name: run for run in _unchanged(begun, sweep, directory)}
        self._began, self._barren = time.monotonic(), 0
        self._stopping = self._detached = False
        self._told = time.monotonic()
        for name, run in self._runs.items():
            if not run.outcome.has_ended and runs_under_way.take_up(run.planned):
                self._runs[name] = SweepRun(run.planned, RunResult("running"))

    def run(self) -> LaunchEnd:
        if ended := sum(run.outcome.has_ended for run in self._runs.values()):
            self._say(f"{_runs(ended)} ended already")
        waiting = (planned for planned in planned_runs(self._sweep) if self._is_open(planned))
        more = True
        while (more or self._under_way.running) and not self._detached:
            self._stop_in_time()
            while more and self._under_way.has_room and not self._begins_none:
                planned = next(waiting, None)
                more = planned is not None
                if planned is not None:
                    self._start(planned)
            for name, code in [*self._under_way.ended()]:
                self._note_end(self._runs[name].planned, code)
            more = more and not self._begins_none
            self._tell_progress()
            time.sleep(_POLL_S)
        self._write()
        failed = any(run.outcome.state == "failed" for run in self._runs.values())
        code = int(failed) if self._interrupt.code is None else self._interrupt.code
        return LaunchEnd(self._in_order, self._left, code)

    @property
    def _in_order(self) -> list[SweepRun]:
        return sorted(self._runs.values(), key=lambda run: run.planned.number)

    def _is_open(self, planned: Planned) -> bool:
        """Whether a run is to be trained."""
        begun = self._runs.get(planned.name)
        if planned.name in self._under_way.running:
            return False
        if begun is None or not begun.outcome.has_ended:
            return True
        return self._again and begun.outcome.state == "failed"

    @property
    def _begins_none(self) -> bool:
        return self._stopping or self._steps_are_spent or (self._total is None and self._barren >= BARREN)

    def _start(self, planned: Planned) -> None:
        self._runs[planned.name] = SweepRun(planned, RunResult("running"))
        self._write()
        goes_on = self._under_way.start(planned)
        self._tell(f"{self._heading(planned)}{' goes on' if goes_on else ''} …")

    def _note_end(self, planned: Planned, code: int | None) -> None:
        outcome = self._directory.outcome(planned)
        if not outcome.has_ended and not outcome.error and not self._stopping:
            outcome = replace(outcome, state="failed", error=self._under_way.cause(planned, code))
        failed_at_once = outcome.state == "failed" and not outcome.env_steps
        self._barren = self._barren + 1 if failed_at_once else 0
        self._runs[planned.name] = SweepRun(planned, outcome)
        self._write()
        self._tell(f"{self._heading(planned)}: {self._words_of(outcome)}{self._time_left()}")
        if self._total is None and self._barren == BARREN:
            self._tell(f"the last {BARREN} runs failed before their first step, so no further one begins")

    def _words_of(self, outcome: RunResult) -> str:
        if outcome.state == "interrupted":
            how = "begins anew" if self._under_way.outlive else "goes on"
            return f"stopped ({outcome.error or 'killed'}); it {how} with the next launch"
        return _outcome_words(outcome)

    def _tell(self, line: str) -> None:
        self._told = time.monotonic()
        self._say(line)

    def _tell_progress(self) -> None:
        """Print where the runs are, unless something has been printed a moment ago."""
        if self._under_way.running and time.monotonic() - self._told >= PROGRESS_S:
            at = [f"{name} {self._directory.progress(self._runs[name].planned)}" for name in self._under_way.running]
            self._tell(f"under way: {' · '.join(at)}")
            self._write()  # with the time so far, should this process be killed

    def _heading(self, planned: Planned) -> str:
        total = "" if self._total is None else f"/{self._total}"
        return f"[{planned.number}{total}] {planned.words}"

    def _stop_in_time(self) -> None:
        """Begin no further run after Ctrl-C or SIGTERM, and once the time is up. Jobs outlive both."""
        under_way, outlive = _runs(len(self._under_way.running)), self._under_way.outlive
        if self._interrupt.code is not None and outlive and not self._detached:
            self._detached = self._stopping = True
            self._say(f"{self._interrupt.name}: {under_way} under way as jobs, which go on; distrl stop RUN ends one")
        limit = self._sweep.budget.minutes
        time_is_up = limit is not None and self._minutes >= limit
        if self._stopping or (self._interrupt.code is None and not time_is_up):
            return
        self._stopping = True
        if self._under_way.running:
            why = f"the {limit:g} minutes are over" if time_is_up else self._interrupt.name
            self._say(f"{why}: {'waiting for' if outlive else 'stopping'} {under_way}{'' if outlive else _IN_ORDER} …")
        self._under_way.stop()

    @property
    def _steps_are_spent(self) -> bool:
        limit = self._sweep.budget.env_steps
        return limit is not None and sum(run.outcome.env_steps for run in self._runs.values()) >= limit

    @property
    def _minutes(self) -> float:
        return self._minutes_before + (time.monotonic() - self._began) / 60.0

    @property
    def _left(self) -> int | None:
        ended = sum(run.outcome.has_ended for run in self._runs.values())
        return None if self._total is None else max(self._total - ended, 0)

    def _time_left(self) -> str:
        """Return ' · about 4:10 to go'; empty at the end, and where only time or steps limit the runs."""
        left, walls = self._left, [run.outcome.wall_s for run in self._runs.values() if run.outcome.wall_s]
        if not left or not walls or self._stopping:
            return ""
        seconds = statistics.mean(walls) * left / min(self._parallel, left)
        return f" · {left} to go, about {duration(seconds)}"

    def _write(self) -> None:
        self._directory.write_index(self._in_order, self._minutes, self._total)


def _unchanged(begun: Sequence[SweepRun], sweep: Sweep, directory: SweepDirectory) -> Sequence[SweepRun]:
    """Return the runs that have begun.

    Raises:
        ConfigError: The sweep's file has changed so that one of them would be another.
    """
    last = max((run.planned.number for run in begun), default=0)
    planned = {each.number: each for each in islice(every_run(sweep), last)}
    for run in begun:
        now = planned.get(run.planned.number)
        if now is None or (now.sets, now.seed) != (run.planned.sets, run.planned.seed):
            raise ConfigError(
                f"{directory.file} has changed: run {run.planned.name} was {run.planned.words} and would be "
                f"{'none' if now is None else now.words}; change only its budget, or begin another sweep"
            )
    return begun


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _outcome_words(outcome: RunResult) -> str:
    if outcome.state == "failed":
        return f"FAILED: {outcome.error}"
    mean = "no episode finished" if outcome.mean_return is None else f"mean return {return_words(outcome.mean_return)}"
    return f"{mean} after {outcome.env_steps:,} steps in {duration(outcome.wall_s)}"
