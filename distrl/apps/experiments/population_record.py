"""population.json: the members of a population, and each time that one learned from another.

It is written before a member learns from another one, and after. So a launch that was killed in between is known, and
the next one repeats it.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from distrl.apps.experiments.directory import SweepDirectory
from distrl.apps.experiments.population import Taken, first_values
from distrl.apps.experiments.search import Search
from distrl.data_store.atomic import put_file
from distrl.errors import ConfigError, DistrlError
from distrl.files import read_small
from distrl.runs.sweeps import MOST_BYTES, POPULATION

FILE = "population.json"


@dataclass
class Member:
    """A member of the population.

    Attributes:
        values: Dotted path -> value, of the settings that it trains with now.
        next_at: Environment steps at which it is compared with the others.
        env_steps: Environment steps of its training so far.
        score: Mean return of its newest evaluation, or of its last 100 episodes; None before these.
        taken: None: its networks are its own.
        is_proven: Whether the score is of its present networks; else of those before it took others over.
    """

    values: dict[str, Any]
    next_at: int
    env_steps: int = 0
    score: float | None = None
    taken: Taken | None = None
    is_proven: bool = True

    @property
    def proven_score(self) -> float | None:
        return self.score if self.is_proven else None


@dataclass(frozen=True)
class Lesson:
    """A member takes the networks and settings of another one.

    Attributes:
        at: Seconds since 1970.
        env_steps: Steps of the member: at the comparison, and once it has taken over, at that moment.
        score, teacher_score: At the comparison.
        checkpoint: The teacher's checkpoint, relative to the population's directory.
        before, after: Settings of the member until then, and from then on.
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
    """The content of the file.

    Attributes:
        vary: The settings that vary, as the search's file had them when the population began.
        under_way: Member -> the lesson that it has begun.
    """

    vary: dict[str, Any]
    members: dict[str, Member]
    lessons: list[Lesson] = field(default_factory=list)
    under_way: dict[str, Lesson] = field(default_factory=dict)

    def write(self, directory: SweepDirectory) -> None:
        """Write the file.

        Raises:
            DistrlError: It cannot be written, as on a full disk.
        """
        path = directory.path / FILE
        try:
            put_file(path, json.dumps(asdict(self), indent=1).encode())
        except OSError as error:
            raise DistrlError(
                f"{path} cannot be written: {error.strerror}; make room and go on with: distrl tune {directory.path}"
            ) from error


def read_record(directory: SweepDirectory) -> Record | None:
    """Read the record of a directory; None before the first launch.

    Raises:
        ConfigError: It is damaged.
    """
    path = directory.path / FILE
    try:
        return TypeAdapter(Record).validate_json(read_small(path, MOST_BYTES[POPULATION]))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        odd = error.errors(include_url=False)[0]
        what = ": ".join(filter(None, (".".join(map(str, odd["loc"])), odd["msg"])))
        raise ConfigError(f"{path} is damaged ({what}); restore it, or begin another population") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def open_record(search: Search, directory: SweepDirectory) -> Record:
    """Read the record of a directory, or begin one.

    Raises:
        ConfigError: It is damaged, or of other members or settings; or the directory holds trials.
    """
    assert search.population is not None
    count, vary = search.population.members, search.model_dump(mode="json")["vary"]
    record = read_record(directory)
    if record is None:
        if any(path.name.isdigit() or path.name == "study.db" for path in directory.path.iterdir()):
            raise ConfigError(f"{directory.path} holds runs and no {FILE}; begin the population elsewhere, by --dir")
        every = search.population.every_env_steps
        values = {f"{number:04}": first_values(search, number) for number in range(1, count + 1)}
        return Record(vary, {name: Member(each, next_at=every) for name, each in values.items()})
    if record.vary != vary:
        raise ConfigError(
            f"vary (from file {directory.file}) has changed since the population began; change only population and "
            "minutes, or begin another one"
        )
    if len(record.members) != count:
        raise ConfigError(
            f"population.members is {count}, and the population in {directory.path} has {len(record.members)}; "
            f"go on with these, or begin another one"
        )
    return record
