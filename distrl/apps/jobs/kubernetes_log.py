"""The logs of a job's Pods as lines of roles, read again and again: each reading also has Pods that are new."""

import calendar
import re
import time
from collections.abc import Callable, Iterator
from operator import attrgetter

from distrl.apps.jobs.run_logs import parsed
from distrl.apps.jobs.target import LogLine
from distrl.errors import ConfigError

POLL_S = 2.0
BACK_S = 60.0
"""How far a reading goes back behind the newest line before it, as the clocks of nodes differ."""
RETRIES = 30
"""Readings without an answer of the API, after which following ends with the error."""
_LINE = re.compile(r"\[pod/(\S+)/(\S+)\] (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?Z ?(.*)", re.ASCII | re.DOTALL)
_OF_LEARNER = "learner"


class PodLogs:
    """The lines of all Pods of a job.

    Args:
        read: Takes the time of the oldest line as RFC 3339, or None, and returns what `kubectl logs` prints with
            prefixes and times.
    """

    def __init__(self, read: Callable[[str | None], str]) -> None:
        self._read = read
        self._newest: dict[str, tuple[float, str]] = {}  # of each Pod: the stamp of its last line, exactly as text

    def lines(self, is_over: Callable[[], bool]) -> Iterator[LogLine]:
        """Yield the lines; each reading's in the order of time, until one that began when it was over.

        Raises:
            ConfigError: The API does not answer, so many times in a row.
        """
        failed = 0
        while True:
            over = is_over()  # first, so that the lines before the end are read
            try:
                new = sorted(self._new_lines(), key=attrgetter("at"))
            except ConfigError:
                failed += 1
                if over or failed > RETRIES:
                    raise
            else:
                failed = 0
                yield from new
                if over:
                    return
            time.sleep(POLL_S)

    def _new_lines(self) -> Iterator[LogLine]:
        before = dict(self._newest)
        since = max((at for at, _ in before.values()), default=None)
        text = self._read(None if since is None else _stamp(since - BACK_S))
        for match in filter(None, map(_LINE.fullmatch, text.split("\n"))):
            pod, container, whole, part, rest = match.groups()
            key = (float(calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S"))), part or "")
            if key <= before.get(pod, (0.0, "")):
                continue
            self._newest[pod] = max(key, self._newest.get(pod, key))
            at = key[0] + float(part or 0)
            yield LogLine(at, _role(pod, container), parsed(rest.encode())[1])


def _role(pod: str, container: str) -> str:
    """Return "job" for the learner's Pod, which prints the output of the training, else container and Pod."""
    return "job" if container == _OF_LEARNER else f"{container} {pod.rpartition('-')[2]}"


def _stamp(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
