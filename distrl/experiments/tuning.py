"""Search for good settings with Optuna: trials are ordinary runs, and any number of workers share one study.

A worker claims a trial by a lock that the trial's process inherits. A trial that runs in the study and whose lock is
free was left by a worker that died; any worker goes on with it, from its last checkpoint.
"""

import fcntl
import json
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from distrl.config.document import parse_mapping
from distrl.config.load import LoadedConfig, dump_given, load
from distrl.data_store.atomic import put_file
from distrl.errors import EXIT_OK, ConfigError, DistrlError, require
from distrl.experiments.directory import SweepDirectory
from distrl.experiments.pool import Pool
from distrl.experiments.search import Search
from distrl.experiments.sweep import Planned, Varied
from distrl.interrupt import Interrupt, interruptible
from distrl.metrics.phrases import return_words
from distrl.runs.last_row import last_row

Say = Callable[[str], None]
_POLL_S = 0.2
LOOK_S = 2.0
"""Time between two looks for a trial to train, while there is none."""
_ENOUGH = 4
"""Least number of complete trials for importances."""
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


@dataclass
class _Running:
    """A trial that this worker trains.

    Attributes:
        claim: File descriptor of its lock.
        told_steps: Environment steps of the newest evaluation that the study knows.
        log_start: Length of its output before this launch.
    """

    trial: optuna.Trial
    planned: Planned
    claim: int
    told_steps: int = 0
    is_pruned: bool = False
    log_start: int = 0


def check_search(search: Search, base: LoadedConfig) -> None:
    """Check the configuration of a trial, with the first or least value of every setting, before anything is trained.

    Raises:
        ConfigError: It is not valid, or a pruner is given and there are no evaluations.
    """
    if search.pruner != "none" and base.config.evaluation.every_env_steps is None:
        raise ConfigError(
            f"pruner: {search.pruner} compares evaluations, and evaluation.every_env_steps is null; set it, or set "
            "pruner: none"
        )
    values = search.chosen(lambda _, varied: varied.low if varied.values is None else varied.values[0])
    planned = Planned(1, values, 1)
    try:
        load(file=parse_mapping(dump_given(base), "the shared configuration"), sets=planned.sets)
    except ConfigError as error:
        raise ConfigError(f"a trial with {planned.combination}: {error}") from error


def tune(search: Search, directory: SweepDirectory, parallel: int, say: Say) -> int:
    """Train trials until the study has as many as the search wants; return the exit code.

    Args:
        parallel: Trials at once in this process; other processes may work on the same directory.

    Returns:
        0; 1 if no trial is complete; 130 after Ctrl-C.
    """
    with interruptible(sigterm_code=EXIT_OK) as interrupt, Pool(parallel) as pool:
        worker = _Worker(search, directory, pool, interrupt, say)
        try:
            return worker.run()
        finally:
            worker.release()


def open_study(search: Search, directory: SweepDirectory) -> optuna.Study:
    """Open the study of a directory, or create it."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    median = optuna.pruners.MedianPruner(n_startup_trials=4)
    return optuna.create_study(
        storage=f"sqlite:///{(directory.path / 'study.db').resolve()}",
        study_name="distrl",
        direction="maximize",
        load_if_exists=True,
        sampler=sampler(search, 0),
        pruner=median if search.pruner == "median" else optuna.pruners.NopPruner(),
    )


def sampler(search: Search, number: int) -> optuna.samplers.BaseSampler:
    """Return the sampler of one trial. Its seed is the trial's own: workers and launches draw nothing twice."""
    seed = random.Random(f"{search.draw_seed} {number}").getrandbits(32)
    if search.sampler == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed)


class _Worker:
    def __init__(self, search: Search, directory: SweepDirectory, pool: Pool, interrupt: Interrupt, say: Say) -> None:
        self._search, self._directory, self._pool = search, directory, pool
        self._interrupt, self._say = interrupt, say
        (directory.path / "locks").mkdir(exist_ok=True)
        with self._mutex():
            self._study = open_study(search, directory)
        self._running: dict[str, _Running] = {}
        self._began, self._stopping, self._waits = time.monotonic(), False, False

    def run(self) -> int:
        look_at = 0.0
        while True:
            self._stop_in_time()
            if self._pool.has_room and not self._stopping and time.monotonic() >= look_at:
                if (running := self._next()) is not None:
                    self._start(running)
                    continue
                look_at = time.monotonic() + LOOK_S
                if not self._running and not self._others_train():
                    break
            if self._stopping and not self._running:
                break
            for running in self._running.values():
                self._report(running)
            for name, code in [*self._pool.ended()]:
                self._note_end(self._running.pop(name), code)
                look_at = 0.0
            time.sleep(_POLL_S)
        if self._interrupt.code is not None:
            return self._interrupt.code
        return 0 if self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)) else 1

    def release(self) -> None:
        """Release the claims of this process; a training that still stops holds its own."""
        for running in self._running.values():
            os.close(running.claim)

    def _others_train(self) -> bool:
        """Whether other workers have trials under way: this one takes them over should their worker die."""
        if not self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            return False
        if not self._waits:
            self._say("waiting for the last trials of other workers …")
        self._waits = True
        return True

    def _next(self) -> _Running | None:
        """Claim a trial that a dead worker has left, or else a new one; None if there are enough."""
        with self._mutex():
            for left in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                if (claim := self._claim(left.number)) is not None:
                    # Optuna has no other way to go on with a trial of another process.
                    return self._described(optuna.Trial(self._study, left._trial_id), claim)
            number = len(self._study.get_trials(deepcopy=False))
            if number >= self._search.trials:
                return None
            self._study.sampler = sampler(self._search, number)
            trial = self._study.ask()
            claim = self._claim(trial.number)
            assert claim is not None  # it is new, and the mutex is held
            return self._described(trial, claim)

    def _described(self, trial: optuna.Trial, claim: int) -> _Running:
        values = self._search.chosen(lambda path, varied: _suggested(trial, path, varied))
        told = max(self._study.get_trials(deepcopy=False)[trial.number].intermediate_values, default=0)
        number = trial.number + 1
        return _Running(trial, Planned(number, values, seed=number), claim, told)

    def _claim(self, number: int) -> int | None:
        """Lock a trial; None if a process holds it."""
        lock = os.open(self._directory.path / "locks" / f"{number + 1:04}", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    @contextmanager
    def _mutex(self) -> Iterator[None]:
        """Keep other workers from choosing a trial at the same time."""
        with (self._directory.path / "locks" / "study").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _start(self, running: _Running) -> None:
        planned, place = running.planned, self._directory.run(running.planned)
        goes_on = " goes on" if place.is_dir() else ""
        sets = [argument for value in planned.sets for argument in ("--set", value)]
        where = ["--seed", str(planned.seed), "--run-dir", str(place), "--resume", "auto", "--dated"]
        command = ["train", str(self._directory.base), *where, *sets]
        running.log_start = self._directory.log_bytes(planned)
        try:
            self._pool.start(planned.name, command, self._directory.log(planned), [running.claim])
        except OSError as error:
            raise DistrlError(f"trial {planned.name} cannot be started: {error}") from error
        self._running[planned.name] = running
        self._say(f"{self._heading(planned)}{goes_on} …")

    def _heading(self, planned: Planned) -> str:
        return f"[{planned.number}/{self._search.trials}] {planned.combination}"

    def _report(self, running: _Running) -> None:
        """Tell the study a new evaluation, and stop the trial if it is to be pruned."""
        try:
            row = last_row(self._directory.run(running.planned) / "metrics.csv")
        except ConfigError:  # half written, or of a run that begins
            return
        steps, mean = row.get("evaluation_env_steps"), row.get("evaluation_mean_return")
        if not isinstance(steps, int | float) or not isinstance(mean, int | float) or steps <= running.told_steps:
            return
        running.told_steps = int(steps)
        running.trial.report(float(mean), running.told_steps)
        if running.trial.should_prune() and not running.is_pruned:
            running.is_pruned = True
            self._pool.stop(running.planned.name)

    def _note_end(self, running: _Running, code: int) -> None:
        planned, outcome = running.planned, self._directory.outcome(running.planned)
        if running.is_pruned and outcome.state == "interrupted":
            self._study.tell(running.trial, state=TrialState.PRUNED)
            told = f"pruned after the evaluation at {running.told_steps:,} steps"
        elif outcome.state == "done" and outcome.mean_return is not None:
            self._study.tell(running.trial, outcome.mean_return)
            told = f"mean return {return_words(outcome.mean_return)} after {outcome.env_steps:,} steps"
            told += self._kept_if_best(running)
        elif not outcome.has_ended and (self._stopping or outcome.error):
            told = f"stopped ({outcome.error or 'killed'}); it goes on with the next launch"
        elif outcome.state == "done":
            self._study.tell(running.trial, state=TrialState.FAIL)
            told = "FAILED: no episode finished"
        else:
            self._study.tell(running.trial, state=TrialState.FAIL)
            told = f"FAILED: {outcome.error or self._directory.cause(planned, code, running.log_start)}"
        os.close(running.claim)
        self._say(f"{self._heading(planned)}: {told}")

    def _kept_if_best(self, running: _Running) -> str:
        """Write best.yaml if the trial is the best of all workers."""
        with self._mutex():
            if self._study.best_trial.number != running.trial.number:
                return ""
            write_best(self._directory, running.planned, self._study.best_value)
        return ", the best so far"

    def _stop_in_time(self) -> None:
        minutes = self._search.minutes
        time_is_up = minutes is not None and time.monotonic() - self._began >= 60.0 * minutes
        if self._stopping or (self._interrupt.code is None and not time_is_up):
            return
        self._stopping = True
        if self._running:
            why = f"the {minutes:g} minutes are over" if time_is_up else self._interrupt.name
            self._say(f"{why}: stopping {len(self._running)} of the trials after a last checkpoint …")
        self._pool.stop()


def _suggested(trial: optuna.Trial, path: str, varied: Varied) -> Any:
    """Return the study's value of a setting. Lists of values are choices by their JSON, as Optuna takes plain ones."""
    if varied.values is not None:
        return json.loads(trial.suggest_categorical(path, [json.dumps(value) for value in varied.values]))
    assert varied.low is not None
    assert varied.high is not None
    if isinstance(varied.low, int) and isinstance(varied.high, int):
        return trial.suggest_int(path, varied.low, varied.high, log=varied.log)
    return trial.suggest_float(path, varied.low, varied.high, log=varied.log)


def write_best(directory: SweepDirectory, planned: Planned, value: float) -> None:
    """Write best.yaml, which `distrl train` takes."""
    loaded = load(file=directory.base, sets=planned.sets)
    heading = f"# trial {planned.number}: mean return {return_words(value)} under seed {planned.seed}\n"
    put_file(directory.path / "best.yaml", f"{heading}{dump_given(loaded)}".encode(), private=True)


def draw_pictures(search: Search, directory: SweepDirectory) -> list[Path]:
    """Draw history.svg, and importance.svg if there are enough trials; return what was drawn.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require("matplotlib", "matplotlib, which draws the pictures of a search,", "plot")
    os.environ.setdefault("MPLBACKEND", "Agg")
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.visualization import matplotlib as pictures

    study = open_study(search, directory)
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    evaluator, drawn = PedAnovaImportanceEvaluator(), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls its pictures experimental
        if complete:
            drawn["history.svg"] = pictures.plot_optimization_history(study)
        if len(complete) >= _ENOUGH and any(get_param_importances(study, evaluator=evaluator).values()):
            drawn["importance.svg"] = pictures.plot_param_importances(study, evaluator=evaluator)
    for name, axes in drawn.items():
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.savefig(directory.path / name, bbox_inches="tight")
    return [directory.path / name for name in drawn]


def outcome_lines(search: Search, directory: SweepDirectory) -> list[str]:
    """Return the best trial and the numbers of trials by their ends."""
    study = open_study(search, directory)
    trials = study.get_trials(deepcopy=False)
    counts = {state: sum(trial.state == state for trial in trials) for state in (*_ENDED, TrialState.RUNNING)}
    names = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "under way"}
    told = ", ".join(f"{count} {names[state.name]}" for state, count in counts.items() if count)
    lines = [f"trials: {told}"]
    if counts[TrialState.COMPLETE]:
        best = study.best_trial
        values = " ".join(f"{path}={value}" for path, value in best.params.items())
        lines.append(f"best: trial {best.number + 1}, mean return {return_words(study.best_value)}: {values}")
    return lines
