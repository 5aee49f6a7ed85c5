"""Files of a run that the dashboard may read: regular ones inside the run's directory, with secrets masked."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from distrl.config.secrets import masked_text
from distrl.errors import ConfigError

TAIL_BYTES = 64 * 1024
"""Size of the end of a log that is shown first."""
PIECE_BYTES = 256 * 1024
"""Most bytes of a log that are read at once."""
MOST_EVENTS = 500
FILMS = {".webm": "video/webm", ".mp4": "video/mp4"}
"""Suffix -> media type."""
_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_EVENT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (.*)")


class NotThereError(ConfigError):
    """A file or run that does not exist, or lies outside the run's directory."""


class Piece(NamedTuple):
    """Part of a log, and the first byte of the next part."""

    text: str
    after: int


class Event(NamedTuple):
    """One line of logs/events.log; `time` is local time as written, "" in a line without one."""

    time: str
    text: str


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


def log_piece(run_dir: Path, role: str, after: int | None) -> Piece:
    """Return a role's log from `after` to the last whole line; None: the end of its log."""
    if not _ROLE.fullmatch(role):
        raise NotThereError("no role has a log of that name")
    path = inside(run_dir, "logs", f"{role}.log")
    with path.open("rb") as file:
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
    return Piece(_shown(masked_text(read[:whole].decode(errors="replace"))), begin + whole)


def events(run_dir: Path) -> list[Event]:
    """Return the newest of the run's events, oldest first; empty if the file cannot be read."""
    try:
        with inside(run_dir, "logs", "events.log").open("rb") as file:
            begin = file.seek(max(file.seek(0, 2) - PIECE_BYTES, 0))
            lines = file.read(PIECE_BYTES).decode(errors="replace").splitlines()[1 if begin else 0 :]
    except (NotThereError, OSError):
        return []
    # Without an incomplete first line: masking needs whole lines.
    return [_event(line) for line in lines[-MOST_EVENTS:]]


def film(run_dir: Path) -> Path | None:
    """Return the newest film in the run's directory."""
    there = [path for pattern in ("*.*", "*/*.*") for path in run_dir.glob(pattern) if path.suffix.lower() in FILMS]
    own = [own_file(run_dir, *path.relative_to(run_dir).parts) for path in there if not path.name.startswith(".")]
    return max(filter(None, own), key=lambda path: path.stat().st_mtime, default=None)


def _shown(text: str) -> str:
    """Replace characters that are not printable: escape sequences, and marks that change the direction of text."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\r\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def _event(line: str) -> Event:
    found = _EVENT.fullmatch(line)
    told: Sequence[str] = ("", line) if found is None else found.groups()
    return Event(told[0], _shown(masked_text(told[1])))
