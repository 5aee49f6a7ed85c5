"""Commands as bytes, by the RESP protocol; a long value is sent from where it is, where redis-py copies it."""

from collections.abc import Sequence
from functools import lru_cache

from distrl.memory_backend.engine import Command, Value

_LONG_BYTES = 262_144
"""Size from which a value is sent by itself: another system call costs less than copying it."""
_SHORT_TEXT = 64
"""Longest text in characters whose packed form is cached; heartbeats, for example, never recur."""


def packed(commands: Sequence[Command]) -> list[bytes]:
    """Encode commands by the RESP protocol: arrays of strings with their lengths.

    Args:
        commands: Values are sent as they are if bytes, and as their text otherwise.

    Returns:
        Pieces to send one after the other; a long value is a piece of its own, not copied.
    """
    pieces: list[bytes] = []
    text: list[bytes] = []
    for command in commands:
        text.append(b"*%d\r\n" % len(command))
        for value in command:
            if type(value) is not bytes:
                recurs = type(value) is str and len(value) < _SHORT_TEXT
                text.append(_remembered(value) if recurs else _written(value))
            elif len(value) < _LONG_BYTES:
                text.append(b"$%d\r\n%b\r\n" % (len(value), value))
            else:
                text.append(b"$%d\r\n" % len(value))
                pieces += (b"".join(text), value)
                text = [b"\r\n"]
    pieces.append(b"".join(text))
    return pieces


def _written(value: Value) -> bytes:
    if not isinstance(value, str | int | float):
        raise TypeError(f"a value of a command is bytes, str, int or float, not {type(value).__name__}")
    data = str(value).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


_remembered = lru_cache(maxsize=1024)(_written)  # names of commands, keys and fields, which are the same all the time
