"""Files of a run directory that are small as distrl writes them; a larger one is refused before it is read."""

import os
import stat
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from distrl.errors import ConfigError

MOST_BYTES = 2**20
Model = TypeVar("Model", bound=BaseModel)


def open_at_once(path: str, flags: int) -> int:
    """`os.open` that does not wait for a writer where a pipe lies in place of the file."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_small(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        ConfigError: The file is larger, or it is no regular file; a pipe would block its reader for ever.
        OSError: It cannot be read.
    """
    with open(path, "rb", opener=open_at_once) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"{path} is not a regular file")
        content = file.read(most + 1)
    if len(content) > most:
        raise ConfigError(f"{path} is damaged: it has {found.st_size:,} bytes, more than {most:,}")
    return content


def read_model(model: type[Model], path: Path) -> Model:
    """Read a model from a JSON file."""
    try:
        return model.model_validate_json(read_small(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise ConfigError(f"{path} is damaged: {where or 'the file'}: {problem['msg']}") from error
