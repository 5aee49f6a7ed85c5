"""Search for good settings with Optuna: trials are ordinary runs, and any number of workers share one study.

A worker claims a trial by a lock that the trial's process inherits. A trial that runs in the study and whose lock is
free was left by a worker that died; any worker goes on with it, from its last checkpoint.
"""

import fcntl
import json
import math
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import optuna
from optuna.trial import TrialState
from sqlalchemy.exc import SQLAlchemyError

from distrl.apps.config.configuration import Configuration, load
from distrl.apps.experiments.directory import SweepDirectory
from distrl.apps.experiments.pool import Pool
from distrl.apps.experiments.search import Search
from distrl.apps.experiments.sweep import Planned, Varied
from distrl.config.document import parse_mapping
from distrl.config.load import LoadedConfig, dump_given
from distrl.config.secrets import masked
from distrl.data_store.atomic import file, put_file
from distrl.errors import EXIT_OK, ConfigError, DistrlError, one_line, require
from distrl.interrupt import Interrupt, interruptible
from distrl.metrics.phrases import return_words

Say = Callable[[str], None]
_POLL_S = 0.2
LOOK_S = 2.0
"""Time between two looks for a trial to train, while there is none."""
_ENOUGH = 4
"""Least number of complete trials for importances."""
_UNUSABLE = (optuna.exceptions.OptunaError, SQLAlchemyError, OSError)
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


@dataclass
class _Running:
    """A trial that this worker trains.

    Attributes:
        claim: File descriptor of its lock.
        reported: Number of the newest evaluation that the study knows, from 1; 0: none.
        log_start: Length of its output before this launch.
    """

    trial: optuna.Trial
    planned: Planned
    claim: int
    reported: int = 0
    is_pruned: bool = False
    log_start: int = 0


def check_search(search: Search, base: LoadedConfig) -> None:
    """Check every value of every setting, with the first ones of the others, before anything is trained.

    Raises:
        ConfigError: A configuration is not valid; or a pruner is given and evaluations are missing or differ.
    """
    if search.pruner != "none":
        if base.config.evaluation.every_env_steps is None:
            raise ConfigError(
                f"pruner: {search.pruner} compares evaluations, and evaluation.every_env_steps is null; set it, or "
                "set pruner: none"
            )
        if "evaluation.every_env_steps" in search.vary:
            raise ConfigError(f"vary: pruner: {search.pruner} compares evaluations, so every_env_steps must not vary")
    tree = parse_mapping(dump_given(base), "the shared configuration")
    for path, varied in search.vary.items():
        for value in (varied.low, varied.high) if varied.values is None else varied.values:
            chosen = search.chosen(lambda name, one, path=path, value=value: value if name == path else _first(one))  # type: ignore[misc]
            planned = Planned(1, chosen, 1)
            try:
                load(file=tree, sets=planned.sets)
            except ConfigError as error:
                raise ConfigError(f"a trial with {planned.combination}: {error}") from error


def _first(varied: Varied) -> Any:
    return varied.low if varied.values is None else varied.values[0]


def tune(search: Search, directory: SweepDirectory, parallel: int, say: Say) -> int:
    """Train trials until the study has as many as the search wants; return the exit code.

    Args:
        parallel: Trials at once in this process; other processes may work on the same directory.

    Returns:
        0; 1 if no trial is complete; 130 after Ctrl-C.

    Raises:
        ConfigError: The settings that vary are not those that the study began with.
        DistrlError: The study or best.yaml cannot be written.
    """
    base = Configuration.of(load(file=directory.base).config)
    every, end_s = base.evaluation.every_env_steps, base.end_s
    try:
        with _one_line(directory), interruptible(sigterm_code=EXIT_OK) as interrupt, Pool(parallel, end_s) as pool:
            worker = _Worker(search, directory, pool, interrupt, say, every)
            try:
                return worker.run()
            finally:
                worker.release()
    finally:
        directory.tell_saved_elsewhere(say)


@contextmanager
def _one_line(directory: SweepDirectory) -> Iterator[None]:
    """Turn an error of Optuna or of the disk into one line."""
    try:
        yield
    except _UNUSABLE as error:
        cause = getattr(error, "orig", None) or getattr(error.__cause__, "orig", None) or error
        raise DistrlError(
            f"the search in {directory.path} cannot be used: {str(cause).splitlines()[0]}; mend it, and go on with: "
            f"distrl tune {directory.path}"
        ) from error


def open_study(search: Search, directory: SweepDirectory, *, read_only: bool = False) -> optuna.Study:
    """Open the study of a directory, or create it.

    Args:
        read_only: Neither create the study nor write anything into it.

    Raises:
        ConfigError: The settings that vary are not those that it began with, or it holds what no search writes.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    median = optuna.pruners.MedianPruner(n_startup_trials=4)
    file = (directory.path / "study.db").resolve()
    # SQLAlchemy unquotes the path, and SQLite what is left of it.
    place = f"file:{quote(quote(str(file)))}?mode={'ro' if read_only else 'rwc'}&uri=true"
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{place}", engine_kwargs={"connect_args": {"timeout": 60}})
        if not read_only:
            optuna.create_study(storage=storage, study_name="distrl", direction="maximize", load_if_exists=True)
        study = optuna.load_study(
            storage=storage,
            study_name="distrl",
            sampler=sampler(search, 0),
            pruner=median if search.pruner == "median" else optuna.pruners.NopPruner(),
        )
        if not read_only and "vary" not in study.user_attrs:
            study.set_user_attr("vary", _vary(search))
        _require_same_settings(study, search, directory)
        _require_sound(study, search)
    except (DistrlError, *_UNUSABLE):
        raise
    except Exception as error:  # at rows that do not fit, Optuna and SQLAlchemy raise errors of every kind
        told = f"{type(error).__name__}: {one_line(error)}"
        raise ConfigError(f"{file} is damaged: {told}; restore it, or begin another search") from error
    return study


def _vary(search: Search) -> str:
    return json.dumps(search.model_dump(mode="json")["vary"])


def _require_same_settings(study: optuna.Study, search: Search, directory: SweepDirectory) -> None:
    """Raise ConfigError unless the settings that vary are those with which the study began."""
    if study.user_attrs["vary"] != _vary(search):
        raise ConfigError(
            f"vary (from file {directory.file}) has changed since the search began; change only trials, "
            "minutes, sampler and pruner, or begin another search"
        )


def _require_sound(study: optuna.Study, search: Search) -> None:
    """Raise ValueError if a trial has a value that the search cannot draw, or no result though it is complete."""
    if study.directions != [optuna.study.StudyDirection.MAXIMIZE]:
        raise ValueError(f"its directions are {study.directions}")
    for number, trial in enumerate(study.get_trials(deepcopy=False)):
        if trial.number != number:
            raise ValueError(f"trial {number + 1} is missing")
        if trial.state == TrialState.COMPLETE and (trial.value is None or not math.isfinite(trial.value)):
            raise ValueError(f"trial {number + 1} has the result {trial.value}")
        for path, value in trial.params.items():
            varied = search.vary[path]
            if not varied.holds(value if varied.values is None else json.loads(value)):
                raise ValueError(f"trial {number + 1} has {path}={masked(path, value)}, which is none of its values")
        if trial.state == TrialState.COMPLETE:
            search.chosen(partial(_drawn, trial.params))


def _drawn(parameters: Mapping[str, Any], path: str, varied: Varied) -> Any:
    """Return the value of a setting in a trial that has drawn all of them."""
    if path not in parameters:
        raise ValueError(f"a complete trial has no {path}")
    return parameters[path] if varied.values is None else json.loads(parameters[path])


def sampler(search: Search, number: int) -> optuna.samplers.BaseSampler:
    """Return the sampler of one trial. Its seed is the trial's own: workers and launches draw nothing twice."""
    seed = random.Random(f"{search.draw_seed} {number}").getrandbits(32)
    if search.sampler == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed)


class _Worker:
    def __init__(
        self,
        search: Search,
        directory: SweepDirectory,
        pool: Pool,
        interrupt: Interrupt,
        say: Say,
        every_steps: int | None,
    ) -> None:
        self._search, self._directory, self._pool = search, directory, pool
        self._interrupt, self._say, self._every_steps = interrupt, say, every_steps
        self._left: set[int] = set()  # trials that another program has stopped
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
            for running in () if self._stopping else self._running.values():
                self._report(running)
            for name, code in [*self._pool.ended()]:
                self._note_end(self._running.pop(name), code)
                look_at = 0.0
            time.sleep(_POLL_S)
        with self._mutex():
            write_best(self._study, self._search, self._directory)
        if self._interrupt.code is not None:
            return self._interrupt.code
        return 0 if self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)) else 1

    def release(self) -> None:
        """Release the claims of this process; a training that still stops holds its own."""
        for running in self._running.values():
            os.close(running.claim)

    def _others_train(self) -> bool:
        """Whether other workers have trials under way: this one takes them over should their worker die."""
        under_way = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        if all(trial.number in self._left for trial in under_way):
            return False
        if not self._waits:
            self._say("waiting for the last trials of other workers …")
        self._waits = True
        return True

    def _next(self) -> _Running | None:
        """Claim a trial that a dead worker has left, or else a new one; None if there are enough."""
        with self._mutex():
            for left in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                if left.number in self._left or (claim := self._claim(left.number)) is None:
                    continue
                if self._study.get_trials(deepcopy=False)[left.number].state == TrialState.RUNNING:
                    self._study.sampler = sampler(self._search, left.number)
                    # Optuna has no other way to go on with a trial of another process.
                    return self._described(optuna.Trial(self._study, left._trial_id), claim)
                os.close(claim)  # its worker has just ended it
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
        reported = max(self._study.get_trials(deepcopy=False)[trial.number].intermediate_values, default=0)
        number = trial.number + 1
        return _Running(trial, self._search.planned(number, values), claim, reported)

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
        planned = running.planned
        goes_on = " goes on" if self._directory.run(planned).is_dir() else ""
        running.log_start = self._directory.begin(planned)
        arguments, log = self._directory.train_arguments(planned), self._directory.log(planned)
        self._pool.start(planned.name, arguments, log, [running.claim])
        self._running[planned.name] = running
        self._say(f"{self._heading(planned)}{goes_on} …")

    def _heading(self, planned: Planned) -> str:
        return f"[{planned.number}/{self._search.trials}] {planned.combination}"

    def _report(self, running: _Running) -> None:
        """Tell the study a new evaluation, and stop the trial if it is to be pruned."""
        row = self._directory.row(running.planned)
        steps, mean = row.get("evaluation_env_steps"), row.get("evaluation_mean_return")
        if self._every_steps is None or not isinstance(steps, int | float) or not isinstance(mean, int | float):
            return
        # Evaluations are of the first weights after so many steps, which differ a little between trials.
        number = int(steps // self._every_steps)
        if number <= running.reported:
            return
        running.reported = number
        running.trial.report(float(mean), number)
        if running.trial.should_prune() and not running.is_pruned:
            running.is_pruned = True
            self._pool.stop(running.planned.name)

    def _note_end(self, running: _Running, code: int) -> None:
        planned, outcome = running.planned, self._directory.outcome(running.planned)
        if running.is_pruned and outcome.state == "interrupted":
            self._study.tell(running.trial, state=TrialState.PRUNED)
            told = f"pruned after evaluation {running.reported}"
        elif outcome.state == "done" and outcome.mean_return is not None:
            self._study.tell(running.trial, outcome.mean_return)
            told = f"mean return {return_words(outcome.mean_return)} after {outcome.env_steps:,} steps"
            told += self._kept_if_best(running)
        elif not outcome.has_ended and (self._stopping or outcome.error):
            self._left.add(running.trial.number)
            told = f"stopped ({outcome.error or 'killed'}); another worker or the next launch goes on with it"
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
            write_best(self._study, self._search, self._directory)
        return ", the best so far"

    def _stop_in_time(self) -> None:
        minutes = self._search.minutes
        time_is_up = minutes is not None and time.monotonic() - self._began >= 60.0 * minutes
        if self._stopping or (self._interrupt.code is None and not time_is_up):
            return
        self._stopping = True
        if self._running:
            why = f"the {minutes:g} minutes are over" if time_is_up else self._interrupt.name
            self._say(f"{why}: stopping {len(self._running)} under way after a last checkpoint …")
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


def write_best(study: optuna.Study, search: Search, directory: SweepDirectory) -> None:
    """Write best.yaml, which `distrl train` takes, if a trial is complete."""
    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        return
    best = study.best_trial
    planned = search.planned(best.number + 1, search.chosen(partial(_drawn, best.params)))
    loaded = load(file=directory.base, sets=planned.sets)
    heading = f"# trial {planned.number}: mean return {return_words(study.best_value)} under seed {planned.seed}\n"
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

    with _one_line(directory):
        study = open_study(search, directory, read_only=True)
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
        with _one_line(directory), file(directory.path / name) as picture:
            figure.savefig(picture, format="svg", bbox_inches="tight")
    return [directory.path / name for name in drawn]


def outcome_lines(search: Search, directory: SweepDirectory) -> list[str]:
    """Return the best trial and the numbers of trials by their ends."""
    with _one_line(directory):
        study = open_study(search, directory, read_only=True)
    trials = study.get_trials(deepcopy=False)
    counts = {state: sum(trial.state == state for trial in trials) for state in (*_ENDED, TrialState.RUNNING)}
    names = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "under way"}
    told = ", ".join(f"{count} {names[state.name]}" for state, count in counts.items() if count)
    lines = [f"trials: {told or 'none'}"]
    if counts[TrialState.COMPLETE]:
        best = study.best_trial
        values = " ".join(f"{path}={masked(path, value)}" for path, value in best.params.items())
        lines.append(f"best: trial {best.number + 1}, mean return {return_words(study.best_value)}: {values}")
    return lines
