"""The form of a role's log lines: time with its distance from UTC, role, level, text."""

import logging
from datetime import datetime
from typing import Any

from distrl.errors import bounded

LONGEST_TRACEBACK = 20_000
"""In characters; the line of the error behind it has its own bound."""


class RoleLines(logging.Formatter):
    """Formats the lines of one role; their times can be compared with those of hosts in other time zones."""

    def __init__(self, name: str) -> None:
        super().__init__(f"%(asctime)s {name} %(levelname)s %(message)s")

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Return the traceback, whose errors may have texts of any length."""
        return bounded(super().formatException(ei), LONGEST_TRACEBACK)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Return the local time to a millisecond, as 2026-01-02 03:04:05.678+01:00."""
        return moment(record.created)


def moment(at: float) -> str:
    """Return a time in seconds since 1970 as log lines have it."""
    return datetime.fromtimestamp(at).astimezone().isoformat(sep=" ", timespec="milliseconds")
