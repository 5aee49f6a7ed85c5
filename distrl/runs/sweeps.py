"""The directory of a sweep, a search or a population read back: what its files say about its runs.

Runs are read from their own directories; these files add which settings vary, how many runs there are to be, and the
runs that failed before they had a directory.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from distrl.config.document import parse_mapping
from distrl.errors import ConfigError
from distrl.files import read_small

INDEX, SWEEP, SEARCH, POPULATION = "sweep.json", "sweep.yaml", "search.yaml", "population.json"
FILES = (INDEX, SWEEP, SEARCH, POPULATION)
MOST_BYTES = {INDEX: 8 * 2**20, SWEEP: 2**18, SEARCH: 2**18, POPULATION: 8 * 2**20}
"""Largest of each of these files that is read; YAML takes seconds to parse that much."""
Kind = Literal["sweep", "search", "population"]


class PlannedRecord(BaseModel):
    """A run in sweep.json."""

    model_config = ConfigDict(frozen=True)

    run: str = Field(pattern=r"^[0-9]{1,6}$")
    seed: int = Field(0, ge=0)
    settings: dict[str, Any] = {}
    state: str = ""
    error: str | None = None


class SweepFile(BaseModel):
    """The content of sweep.json."""

    runs: tuple[PlannedRecord, ...] = ()
    minutes: float = Field(0.0, ge=0.0, allow_inf_nan=False)
    planned: int | None = Field(None, ge=0)


class LessonRecord(BaseModel):
    """A member of a population takes the networks and settings of another one, at a number of its own steps."""

    model_config = ConfigDict(frozen=True)

    member: str
    teacher: str
    env_steps: int
    score: float | None = None
    teacher_score: float | None = None


class _Population(BaseModel):
    members: dict[str, Any] = {}
    lessons: tuple[LessonRecord, ...] = ()


class SweepFiles(NamedTuple):
    """Content of the files of a sweep.

    Attributes:
        varied: Dotted paths of the settings that vary.
        planned: Runs that there are to be; None where only time or steps limit them, or the files are older.
        minutes: Minutes of all launches; None for a search.
        runs: Those in sweep.json; empty for a search.
        lessons: Of a population, oldest first.
    """

    kind: Kind
    varied: tuple[str, ...]
    planned: int | None
    minutes: float | None
    runs: tuple[PlannedRecord, ...] = ()
    lessons: tuple[LessonRecord, ...] = ()


def read_index(folder: Path) -> SweepFile:
    """Read the sweep.json of a directory.

    Raises:
        ConfigError: It is damaged.
        FileNotFoundError: There is none.
    """
    path = folder / INDEX
    try:
        return _read(SweepFile, {INDEX: read_small(path, MOST_BYTES[INDEX])}, INDEX)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}; restore it, or remove it: the runs stay") from error


def sweep_of(files: Mapping[str, bytes]) -> SweepFiles | None:
    """Return what the files of a directory say; None if it is not that of a sweep.

    Args:
        files: Name -> content, of those of `FILES` that are there.

    Raises:
        ConfigError: One of them is damaged.
    """
    if SWEEP not in files and SEARCH not in files:
        return None
    described = _mapping(files, SWEEP if SWEEP in files else SEARCH)
    vary = described.get("vary")
    varied = tuple(map(str, vary)) if isinstance(vary, dict) else ()
    index = _read(SweepFile, files, INDEX)
    if POPULATION in files:
        population = _read(_Population, files, POPULATION)
        return SweepFiles("population", varied, len(population.members), index.minutes, index.runs, population.lessons)
    if SWEEP in files:
        return SweepFiles("sweep", varied, index.planned, index.minutes, index.runs)
    trials = described.get("trials", _USUAL_TRIALS)
    return SweepFiles("search", varied, trials if type(trials) is int else None, None)


_USUAL_TRIALS = 30
"""The default of `trials` in search.yaml, which is written there only where it differs."""


def _mapping(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    try:
        return parse_mapping(files[name].decode(), f"file {name}")
    except UnicodeDecodeError as error:
        raise ConfigError(f"file {name} is not UTF-8 text") from error


Model = TypeVar("Model", bound=BaseModel)


def _read(model: type[Model], files: Mapping[str, bytes], name: str) -> Model:
    if name not in files:
        return model()
    try:
        return model.model_validate_json(files[name])
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise ConfigError(f"file {name} is damaged: {where or 'the file'}: {problem['msg']}") from error
