"""A run's configuration, and what else is told of it, as Markdown: what TensorBoard shows as text."""

from collections.abc import Iterator, Mapping
from typing import Any

from distrl.config.document import scalar
from distrl.config.settings import Settings


def settings_text(settings: Settings) -> str:
    """A table of every value under its path, with where it came from."""
    rows = [[path, setting.text, setting.origin] for path, setting in settings.items()]
    return _table(["setting", "value", "from"], rows)


def meta_text(meta: Mapping[str, Any]) -> str:
    """Nested data, each name with what it holds.

    Lists of equally long lists are tables, a row each; other lists stand in one line; a mapping's names are joined to
    its own by dots.
    """
    return "\n\n".join(f"**{_cell(name)}**{_value(value)}" for name, value in _flat(meta, ""))


def _flat(meta: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in meta.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _value(value: Any) -> str:
    if isinstance(value, list) and value and _are_rows(value):
        return f"\n\n{_table([str(index) for index in range(len(value[0]))], value)}"
    return f": {_cell(value)}"


def _are_rows(value: list[Any]) -> bool:
    rows = all(
        isinstance(row, list) and row and not any(isinstance(cell, list | dict) for cell in row) for row in value
    )
    return rows and len({len(row) for row in value}) == 1


def _table(header: list[str], rows: list[list[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: Any) -> str:
    """One line that ends no cell."""
    text = value if isinstance(value, str) else scalar(value)
    return " ".join(text.split()).replace("|", "\\|")
