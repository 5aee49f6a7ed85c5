"""The logs of a run's directory as one stream of lines, in the order of their times."""

import calendar
import heapq
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path

from distrl.apps.jobs.record import JOB_LOG
from distrl.apps.jobs.target import LogLine
from distrl.errors import ConfigError
from distrl.files import open_regular

POLL_S = 0.2
EVENT_LOG = "events.log"
_OF_JOB = {JOB_LOG, EVENT_LOG, "train.log"}
_CHUNK_BYTES = 2**16
_LONGEST_BYTES = 2**14
"""A longer line is shown in pieces."""
_BEHIND_S = 5.0
"""Events that are newer than job.log by more than this are of a later launch, whose output is not in that file."""
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{3}))?(?:([+-])(\d\d):(\d\d))? ?", re.ASCII)
_ABSEIL_STAMP = re.compile(rb"[IWEF]\d{4} \d\d:\d\d:(\d{10}\.\d{6}) ")
"""TensorFlow's before its log is set up, as in the learner's first lines: seconds since 1970."""
_ANY_STAMP = re.compile(rb"^" + _STAMP.pattern, re.MULTILINE | re.ASCII)


def lines(folder: Path, is_over: Callable[[], bool] = lambda: True) -> Iterator[LogLine]:
    """Yield the lines of all logs in a folder; follow them until `is_over`, and then to their ends.

    job.log has the events of events.log, too: of these only the ones of later launches are shown.

    Raises:
        ConfigError: A log cannot be read.
    """
    logs: dict[Path, _Log] = {}
    while True:
        over = is_over()  # first, so that the lines before the end are read
        for path in sorted(folder.glob("*.log")):
            if path not in logs:
                logs[path] = _Log(path, after=_shown_after(path))
        yield from heapq.merge(*(log.new_lines(last=over) for log in logs.values()), key=attrgetter("at"))
        if over:
            return
        time.sleep(POLL_S)


def role_of(file_name: str) -> str:
    """Return the role that writes a log: "actor 3" of actor-3.log, "job" of the training's own files."""
    return "job" if file_name in _OF_JOB else file_name.removesuffix(".log").replace("-", " ")


def parsed(line: bytes) -> tuple[float | None, str]:
    """Return the time at the beginning of a line, or None, and the rest of it; TensorFlow's stamp stays in the text."""
    match = _STAMP.match(line)
    at, rest = None if match is None else _time(match), line
    if match is not None and at is not None:
        rest = line[match.end() :]
    elif (early := _ABSEIL_STAMP.match(line)) is not None:
        at = float(early[1])
    return at, rest.decode(errors="replace").rstrip("\r")


class _Log:
    """One growing file. It is open only while a piece of it is read, as a run may have a thousand."""

    def __init__(self, path: Path, after: float) -> None:
        self._path = path
        self._role = role_of(path.name)
        self._after = after
        self._position = 0
        self._rest = b""  # of a line that is not whole yet
        self._at: float | None = None

    def new_lines(self, *, last: bool) -> Iterator[LogLine]:
        """Yield the lines since the last call; with `last`, also one without an end."""
        while chunk := self._read():
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            if len(self._rest) > _LONGEST_BYTES:
                whole, self._rest = [*whole, self._rest], b""
            yield from self._shown(whole)
        if last and self._rest:
            whole, self._rest = [self._rest], b""
            yield from self._shown(whole)

    def _read(self) -> bytes:
        try:
            with open_regular(self._path) as file:
                if os.fstat(file.fileno()).st_size < self._position:  # it was begun anew
                    self._position, self._rest = 0, b""
                file.seek(self._position)
                chunk = file.read(_CHUNK_BYTES)
                if self._at is None and chunk:
                    # Lines before the first one with a time, such as an error of the command line.
                    times = (at for line in chunk.split(b"\n") if (at := parsed(line)[0]) is not None)
                    self._at = next(times, self._path.stat().st_mtime)
        except FileNotFoundError:  # its run was removed
            return b""
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be read: {error.strerror}") from error
        self._position += len(chunk)
        return chunk

    def _shown(self, whole: list[bytes]) -> Iterator[LogLine]:
        for line in whole:
            at, text = parsed(line)
            self._at = at if at is not None else self._at or 0.0
            if self._at > self._after:
                yield LogLine(self._at, self._role, text.removeprefix(f"{self._role} "))


def _shown_after(path: Path) -> float:
    """Return the time after which lines of a log are shown; -inf for all, inf for none."""
    job_log = path.with_name(JOB_LOG)
    if path.name != EVENT_LOG or not job_log.exists():
        return -math.inf
    job_ended, events_ended = _last_time(job_log), _last_time(path)
    return job_ended if events_ended > job_ended + _BEHIND_S else math.inf


def _last_time(path: Path) -> float:
    """Return the time of the last line that has one; without one, that of the last write."""
    try:
        with open_regular(path) as file:
            found = os.fstat(file.fileno())
            file.seek(max(found.st_size - _CHUNK_BYTES, 0))
            return max(_times(file.read()), default=found.st_mtime)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def _times(text: bytes) -> Iterator[float]:
    return (at for match in _ANY_STAMP.finditer(text) if (at := _time(match)) is not None)


def _time(match: re.Match[bytes]) -> float | None:
    """Return the seconds since 1970 of a stamp, local time unless it says otherwise; None if there is no such time."""
    when, thousandths, sign, hours, minutes = match.groups()
    try:
        parts = time.strptime(when.decode(), "%Y-%m-%d %H:%M:%S")
        if sign is None:
            whole = time.mktime(parts)
        else:
            ahead_s = 3600 * int(hours) + 60 * int(minutes)
            whole = calendar.timegm(parts) - (ahead_s if sign == b"+" else -ahead_s)
    except (ValueError, OverflowError):
        return None
    return whole + int(thousandths or 0) / 1000.0
