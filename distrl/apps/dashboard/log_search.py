"""Levels of log lines, search in a log, and a log as a download. All of it on text whose secrets are masked."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from distrl.apps.dashboard.files import inside, log_piece, require_log_name, shown
from distrl.config.secrets import masked_text
from distrl.files import open_regular

Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)
SCAN_BYTES = 4 * 2**20
"""Most bytes of a log's end that one search reads."""
MOST_MATCHES = 200
MOST_DOWNLOAD_BYTES = 2**30

_ROLE_LINE = re.compile(r"\d{4}-\d\d-\d\d \S+ .{1,40}? (DEBUG|INFO|WARNING|ERROR|CRITICAL) ")
_OTHER_LINE = re.compile(r"(?:([IWEF])\d{4} [\d:.]+ |(WARNING|ERROR|INFO|DEBUG)\b|(Traceback) )")
_BY_WORD: dict[str, Level] = {
    **{"DEBUG": "debug", "INFO": "info", "WARNING": "warning", "ERROR": "error", "CRITICAL": "error"},
    **{"I": "info", "W": "warning", "E": "error", "F": "error", "Traceback": "error"},
}


class SearchLine(NamedTuple):
    """A line of a log; `level` is "" where it continues a line that is not known."""

    level: Level | Literal[""]
    text: str


class Matches(NamedTuple):
    """Result of a search.

    Attributes:
        lines: The newest matches, oldest first, at most `MOST_MATCHES`.
        found: All matches in the bytes that were read.
        scanned_bytes: Bytes of the log's end that were read.
        size_bytes: Size of the log.
    """

    lines: Sequence[SearchLine]
    found: int
    scanned_bytes: int
    size_bytes: int


def levelled(text: str) -> list[SearchLine]:
    """Return the lines with their levels; a line without one has that of the line before."""
    lines: list[SearchLine] = []
    level: Level | Literal[""] = ""
    for line in text.splitlines():
        found = _ROLE_LINE.match(line) or _OTHER_LINE.match(line)
        if found is not None:
            level = _BY_WORD[next(filter(None, found.groups()))]
        lines.append(SearchLine(level, line))
    return lines


def search(run_dir: Path, role: str, words: Sequence[str], least: Level) -> Matches:
    """Search the end of a role's log.

    Args:
        words: All must occur in a line, in any case.
        least: Lowest level of matches; lines of unknown level count as "info".
    """
    require_log_name(role)
    with open_regular(inside(run_dir, "logs", f"{role}.log")) as file:
        size = file.seek(0, 2)
        begin = file.seek(max(size - SCAN_BYTES, 0))
        read = file.read(SCAN_BYTES)
    if begin:  # the first line is incomplete, and masking needs whole lines
        read = read[read.find(b"\n") + 1 :] if b"\n" in read else b""
    wanted, low = [word.lower() for word in words], LEVELS.index(least)
    lines = levelled(shown(masked_text(read.decode(errors="replace"))))
    found = [line for line in lines if LEVELS.index(line.level or "info") >= low and _has(line.text, wanted)]
    return Matches(found[-MOST_MATCHES:], len(found), len(read), size)


def whole(run_dir: Path, role: str) -> Iterator[str]:
    """Yield a role's log as it is now, piece by piece, at most `MOST_DOWNLOAD_BYTES`."""
    require_log_name(role)
    size = min(inside(run_dir, "logs", f"{role}.log").stat().st_size, MOST_DOWNLOAD_BYTES)
    return _pieces(run_dir, role, size)


def tail(run_dir: Path, role: str, lines: int) -> list[SearchLine]:
    """Return the last lines of a role's log."""
    return levelled(log_piece(run_dir, role, None).text)[-lines:]


def _pieces(run_dir: Path, role: str, size: int) -> Iterator[str]:
    after = 0
    while after < size:
        piece = log_piece(run_dir, role, after)
        if piece.after <= after:  # it was cut meanwhile
            return
        yield piece.text
        after = piece.after


def _has(text: str, words: Sequence[str]) -> bool:
    low = text.lower()
    return all(word in low for word in words)
