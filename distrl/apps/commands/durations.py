"""Lengths of time on a command line."""

import re
from typing import Any

import typer

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)([smh]?)")


def seconds(text: str | float) -> float:
    """Parse '90', '90s', '1.5m' or '1h', a second or more, as seconds."""
    found = _LENGTH.fullmatch(str(text))
    length_s = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if length_s < 1.0:
        raise typer.BadParameter(f"{text!r} is not a length of time of a second or more; write 90, 90s, 5m or 1h")
    return length_s


def duration_option(text: str, *names: str) -> Any:
    """Return an option that takes a length of time, as seconds."""
    return typer.Option(*names, parser=seconds, metavar="TIME", help=text)
