"""A run's config.yaml read back: every value under its dotted path, with its origin.

It is not checked against today's configuration, so that runs of older versions can be read, too.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from distrl.config.document import flat, parse_mapping, scalar
from distrl.config.presets import nearest
from distrl.config.secrets import masked, masked_text
from distrl.errors import ConfigError
from distrl.files import read_small

_NOTE = re.compile(r" \(not used by \w+\)$")
"""The note that `distrl.config.load.dump` adds to the origin of an option that has no effect."""
_SHORT = 100
"""Most characters of a comment whose origin is remembered."""


class Setting(NamedTuple):
    """One value and its origin: "default", "flag --actors" and so on; "" where the file does not say."""

    value: Any
    origin: str

    @property
    def text(self) -> str:
        """One line of YAML."""
        return scalar(self.value)


_VAGUE = {(word,) for word in ("best", "count", "enabled", "every", "id", "keep", "values")}
"""Last parts of paths that say nothing without their section."""
Settings = Mapping[str, Setting]
"""Dotted path -> value, in the file's order."""
Leaves = Mapping[tuple[str, ...], Setting]
"""Keys -> value, in the file's order; a key may itself have a dot."""
MOST_BYTES = 2**18
"""Largest config.yaml that is read back, thirty times as large as distrl's own; YAML takes seconds to parse it."""


def read_settings(path: Path) -> Settings:
    """Read the settings in a file config.yaml, secrets masked."""
    return by_path(read_leaves(path))


def read_leaves(path: Path) -> Leaves:
    """Read the values in a file config.yaml, secrets masked."""
    try:
        text = read_small(path, MOST_BYTES).decode()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read: it is not UTF-8 text") from error
    return leaves_in(text, f"file {path}")


def settings_in(text: str, where: str) -> Settings:
    """Parse as `leaves_in`."""
    return by_path(leaves_in(text, where))


def by_path(leaves: Leaves) -> Settings:
    """Return the values by their dotted paths."""
    return {".".join(keys): setting for keys, setting in leaves.items()}


def leaves_in(text: str, where: str) -> Leaves:
    """Parse what `distrl.config.load.dump` wrote, secrets masked; origins are its comments.

    Args:
        where: Source of the text, for errors.
    """
    tree = parse_mapping(text, where)
    leaves = [(keys, value, f"{'  ' * (len(keys) - 1)}{scalar(keys[-1])}:") for keys, value in flat(tree)]
    lines, found, begin = text.splitlines(), {}, 0
    places = _places(lines, {key for *_, key in leaves})
    for keys, value, key in leaves:
        written = f"{key} {scalar(value)}"
        # A line that was edited by hand has no origin; those after it keep theirs.
        line, after = "", bisect_left(places[key], begin)
        if after < len(places[key]):
            line, begin = lines[places[key][after]], places[key][after] + 1
        comment = line.removeprefix(written).lstrip() if line.startswith(written) else ""
        origin = _short_origin(comment) if len(comment) <= _SHORT else _origin(comment)
        found[keys] = Setting(masked(".".join(keys), value), origin)
    return found


def _origin(comment: str) -> str:
    return masked_text(_NOTE.sub("", comment.removeprefix("# ")))


_short_origin = lru_cache(maxsize=1024)(_origin)
"""Most values have one of a few origins."""


def _places(lines: Sequence[str], keys: Collection[str]) -> Mapping[str, Sequence[int]]:
    """Return key, indented -> places of the lines that begin with it, in time that grows with the text alone."""
    found: dict[str, list[int]] = {key: [] for key in keys}
    lengths = sorted({len(key) for key in keys})
    for at, line in enumerate(lines):
        for length in lengths[: bisect_right(lengths, len(line))]:
            if (begin := line[:length]) in found:
                found[begin].append(at)
    return found


def leaves_of(tree: Mapping[str, Any]) -> Leaves:
    """Return the values of a configuration as data, secrets masked, without origins."""
    return {keys: Setting(masked(".".join(keys), value), "") for keys, value in flat(tree)}


def different(runs: Sequence[Settings]) -> list[str]:
    """Return the dotted paths whose values differ between the runs, in order; a missing value differs."""
    paths = dict.fromkeys(dotted for settings in runs for dotted in settings)
    return [dotted for dotted in paths if not _are_alike(runs, dotted)]


def short_names(paths: Iterable[str], among: Iterable[str]) -> dict[str, str]:
    """Return dotted path -> the shortest end of it that no other path has, and that says something by itself.

    Args:
        among: Every path that there is.
    """
    parts = {path: re.sub(r"\.(name|kind)$", "", path).split(".") for path in {*paths, *among}}
    counts = Counter(tuple(each[-length:]) for each in parts.values() for length in range(1, len(each) + 1))

    def short(path: str) -> str:
        ends = (tuple(parts[path][-length:]) for length in range(1, len(parts[path]) + 1))
        return next((".".join(end) for end in ends if counts[end] == 1 and end not in _VAGUE), path)

    return {path: short(path) for path in paths}


def value_of(settings: Settings, dotted: str) -> str:
    """Return the value of a path, or all values below it, in one line."""
    if dotted in settings:
        return settings[dotted].text
    below = {path.removeprefix(f"{dotted}."): each.value for path, each in settings.items() if _is_in(path, dotted)}
    if not below:
        raise ConfigError(f"unknown configuration key {dotted!r}; {nearest(dotted, [*settings])}")
    return scalar(below)


def _is_in(path: str, section: str) -> bool:
    return path.startswith(f"{section}.")


def _are_alike(runs: Sequence[Settings], dotted: str) -> bool:
    values = {repr(settings[dotted].value) if dotted in settings else None for settings in runs}
    # Few values differ, and writing YAML is slow.
    return len(values) <= 1 or len({_text(settings, dotted) for settings in runs}) <= 1


def _text(settings: Settings, dotted: str) -> str | None:
    return settings[dotted].text if dotted in settings else None
