"""A run's configuration and its `meta` facts as Markdown, for TensorBoard's Text tab."""

from collections.abc import Mapping
from typing import Any

from distrl.config.document import flat, scalar
from distrl.config.settings import Settings


def settings_text(settings: Settings) -> str:
    """Return a table of every value with its path and origin."""
    rows = [[path, setting.text, setting.origin] for path, setting in settings.items()]
    return _table(["setting", "value", "from"], rows)


def meta_text(meta: Mapping[str, Any]) -> str:
    """Return nested data, each name with its value.

    Lists of equally long lists become tables, other lists one line; names of nested mappings are joined by dots.
    """
    return "\n\n".join(f"**{_cell('.'.join(name))}**{_value(value)}" for name, value in flat(meta))


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
    """Return one line without cell separators."""
    text = value if isinstance(value, str) else scalar(value)
    return " ".join(text.split()).replace("|", "\\|")
