"""Population-based training over live control: the members are runs, and none of them restarts to learn from another.

A member takes networks and settings by the requests that operators make, too. `population.json` records each time that
one member learned from another.
"""

import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from distrl.config.document import parse_mapping
from distrl.config.live_settings import steerable
from distrl.config.load import LoadedConfig, dump_given, load
from distrl.data_store.atomic import put_file
from distrl.data_store.checkpoints import newest_first
from distrl.errors import EXIT_OK, ConfigError, DistrlError
from distrl.experiments.directory import Outcome, Run, SweepDirectory
from distrl.experiments.pool import Pool
from distrl.experiments.population import explored, first_values, teacher_of
from distrl.experiments.runs_here import RunsHere
from distrl.experiments.search import Population, Search
from distrl.experiments.sweep import Planned
from distrl.interrupt import Interrupt, interruptible
from distrl.launch.attach import Target, find_target, steering
from distrl.memory_backend.records import Errand
from distrl.memory_backend.steering import Steering
from distrl.metrics.phrases import return_words
from distrl.runs.last_row import last_row

FILE = "population.json"
_POLL_S = 0.5
ERRAND_S = 120.0
"""Time in which a learner writes a checkpoint or takes networks; it may be in a long update."""
FRUITLESS = 3
"""Launches of a member in a row that end before it makes a further step, after which it counts as failed."""
Say = Callable[[str], None]


@dataclass
class Member:
    """A member of the population.

    Attributes:
        values: Dotted path -> value, of the settings that it trains with now.
        next_at: Environment steps at which it is compared with the others.
        score: Mean return of its newest evaluation, or of its last 100 episodes.
        fruitless: Launches in a row that ended at `began_at` steps.
    """

    values: dict[str, Any]
    next_at: int
    env_steps: int = 0
    score: float | None = None
    began_at: int = 0
    fruitless: int = 0


@dataclass(frozen=True)
class Lesson:
    """A member has taken the networks and settings of another one.

    Attributes:
        at: Seconds since 1970.
        checkpoint: Name of the teacher's checkpoint.
        before, after: Its settings until then, and from then on.
    """

    at: float
    member: str
    env_steps: int
    score: float
    teacher: str
    teacher_score: float
    checkpoint: str
    before: dict[str, Any]
    after: dict[str, Any]


@dataclass
class Record:
    """population.json."""

    members: dict[str, Member] = field(default_factory=dict)
    lessons: list[Lesson] = field(default_factory=list)

    @classmethod
    def read(cls, directory: SweepDirectory) -> "Record":
        """Read the record of a directory; an empty one before the first launch.

        Raises:
            ConfigError: It is damaged.
        """
        path = directory.path / FILE
        try:
            tree = json.loads(path.read_text("utf-8"))
            members = {name: Member(**each) for name, each in tree["members"].items()}
            return cls(members, [Lesson(**each) for each in tree["lessons"]])
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path} is damaged: {error!r}; restore it, or begin another search") from error

    def write(self, directory: SweepDirectory) -> None:
        """Write the record.

        Raises:
            DistrlError: It cannot be written, as on a full disk.
        """
        path = directory.path / FILE
        try:
            put_file(path, json.dumps(asdict(self), indent=1).encode())
        except OSError as error:
            raise DistrlError(f"{path} cannot be written: {error.strerror}") from error


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
        for value in (varied.low, varied.high) if varied.values is None else varied.values:
            load(file=parse_mapping(dump_given(base), "the shared configuration"), sets=[f"{path}={json.dumps(value)}"])


def evolve(search: Search, directory: SweepDirectory, say: Say) -> int:
    """Train the members to their ends; return the exit code: 0, 1 if none has ended in order, 130 after Ctrl-C.

    Raises:
        ConfigError: Another process works on the search, or population.json is damaged.
        DistrlError: The record cannot be written.
    """
    population = search.population
    assert population is not None
    with (
        directory.locked(say) as lock,
        interruptible(sigterm_code=EXIT_OK) as interrupt,
        Pool(population.members) as pool,
    ):
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
        self._record = Record.read(directory)
        self._planned: dict[str, Planned] = {}
        self._ends: dict[str, Outcome] = {}
        self._began, self._stopping = time.monotonic(), False

    def run(self) -> int:
        for number in range(1, self._population.members + 1):
            planned = Planned(number, first_values(self._search, number), seed=number)
            self._planned[planned.name] = planned
            self._record.members.setdefault(
                planned.name, Member(dict(planned.values), next_at=self._population.every_env_steps)
            )
            outcome = self._directory.outcome(planned)
            if outcome.has_ended:
                self._ends[planned.name] = outcome
                self._look(planned.name)
            else:
                self._start(planned)
        self._write()
        while self._runs.running:
            self._stop_in_time()
            for name, code in [*self._runs.ended()]:
                self._note_end(self._planned[name], code)
            for name in () if self._stopping else self._runs.running:
                self._compare(name)
            time.sleep(_POLL_S)
        self._write()
        write_best(self._search, self._directory, self._record)
        if self._interrupt.code is not None:
            return self._interrupt.code
        return 0 if any(outcome.state == "done" for outcome in self._ends.values()) else 1

    def _start(self, planned: Planned) -> None:
        goes_on = self._runs.start(planned)
        self._say(f"{planned.name} {_words(self._record.members[planned.name].values)}{' goes on' * goes_on} …")

    def _look(self, name: str) -> None:
        """Read a member's steps and score."""
        member = self._record.members[name]
        try:
            row = last_row(self._directory.run(self._planned[name]) / "metrics.csv")
        except ConfigError:  # half written, or of a run that begins
            return
        steps, evaluated, mean = (row.get(each) for each in _COLUMNS)
        score = mean if evaluated is None else evaluated
        if isinstance(steps, int | float):
            member.env_steps = int(steps)
        if isinstance(score, int | float):
            member.score = float(score)

    def _compare(self, name: str) -> None:
        """Let a member learn from a better one if it is one of the worst, after each so many steps."""
        member = self._record.members[name]
        self._look(name)
        if member.env_steps < member.next_at:
            return
        every = self._population.every_env_steps
        member.next_at = (member.env_steps // every + 1) * every
        scores = {each: one.score for each, one in self._record.members.items() if one.score is not None}
        chance = random.Random(f"{self._search.draw_seed} {name} {member.next_at}")
        teacher = teacher_of(name, scores, self._population.share, chance)
        if teacher is not None:
            try:
                self._learn(name, teacher, chance)
            except DistrlError as error:  # one of them ends, or is down: the next comparison may succeed
                self._say(f"{name} does not learn from {teacher}: {error}")
        self._write()

    def _learn(self, name: str, teacher: str, chance: random.Random) -> None:
        """Let a member take the networks and, changed a little, the settings of another one, and save them."""
        member, better = self._record.members[name], self._record.members[teacher]
        checkpoint = self._checkpoint_of(teacher)
        after = explored(better.values, self._search.vary, self._population, chance)
        with steering(self._target(name), "population") as job:
            self._await(job, "networks", job.take_networks(checkpoint))
            job.change(after)
            self._await(job, "checkpoint", job.checkpoint())
        assert member.score is not None
        assert better.score is not None
        lesson = Lesson(
            *(time.time(), name, member.env_steps, member.score, teacher, better.score, checkpoint.name),
            before=member.values,
            after=after,
        )
        self._record.lessons.append(lesson)
        self._say(
            f"{name} at {member.env_steps:,} steps ({return_words(member.score)}) takes over from {teacher} "
            f"({return_words(better.score)}) and goes on with {_words(after)}"
        )
        member.values = after

    def _checkpoint_of(self, name: str) -> Path:
        """Return the newest checkpoint of a member, of its newest networks if it trains."""
        run_dir = self._directory.run(self._planned[name])
        if name in self._runs.running:
            with steering(self._target(name), "population") as job:
                self._await(job, "checkpoint", job.checkpoint())
        found = newest_first(run_dir / "checkpoints")
        if not found:
            raise DistrlError(f"{run_dir} has no checkpoint")
        return found[0].resolve()

    def _target(self, name: str) -> Target:
        return find_target(self._directory.run(self._planned[name]), None, None)

    def _await(self, job: Steering, errand: Errand, number: int) -> None:
        deadline = time.monotonic() + ERRAND_S
        while not job.is_done(errand, number):
            if self._interrupt.code is not None:
                raise DistrlError(f"{self._interrupt.name} came first")
            if time.monotonic() > deadline:
                raise DistrlError(f"its learner has not answered for {ERRAND_S:g} s")
            time.sleep(0.05)

    def _note_end(self, planned: Planned, code: int) -> None:
        """Note that a member has ended; one that failed goes on from its last checkpoint."""
        member, outcome = self._record.members[planned.name], self._directory.outcome(planned)
        self._look(planned.name)
        if outcome.state == "done":
            self._ends[planned.name] = outcome
            self._say(f"{planned.name}: mean return {_score_words(member.score)} after {outcome.env_steps:,} steps")
            return
        if self._stopping:
            self._say(f"{planned.name}: stopped at {member.env_steps:,} steps; it goes on with the next launch")
            return
        why = outcome.error or self._runs.cause(planned, code)
        member.fruitless = member.fruitless + 1 if member.env_steps <= member.began_at else 0
        member.began_at = member.env_steps
        if member.fruitless >= FRUITLESS:
            self._ends[planned.name] = outcome
            self._say(f"{planned.name}: FAILED: {why}; it is not started again")
            return
        self._say(f"{planned.name}: {why}; it goes on from its last checkpoint")
        self._start(planned)

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
        runs = [Run(planned, self._directory.outcome(planned)) for planned in self._planned.values()]
        self._directory.write_index(runs, (time.monotonic() - self._began) / 60.0)


_COLUMNS = ("env_steps", "evaluation_mean_return", "mean_return_100")


def write_best(search: Search, directory: SweepDirectory, record: Record) -> None:
    """Write best.yaml: the shared configuration with the present settings of the best member."""
    scored = {name: member.score for name, member in record.members.items() if member.score is not None}
    if not scored:
        return
    best = max(scored, key=lambda name: scored[name])
    member = record.members[best]
    loaded = load(file=directory.base, sets=[f"{path}={json.dumps(member.values[path])}" for path in search.vary])
    heading = f"# member {best} at {member.env_steps:,} steps: mean return {return_words(scored[best])}\n"
    put_file(directory.path / "best.yaml", f"{heading}{dump_given(loaded)}".encode(), private=True)


def outcome_lines(directory: SweepDirectory) -> list[str]:
    """Return the members, the best first, and the number of lessons."""
    record = Record.read(directory)
    ranked = sorted(
        record.members.items(), key=lambda each: -math.inf if each[1].score is None else each[1].score, reverse=True
    )
    lines = [
        f"{name}  {_score_words(member.score):>12} after {member.env_steps:,} steps  {_words(member.values)}"
        for name, member in ranked
    ]
    return [*lines, f"{len(record.lessons)} times a member took over from a better one: {directory.path / FILE}"]


def _score_words(score: float | None) -> str:
    return "unknown" if score is None else return_words(score)


def _words(values: dict[str, Any]) -> str:
    return " ".join(
        f"{path}={value:.4g}" if isinstance(value, float) else f"{path}={value}" for path, value in values.items()
    )
