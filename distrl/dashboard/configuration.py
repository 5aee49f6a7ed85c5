"""config.yaml as pages show it: every value with its origin, and secrets masked."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from distrl.config.document import parse_mapping, scalar
from distrl.config.secrets import masked, masked_text
from distrl.dashboard.files import inside
from distrl.errors import ConfigError


class Leaf(NamedTuple):
    """One value; `origin` is "" where the file does not tell."""

    path: str
    value: Any
    origin: str


def read_configuration(run_dir: Path) -> list[Leaf]:
    """Every value of a run's configuration in the file's order, fit to be shown.

    Raises:
        NotThereError: The run has no config.yaml.
        ConfigError: It is damaged.
    """
    path = inside(run_dir, "config.yaml")
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"config.yaml cannot be read: {error.strerror}") from error
    return [*leaves(text)]


def leaves(text: str) -> Iterator[Leaf]:
    """The values in what `distrl.config.load.dump` wrote; their origins are its comments.

    Raises:
        ConfigError: Not a mapping in YAML.
    """
    lines = iter(text.splitlines())
    for keys, value in _flat(parse_mapping(text, "config.yaml"), ()):
        written = f"{'  ' * (len(keys) - 1)}{scalar(keys[-1])}: {scalar(value)}"
        # What a hand has written in another way is passed over with its origin.
        line = next((line for line in lines if line.startswith(f"{'  ' * (len(keys) - 1)}{scalar(keys[-1])}:")), "")
        comment = line.removeprefix(written).lstrip() if line.startswith(written) else ""
        yield Leaf(".".join(keys), masked(".".join(keys), value), masked_text(comment.removeprefix("# ")))


def _flat(tree: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, (*path, key))
        else:
            yield (*path, key), value
