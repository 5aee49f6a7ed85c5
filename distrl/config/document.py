"""YAML as distrl reads and writes it: plain data only, no duplicate keys, and 1e-3 is a number."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import yaml

from distrl.errors import ConfigError, one_line

_FLOAT_TAG = "tag:yaml.org,2002:float"
_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"
# YAML 1.1 wants a dot and a signed exponent and reads `1e-3` as text; YAML 1.2, JSON and people do not.
_EXPONENT = re.compile(r"^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$")
_SHORT = 100
"""Most characters of a text whose line of YAML is remembered."""
_JOINER = "\N{ZERO WIDTH JOINER}"
MOST_VALUES = 100_000
"""Most values in one document, each counted as often as it is referred to: aliases multiply a few lines."""
_MOST_BITS = 4096  # Python refuses to write longer numbers in decimal
DEEPEST = 64
"""Most levels of mappings and lists in one document; Pydantic and JSON allow some 200."""
# One resolver table for reading and writing, so that the writer quotes exactly what the reader would take for a number.
_RESOLVERS = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP_TAG]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _first in "-+.0123456789":
    _RESOLVERS[_first] = [*_RESOLVERS.get(_first, []), (_FLOAT_TAG, _EXPONENT)]


_MISFIT = (AttributeError, LookupError)
"""PyYAML raises these for a value that its tag does not fit: `!!timestamp 0`, `!!int ""`."""
_READ_APART = re.compile(r"[\t\ufeff!|>?]")
"""Signs that libyaml accepts elsewhere than PyYAML does, or reads as another value."""


class _Rules(yaml.composer.Composer, yaml.constructor.SafeConstructor):
    """Safe data, without dates and without silently overwritten keys."""

    yaml_implicit_resolvers = _RESOLVERS
    _nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose up to so many keys and values, so that the rest of an endless document is not read."""
        self._nodes += 1
        if self._nodes > 2 * MOST_VALUES:
            mark = self.peek_event().start_mark  # type: ignore[attr-defined]
            raise yaml.composer.ComposerError(None, None, f"more than {MOST_VALUES} values", mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Flatten a mapping of up to so many keys."""
        super().flatten_mapping(node)
        if len(node.value) > MOST_VALUES:
            raise yaml.constructor.ConstructorError(None, None, f"more than {MOST_VALUES} values", node.start_mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse duplicate keys."""
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"):
            if key.value in seen:
                problem = f"the key {key.value!r} is there twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


class _Loader(_Rules, yaml.SafeLoader):
    """Reports in one line where a text is not YAML."""


_Fast: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
"""PyYAML that was built without libyaml reads slowly."""


class _FastLoader(_Rules, _Fast):  # type: ignore[misc]
    """Reads in a sixth of the time, by libyaml, whose errors have other words."""

    def __init__(self, text: str) -> None:
        yaml.composer.Composer.__init__(self)
        _Fast.__init__(self, text)


class _Dumper(yaml.SafeDumper):
    """The safe dumper over the loader's table."""

    yaml_implicit_resolvers = _RESOLVERS


def parse(text: str, what: str) -> Any:
    """Parse YAML as plain data: mappings with text keys, lists, text, numbers, booleans, null.

    Args:
        what: Name of the text in errors, like "file run.yaml" or "--set actors.count".

    Raises:
        ConfigError: Not YAML, a key twice, or a value that is not plain data.
    """
    try:
        value = _data(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{what} is not valid YAML: {_one_line(error)}") from error
    except _MISFIT as error:
        raise ConfigError(f"{what} is not valid YAML: a value does not fit its tag; remove the tag (!!)") from error
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"{what} is not valid YAML: {one_line(error)}") from error
    check_plain(value, what)
    return value


def _data(text: str) -> Any:
    if not _READ_APART.search(text):
        # Where libyaml refuses a text, the other loader reports the reason.
        with suppress(yaml.YAMLError, RecursionError, ValueError):
            return _FastLoader(text).get_single_data()
    loader = _Loader(text)  # refuses control characters already here
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def parse_mapping(text: str, what: str) -> dict[str, Any]:
    """Parse a whole document as a mapping; an empty document is an empty mapping.

    Raises:
        ConfigError: As `parse`, or the document is not a mapping.
    """
    value = parse(text, what)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{what} must hold a mapping like 'actors: {{count: 4}}', not {shown(value)}")
    return value


def lines_of(text: str) -> dict[str, int]:
    """Return dotted path -> number of its line from 1, of the keys of a document; empty if it is not YAML."""
    found: dict[str, int] = {}
    left = MOST_VALUES  # each key is counted as often as an alias names it: two keys may have one dotted path

    def walk(node: yaml.Node | None, path: tuple[str, ...]) -> None:
        nonlocal left
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            left -= 1
            if left < 0 or len(path) >= DEEPEST:
                return
            if isinstance(key, yaml.ScalarNode):  # the text of another node may be endless
                place = (*path, key.value)
                found.setdefault(".".join(place), key.start_mark.line + 1)
                walk(value, place)

    try:
        walk(yaml.compose(text, _Loader), ())
    except (yaml.YAMLError, RecursionError):
        return {}
    return found


def flat(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (keys, value) of a tree in order; an empty mapping is a value."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, (*path, key))
        else:
            yield (*path, key), value


def scalar(value: Any) -> str:
    """Return one line of YAML that `parse` reads back as `value`; lists and mappings are written inline."""
    if isinstance(value, dict | list) and not value:
        return "{}" if isinstance(value, dict) else "[]"
    return _remembered(value) if _is_short(value) else _scalar(value)


def _is_short(value: Any) -> bool:
    """Whether the line of a value is remembered: the dashboard writes the same ones for thousands of runs."""
    if isinstance(value, str):
        return len(value) <= _SHORT
    # As keys, 0.0 and -0.0 are one.
    return value is None or isinstance(value, int) or (isinstance(value, float) and value != 0.0)


@lru_cache(maxsize=4096, typed=True)
def _remembered(value: str | float | None) -> str:
    return _scalar(value)


def _scalar(value: Any) -> str:
    text = _dump(value, None)
    # Text with line breaks would be folded over several lines, and marks of direction would show it as another text.
    # Double quotes write it on one line, with escapes.
    return text if text.isprintable() or not any(map(_is_hidden, text)) else _dump(value, '"')


def _is_hidden(character: str) -> bool:
    """Whether a character is a control, a mark of format, or a line end; the joiner of emoji is part of a picture."""
    return character != _JOINER and unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")


def shown(value: Any, limit: int = 60) -> str:
    """Return a value in one line of bounded length, for error messages."""
    text = "null" if value is None else repr(value) if isinstance(value, str) else scalar(value)
    text = one_line(text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _dump(value: Any, style: str | None) -> str:
    options: dict[str, Any] = {"default_flow_style": True, "width": 2**31, "sort_keys": False}
    text: str = yaml.dump(value, Dumper=_Dumper, default_style=style, allow_unicode=style is None, **options)
    return text.removesuffix("\n").removesuffix("...").removesuffix("\n")


def _one_line(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or str(error)
    mark = getattr(error, "problem_mark", None)
    place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
    return one_line(problem) + place


def check_plain(value: Any, what: str) -> None:
    """Check that a value is plain data: text, numbers, booleans, null, lists, and mappings with text keys.

    Args:
        what: Name of the value in errors, as in `parse`.

    Raises:
        ConfigError: The value has other types, text that UTF-8 cannot hold, too many values or too many levels.
    """
    left, values = MOST_VALUES, [(value, 0)]
    while values:
        each, level = values.pop()
        left -= 1
        if left < 0:
            raise ConfigError(f"{what} has more than {MOST_VALUES} values, each counted as often as an alias names it")
        if level > DEEPEST:
            raise ConfigError(f"{what} has more than {DEEPEST} levels of mappings and lists; make it flatter")
        if isinstance(each, Mapping):
            for key in each:
                if not isinstance(key, str):
                    raise ConfigError(f"{what}: the key {shown(key)} must be text; write it in quotes")
                _check_text(key, what)
            values += [(inner, level + 1) for inner in each.values()]
        elif isinstance(each, list | tuple):
            values += [(inner, level + 1) for inner in each]
        elif isinstance(each, str):
            _check_text(each, what)
        else:
            _check_number(each, what)


def _check_number(value: Any, what: str) -> None:
    if not isinstance(value, int | float | bool | None):
        raise ConfigError(f"{what}: a value of type {type(value).__name__} is not plain data")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ConfigError(f"{what} has a whole number of {value.bit_length():,} bits, more than {_MOST_BITS:,}")


def _check_text(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{what}: {ascii(text)[:60]} has the half character {text[error.start]!a}, which UTF-8 cannot hold; "
            "write the whole character"
        ) from error
