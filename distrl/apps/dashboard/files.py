"""Files of a run that the dashboard may read: regular ones inside the run's directory, with secrets masked."""

import hashlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from distrl.apps.dashboard.severities import Severity, severity
from distrl.config.secrets import masked_text
from distrl.errors import ConfigError
from distrl.files import open_regular, read_end
from distrl.runs.directories import readable

TAIL_BYTES = 64 * 1024
"""Size of the end of a log that is shown first."""
PIECE_BYTES = 256 * 1024
"""Most bytes of a log that are read at once."""
MOST_EVENTS = 500
MOST_FILMS = 200
FILMS = {".webm": "video/webm", ".mp4": "video/mp4"}
"""Suffix -> media type."""
_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FILM_STEPS = re.compile(r"steps-(\d{1,15})(?:-\d+)?\.\w+$")
_UNUSUAL = re.compile(r"[^\n\r\t\x20-\x7e]")
_EVENT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (.*)")


class NotThereError(ConfigError):
    """A file or run that does not exist, or lies outside the run's directory."""


class LogPart(NamedTuple):
    """Part of a log, and the first byte of the next part."""

    text: str
    after: int


class Event(NamedTuple):
    """One line of logs/events.log; `time` is local time as written, "" in a line without one.

    Attributes:
        at: The same in seconds since 1970; None in a line without one.
    """

    time: str
    text: str
    severity: Severity
    at: float | None


class Film(NamedTuple):
    """A film in a run's directory.

    Attributes:
        name: Path below the run's directory, by which it is requested.
        env_steps: Environment steps behind the weights that it shows; None: its name does not say.
        saved: When it was written, in seconds since 1970.
    """

    name: str
    env_steps: int | None
    is_best: bool
    saved: float
    size_bytes: int


def inside(run_dir: Path, *parts: str) -> Path:
    """Return the path of a regular file of a run."""
    path = run_dir.joinpath(*parts)
    try:
        resolved, home = path.resolve(strict=True), run_dir.resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:  # not there; a name with a null; a ring of links
        raise NotThereError(f"the run has no {'/'.join(parts)}") from error
    if not resolved.is_relative_to(home) or not resolved.is_file():
        raise NotThereError(f"the run has no file {'/'.join(parts)} of its own")
    return resolved


def own_file(run_dir: Path, *parts: str) -> Path | None:
    """Return the path of a regular file of a run, or None if there is none."""
    try:
        return inside(run_dir, *parts)
    except NotThereError:
        return None


def id_of(path: str) -> str:
    """Return the id of a run in addresses, a hash of its path below the root."""
    return hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:16]


def log_names(run_dir: Path) -> list[str]:
    """Return the names of the roles' logs, logs/*.log without the suffix."""
    names = sorted(path.stem for path in (run_dir / "logs").glob("*.log") if path.stem != "events")
    return [name for name in names if _ROLE.fullmatch(name) and own_file(run_dir, "logs", f"{name}.log")]


def require_log_name(role: str) -> None:
    """Raise NotThereError for a text that is not the name of a log."""
    if not _ROLE.fullmatch(role):
        raise NotThereError("no role has a log of that name")


def log_piece(run_dir: Path, role: str, after: int | None) -> LogPart:
    """Return a role's log from `after` to the last whole line; None: the end of its log."""
    require_log_name(role)
    path = inside(run_dir, "logs", f"{role}.log")
    with open_regular(path) as file:
        size = file.seek(0, 2)
        from_end = after is None or after > size  # longer than the file: the log was started again
        begin = max(size - TAIL_BYTES, 0) if from_end or after is None else after
        file.seek(max(begin - 1, 0))
        before = file.read(1) if begin > 0 else b"\n"
        read = file.read(PIECE_BYTES)
    if before != b"\n":  # the first line is incomplete, and masking needs whole lines
        torn = read.find(b"\n") + 1
        begin, read = begin + (torn or len(read)), read[torn:] if torn else b""
    whole = read.rfind(b"\n") + 1 or len(read)
    return LogPart(shown(masked_text(read[:whole].decode(errors="replace"))), begin + whole)


def events(run_dir: Path) -> list[Event]:
    """Return the newest of the run's events, oldest first; empty if the file cannot be read."""
    try:
        lines = read_end(inside(run_dir, "logs", "events.log"), PIECE_BYTES).decode(errors="replace").splitlines()
    except (NotThereError, OSError):
        return []
    # Without an incomplete first line: masking needs whole lines.
    return [_event(line) for line in lines[-MOST_EVENTS:]]


def films(run_dir: Path) -> list[Film]:
    """Return the films in the run's directory and directly below it, by the steps that they show, others last.

    Of more than `MOST_FILMS` the newest.
    """
    there = [path for pattern in ("*.*", "*/*.*") for path in run_dir.glob(pattern) if path.suffix.lower() in FILMS]
    found = []
    for path in there:
        parts = path.relative_to(run_dir).parts
        own = None if path.name.startswith(".") else own_file(run_dir, *parts)
        if own is not None and not any((run_dir / Path(*parts[:depth])).is_symlink() for depth in (1, 2)):
            found.append(_film("/".join(parts), own.stat()))
    newest = sorted(found, key=lambda one: one.saved)[-MOST_FILMS:]
    return sorted(newest, key=lambda one: (one.env_steps is None, one.env_steps or 0, one.is_best, one.name))


def film(run_dir: Path, name: str) -> Path:
    """Return the path of one of `films`."""
    if name not in {one.name for one in films(run_dir)}:
        raise NotThereError("the run has no film of that name; distrl evaluate RUN --video RUN/best.webm makes one")
    return inside(run_dir, *name.split("/"))


def shown(text: str) -> str:
    """Make characters visible that are not printable: escape sequences, and marks that change the direction of text."""
    return _UNUSUAL.sub(_visible, text)


def _visible(found: re.Match[str]) -> str:
    letter = found[0]
    if letter.isprintable():
        return letter
    return (
        chr(0x2400 + ord(letter))
        if letter < " "
        else f"\N{MATHEMATICAL LEFT ANGLE BRACKET}U+{ord(letter):04X}\N{MATHEMATICAL RIGHT ANGLE BRACKET}"
    )


def _film(name: str, status: os.stat_result) -> Film:
    steps = _FILM_STEPS.search(name)
    readable_name = readable(name)
    return Film(
        readable_name, int(steps[1]) if steps else None, name == "films/best.webm", status.st_mtime, status.st_size
    )


def _event(line: str) -> Event:
    found = _EVENT.fullmatch(line)
    told: Sequence[str] = ("", line) if found is None else found.groups()
    text = shown(masked_text(told[1]))
    return Event(told[0], text, severity(text), _unix_s(told[0]))


def _unix_s(moment: str) -> float | None:
    try:
        return time.mktime(time.strptime(moment, "%Y-%m-%d %H:%M:%S"))
    except (ValueError, OverflowError):
        return None
