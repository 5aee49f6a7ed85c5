"""Population-based training over live control: the members are runs, and none of them restarts to learn from another.

A member takes networks and settings by the requests that operators make, too.
"""

import json
import math
import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from distrl.apps.config.configuration import Configuration, load
from distrl.apps.experiments.directory import RunResult, SweepDirectory, SweepRun
from distrl.apps.experiments.pool import Pool
from distrl.apps.experiments.population import Taken, explored, score_of, teacher_of
from distrl.apps.experiments.population_record import FILE, Lesson, Record, open_record, read_record
from distrl.apps.experiments.runs_here import RunsHere
from distrl.apps.experiments.search import Population, Search
from distrl.apps.experiments.sweep import Planned
from distrl.config.document import parse_mapping
from distrl.config.live_settings import steerable
from distrl.config.load import LoadedConfig, dump_given
from distrl.config.secrets import masked
from distrl.data_store.atomic import put_file, remove_temporaries
from distrl.data_store.checkpoints import newest_first
from distrl.errors import EXIT_OK, ConfigError, DistrlError, MemoryBackendError
from distrl.interrupt import Interrupt, interruptible
from distrl.memory_backend.records import Errand
from distrl.memory_backend.steering import Steering
from distrl.metrics.phrases import return_words
from distrl.metrics.snapshot import Value
from distrl.runs.directories import open_run

_POLL_S = 0.5
FRUITLESS = 3
"""Launches of a member in a row that end before it makes a further step, after which it counts as failed."""
_OUT_OF_REACH = (ConfigError, MemoryBackendError)
"""Errors of a member that begins, ends or is down."""
Say = Callable[[str], None]


def check_population(search: Search, base: LoadedConfig) -> None:
    """Check that members can train, and that the settings can change while they do.

    Raises:
        ConfigError: In one line.
    """
    assert search.population is not None
    if base.config.deterministic:
        raise ConfigError("population: members are steered while they train, which needs actors.count >= 1")
    live = {parameter.path: parameter for parameter in steerable(base.config)}
    for path, varied in search.vary.items():
        if path not in live:
            raise ConfigError(f"vary.{path}: it cannot change while a member trains; these can: {', '.join(live)}")
        bounds = (varied.low, varied.high, varied.draw(random.Random(0)))  # between them it may be no whole number
        for value in bounds if varied.values is None else varied.values:
            load(file=parse_mapping(dump_given(base), "the shared configuration"), sets=[f"{path}={json.dumps(value)}"])


def evolve(search: Search, directory: SweepDirectory, say: Say) -> int:
    """Train the members to their ends; return the exit code: 0, 1 if every member has failed, 130 after Ctrl-C.

    Raises:
        ConfigError: Another process works on the population; or its record is damaged, or of other members.
        DistrlError: The record cannot be written.
    """
    population = search.population
    assert population is not None
    with (
        directory.locked(say) as lock,
        interruptible(sigterm_code=EXIT_OK) as interrupt,
        Pool(population.members, Configuration.of(load(file=directory.base).config).end_s) as pool,
    ):
        remove_temporaries(directory.path)
        return _Evolution(search, population, directory, RunsHere(directory, pool, lock), interrupt, say).run()


class _Evolution:
    def __init__(
        self,
        search: Search,
        population: Population,
        directory: SweepDirectory,
        runs: RunsHere,
        interrupt: Interrupt,
        say: Say,
    ) -> None:
        self._search, self._population, self._directory, self._runs = search, population, directory, runs
        self._interrupt, self._say = interrupt, say
        self._evaluates = load(file=directory.base).config.evaluation.every_env_steps is not None
        self._record = open_record(search, directory)
        _, self._minutes_before = directory.index()
        self._attended: dict[str, Generator[None]] = {}
        self._failed: dict[str, RunResult] = {}
        self._furthest: dict[str, int] = {}
        self._fruitless: dict[str, int] = {}
        self._began, self._stopping = time.monotonic(), False

    def run(self) -> int:
        self._write()
        for name in self._record.members:
            self._look(name)
            if self._directory.outcome(self._planned(name)).state != "done":
                self._start(name)
        self._write()
        while self._runs.running:
            self._stop_in_time()
            for name, code in [*self._runs.ended()]:
                self._note_end(name, code)
            for name in () if self._stopping else self._runs.running:
                next(self._attended[name])
            time.sleep(_POLL_S)
        write_best(self._search, self._directory, self._record)
        if self._interrupt.code is not None:
            return self._interrupt.code
        return int(len(self._failed) == len(self._record.members))

    def _planned(self, name: str) -> Planned:
        """Return a member as it is started: with its present settings."""
        return self._search.planned(int(name), self._record.members[name].values)

    def _start(self, name: str) -> None:
        goes_on = self._runs.start(self._planned(name))
        self._attended[name] = self._attend(name)
        self._say(f"{name} {_words(self._record.members[name].values)}{' goes on' * goes_on} …")

    def _look(self, name: str) -> Mapping[str, Value]:
        """Read a member's steps and score; return its newest row of metrics.csv, empty before the first."""
        member, row = self._record.members[name], self._directory.row(self._planned(name))
        if not row:
            return row
        member.env_steps = int(row.get("env_steps") or 0)
        score = score_of(row, member.taken, evaluates=self._evaluates)
        if score is not None:
            member.score, member.is_proven = score, True
        return row

    def _attend(self, name: str) -> Generator[None]:
        """See to a member while it trains. At each `yield` it is the others' turn."""
        yield from self._settle(name)
        while True:
            self._look(name)
            member, every = self._record.members[name], self._population.every_env_steps
            if member.env_steps >= member.next_at:
                member.next_at = (member.env_steps // every + 1) * every
                yield from self._compare(name)
                self._write()
            yield

    def _settle(self, name: str) -> Iterator[None]:
        """Make a member train as the record says, as soon as it can be reached, whatever its checkpoint holds."""
        while True:
            try:
                lesson = self._record.under_way.get(name)
                if lesson is None or not (yield from self._taught(lesson)):
                    with self._steering(name) as job:
                        job.change(self._record.members[name].values)
                return
            except _OUT_OF_REACH:
                yield

    def _compare(self, name: str) -> Iterator[None]:
        """Let a member learn from a better one if it is one of the worst.

        A member that has just done so keeps its former rank until it has a score again, so that no other moves up to
        its place among the worst.
        """
        member = self._record.members[name]
        if not member.is_proven:
            return
        scores = {each: one.score for each, one in self._record.members.items() if one.score is not None}
        chance = random.Random(f"{self._search.draw_seed} {name} {member.next_at}")
        teacher = teacher_of(name, scores, self._population.share, chance)
        if teacher is None:
            return
        checkpoint = yield from self._checkpoint_of(teacher)
        if checkpoint is None:
            self._say(f"{name} does not learn from {teacher}, which has no checkpoint")
            return
        better = self._record.members[teacher].values
        self._record.under_way[name] = Lesson(
            *(time.time(), name, member.env_steps, scores[name], teacher, scores[teacher]),
            checkpoint=str(checkpoint.relative_to(self._directory.path)),
            before=member.values,
            after=explored(better, self._search.vary, self._population, chance),
        )
        self._write()
        yield from self._settle(name)

    def _checkpoint_of(self, name: str) -> Generator[None, None, Path | None]:
        """Return the newest checkpoint of a member, of its newest networks if it trains; None if it has none."""
        if name in self._runs.running:
            with suppress(*_OUT_OF_REACH), self._steering(name) as job:  # else the checkpoint that it has must do
                yield from _done(job, "checkpoint", job.checkpoint())
        found = newest_first(self._directory.run(self._planned(name)) / "checkpoints")
        return found[0] if found else None

    def _taught(self, lesson: Lesson) -> Generator[None, None, bool]:
        """Let a member take networks and settings, save and record them; return whether it could."""
        name, member = lesson.member, self._record.members[lesson.member]
        with self._steering(name) as job:
            number = job.take_networks((self._directory.path / lesson.checkpoint).resolve())
            try:
                yield from _done(job, "networks", number)
            except ConfigError as error:
                self._say(f"{name} does not learn from {lesson.teacher}: {error}")
                del self._record.under_way[name]
                return False
            taken = Taken.of(self._look(name))
            job.change(lesson.after)
            yield from _done(job, "checkpoint", job.checkpoint())
        member.values, member.taken, member.is_proven = lesson.after, taken, False
        self._record.lessons.append(replace(self._record.under_way.pop(name), env_steps=taken.env_steps))
        self._write()
        self._say(
            f"{name} at {taken.env_steps:,} steps ({return_words(lesson.score)}) takes over from {lesson.teacher} "
            f"({return_words(lesson.teacher_score)}) and goes on with {_words(lesson.after)}"
        )
        return True

    def _steering(self, name: str) -> AbstractContextManager[Steering]:
        return open_run(self._directory.run(self._planned(name))).steering("population")

    def _note_end(self, name: str, code: int) -> None:
        """Note that a member has ended; one that failed goes on from its last checkpoint."""
        self._attended.pop(name).close()
        self._look(name)
        member, planned = self._record.members[name], self._planned(name)
        outcome = self._directory.outcome(planned)
        if outcome.state == "done":
            self._record.under_way.pop(name, None)
            self._say(f"{name}: mean return {_score_words(outcome.mean_return)} after {outcome.env_steps:,} steps")
            self._write()
            return
        why = outcome.error or self._runs.cause(planned, code)
        if self._stopping or (outcome.state == "interrupted" and outcome.error):
            self._say(f"{name}: stopped at {member.env_steps:,} steps ({why}); it goes on with the next launch")
        elif self._is_fruitless(name):
            self._failed[name] = replace(outcome, state="failed", error=why)
            self._say(f"{name}: FAILED: {why}; the next launch tries again")
        else:
            self._say(f"{name}: {why}; it goes on from its last checkpoint")
            self._start(name)
        self._write()

    def _is_fruitless(self, name: str) -> bool:
        """Whether a member that has failed again comes no further."""
        steps, furthest = self._record.members[name].env_steps, self._furthest.get(name, 0)
        self._fruitless[name] = self._fruitless.get(name, 0) + 1 if steps <= furthest else 0
        self._furthest[name] = max(furthest, steps)
        return self._fruitless[name] >= FRUITLESS

    def _stop_in_time(self) -> None:
        minutes = self._search.minutes
        time_is_up = minutes is not None and time.monotonic() - self._began >= 60.0 * minutes
        if self._stopping or (self._interrupt.code is None and not time_is_up):
            return
        self._stopping = True
        why = f"the {minutes:g} minutes are over" if time_is_up else self._interrupt.name
        self._say(f"{why}: stopping {len(self._runs.running)} members after a last checkpoint …")
        self._runs.stop()

    def _write(self) -> None:
        self._record.write(self._directory)
        runs = [SweepRun(self._planned(name), self._outcome(name)) for name in self._record.members]
        self._directory.write_index(runs, self._minutes_before + (time.monotonic() - self._began) / 60.0)

    def _outcome(self, name: str) -> RunResult:
        if name in self._runs.running:
            member = self._record.members[name]
            return RunResult("running", member.env_steps, mean_return=member.proven_score)
        return self._failed.get(name) or self._directory.outcome(self._planned(name))


def _done(job: Steering, errand: Errand, number: int) -> Iterator[None]:
    """Wait until a request has been fulfilled; without a limit, as a learner may be in a long update."""
    while not job.is_done(errand, number):
        yield


def write_best(search: Search, directory: SweepDirectory, record: Record) -> None:
    """Write best.yaml: the shared configuration with the present settings of the best member."""
    scored = {name: one.proven_score for name, one in record.members.items() if one.proven_score is not None}
    if not scored:
        return
    best = max(scored, key=lambda name: scored[name])
    member = record.members[best]
    loaded = load(file=directory.base, sets=[f"{path}={json.dumps(member.values[path])}" for path in search.vary])
    heading = f"# member {best} at {member.env_steps:,} steps: mean return {return_words(scored[best])}\n"
    path = directory.path / "best.yaml"
    try:
        put_file(path, f"{heading}{dump_given(loaded)}".encode(), private=True)
    except OSError as error:
        raise DistrlError(f"{path} cannot be written: {error.strerror}") from error


def outcome_lines(directory: SweepDirectory) -> list[str]:
    """Return the members, the best first, and the number of lessons."""
    record = read_record(directory)
    assert record is not None
    scores = {name: member.proven_score for name, member in record.members.items()}
    ranked = sorted(scores, key=lambda name: -math.inf if (score := scores[name]) is None else score, reverse=True)
    lines = [
        f"{name}  {_score_words(scores[name]):>12} after {record.members[name].env_steps:,} steps  "
        f"{_words(record.members[name].values)}"
        for name in ranked
    ]
    return [*lines, f"{len(record.lessons)} times a member took over from a better one: {directory.path / FILE}"]


def _score_words(score: float | None) -> str:
    return "unknown" if score is None else return_words(score)


def _words(values: dict[str, Any]) -> str:
    shown = {path: masked(path, value) for path, value in values.items()}
    return " ".join(
        f"{path}={value:.4g}" if isinstance(value, float) else f"{path}={value}" for path, value in shown.items()
    )
