"""A run's config.yaml as it is read later: every value under its dotted path, with its origin.

It is not checked against today's configuration, so that runs of older versions can be looked at, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from distrl.config.document import parse_mapping, scalar
from distrl.config.presets import nearest
from distrl.config.secrets import masked
from distrl.errors import ConfigError


class Setting(NamedTuple):
    """One value, and where it came from: "default", "flag --actors" and so on; "" where the file does not say."""

    value: Any
    origin: str

    @property
    def text(self) -> str:
        """One line of YAML."""
        return scalar(self.value)


Settings = Mapping[str, Setting]
"""Dotted path -> value, in the file's order."""


def read_settings(path: Path) -> Settings:
    """The settings in a file config.yaml, secrets masked.

    Raises:
        ConfigError: The file cannot be read or is not YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    origins = _origins(text)
    return {
        dotted: Setting(masked(dotted, value), origins.get(dotted, ""))
        for dotted, value in leaves(parse_mapping(text, f"file {path}"))
    }


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) in order; an empty mapping is a value."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def different(runs: Sequence[Settings]) -> list[str]:
    """Dotted paths whose values are not the same in all of them, in order; what one of them lacks is not the same."""
    paths = dict.fromkeys(dotted for settings in runs for dotted in settings)
    return [dotted for dotted in paths if len({_text(settings, dotted) for settings in runs}) > 1]


def value_of(settings: Settings, dotted: str) -> str:
    """The value of a path, or of all that is below it, in one line.

    Raises:
        ConfigError: No such path; names the nearest ones.
    """
    if dotted in settings:
        return settings[dotted].text
    below = {path.removeprefix(f"{dotted}."): each.value for path, each in settings.items() if _is_in(path, dotted)}
    if not below:
        raise ConfigError(f"unknown configuration key {dotted!r}; {nearest(dotted, [*settings])}")
    return scalar(below)


def _is_in(path: str, section: str) -> bool:
    return path.startswith(f"{section}.")


def _text(settings: Settings, dotted: str) -> str | None:
    return settings[dotted].text if dotted in settings else None


def _origins(text: str) -> dict[str, str]:
    """Dotted path -> the comment that `load.dump` puts behind its value."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in text.splitlines():
        content, mark, origin = line.rpartition("  # ")
        key, _, _ = (content if mark else line).lstrip().partition(":")
        depth = (len(line) - len(line.lstrip())) // 2
        above = [*above[:depth], key.strip("'\"")]
        if mark:
            found[".".join(above)] = origin
    return found
