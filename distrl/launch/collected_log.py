"""Lines of a role's log on another host, which the launcher collects into the run's directory."""

import io
import logging
from collections import deque

log = logging.getLogger(__name__)

MOST_BYTES = 64 * 1024


class UncollectedLines(logging.Handler):
    """The lines that have been logged since the last collection; of more than `most` bytes, the newest."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        super().__init__()
        self._most = most
        self._lines: deque[str] = deque()
        self._bytes = 0
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record; called with the handler's lock."""
        self._lines.append(f"{self.format(record)}\n")
        self._bytes += len(self._lines[-1].encode())
        while self._bytes > self._most:
            self._bytes -= len(self._lines.popleft().encode())
            self._left_out += 1

    def take(self) -> str:
        """Return the lines and forget them; the first one says how many were left out."""
        assert self.lock is not None
        with self.lock:
            text = "".join(self._lines)
            if self._left_out:
                note = f"{self._left_out} lines before the next one are only in the log on the role's host"
                record = logging.makeLogRecord({"levelno": logging.WARNING, "levelname": "WARNING", "msg": note})
                text = f"{self.format(record)}\n{text}"
            self._lines.clear()
            self._bytes = self._left_out = 0
        return text


class PrintedLines(io.TextIOBase):
    """A standard output whose lines go to the log of the role: Ray would keep them in a log of its own."""

    def __init__(self) -> None:
        self._rest = ""

    def write(self, text: str) -> int:
        """Log the lines that are whole now."""
        *whole, self._rest = (self._rest + text).split("\n")
        for line in whole:
            log.info("%s", line)
        return len(text)
