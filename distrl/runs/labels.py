"""labels.json: the name to show, tags and note that a user gives a run, and whether it is archived.

The file lies in the run's directory, so that labels move and are copied with the run.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from distrl.data_store.atomic import put_file
from distrl.errors import ConfigError
from distrl.files import read_small

FILE = "labels.json"
MOST_BYTES = 2**15
"""Largest file that is read."""
MOST_TAGS = 20
MOST_NOTE = 2000
Valid = TypeVar("Valid")
# Control characters that terminals obey, and marks that change the direction or the lines of the text around them.
_UNSEEN = r"\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069"
Tag = Annotated[str, StringConstraints(pattern=rf'^[^\s",\x00-\x1f{_UNSEEN}]{{1,40}}$')]


class Labels(BaseModel):
    """The labels of a run.

    Attributes:
        name: Name to show in place of the directory's; "" for none. At most 80 characters, one line.
        tags: At most 20, each of at most 40 characters without spaces, commas and quotation marks.
        note: At most 2000 characters.
        archived: Whether lists leave the run out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[
        str, StringConstraints(pattern=rf"^[^\x00-\x1f{_UNSEEN}]*$", max_length=80, strip_whitespace=True)
    ] = ""
    tags: Annotated[tuple[Tag, ...], Field(max_length=MOST_TAGS)] = ()
    note: Annotated[str, StringConstraints(pattern=rf"^[^\x00-\x08\x0b-\x1f{_UNSEEN}]*$", max_length=MOST_NOTE)] = ""
    archived: bool = False

    @classmethod
    def read(cls, run_dir: Path) -> Self:
        """Read the labels of a run; none where there is no file.

        Raises:
            ConfigError: The file is damaged, too large, or no file of the run's own.
        """
        path = run_dir / FILE
        if path.is_symlink():
            raise ConfigError(f"{path} is a link; remove it")
        try:
            return cls.checked(read_small(path, MOST_BYTES))
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        except ConfigError as error:
            told = str(error)
            raise ConfigError(told if str(path) in told else f"{path} is damaged: {told}") from error

    @classmethod
    def checked(cls, content: bytes) -> Self:
        """Parse JSON, or raise ConfigError."""
        return cls._valid(cls.model_validate_json, content)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the labels with these values, or raise ConfigError."""
        return cls._valid(cls.model_validate, values)

    @staticmethod
    def _valid(validate: Callable[[Any], Valid], data: Any) -> Valid:
        try:
            return validate(data)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in problem["loc"]) or "labels"
            raise ConfigError(f"{where}: {_RULES.get(where.partition('.')[0], problem['msg'])}") from error

    def write(self, run_dir: Path) -> None:
        """Create or replace the file."""
        path = run_dir / FILE
        if path.is_symlink():
            raise ConfigError(f"{path} is a link; remove it")
        put_file(path, self.model_dump_json(indent=1).encode() + b"\n")

    def tagged(self, add: tuple[str, ...] = (), remove: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the tags with some added and some removed, without regard to case."""
        away = {tag.lower() for tag in remove}
        kept = {tag.lower(): tag for tag in (*add, *self.tags) if tag.lower() not in away}
        return tuple(kept[name] for name in sorted(kept, key=_natural))


_RULES = {
    "name": "one line of at most 80 characters",
    "tags": f"at most {MOST_TAGS} words of at most 40 characters, without spaces, commas and quotation marks",
    "note": f"a text of at most {MOST_NOTE} characters",
}


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """Return a sort key by which v9 comes before v10."""
    parts = re.split(r"(\d+)", text)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
