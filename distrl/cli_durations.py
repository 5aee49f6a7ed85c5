"""Lengths of time as people write them on a command line: 90, 90s, 5m, 1h."""

import re

import typer

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)([smh]?)")


def seconds(text: str | float) -> float:
    """'90', '90s', '1.5m' or '1h' in seconds; a default as it is.

    Raises:
        typer.BadParameter: It is none of these, or shorter than a second.
    """
    found = _LENGTH.fullmatch(str(text))
    length_s = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if length_s < 1.0:
        raise typer.BadParameter(f"{text!r} is not a length of time of a second or more; write 90, 90s, 5m or 1h")
    return length_s
