"""The output of a Ray job as lines of roles: the job prints its own events, and the lines of its roles among them."""

import re
import time
from collections.abc import Callable, Iterator

from distrl.apps.jobs.ray_client import RayClient
from distrl.apps.jobs.run_logs import parsed
from distrl.apps.jobs.target import LogLine
from distrl.errors import ConfigError
from distrl.role_kinds import TABLE

_OF_ROLE = re.compile("(" + "|".join(kind.name + r" \d+" * kind.numbered for kind in TABLE) + ") ")
RECONNECTS = 5
"""Broken connections in a row, without a line in between, after which following ends with the error."""
PAUSE_S = 3.0
"""Before the first new connection, and so much more before each further one: a job server takes that long to start."""


class RayLog:
    """The log of one job.

    Args:
        began: Time of lines before the first one with a time, in seconds since 1970.
        sleep: Waits for so many seconds.
    """

    def __init__(
        self, client: RayClient, job_id: str, began: float, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._client, self._job_id, self._at, self._sleep = client, job_id, began, sleep

    def lines(self, *, follow: bool) -> Iterator[LogLine]:
        """Yield the lines, until the job has ended or, without `follow`, until now."""
        yield from map(self._line, self._followed() if follow else self._printed())

    def _printed(self) -> Iterator[str]:
        *whole, rest = self._client.output(self._job_id).split("\n")
        yield from whole
        if rest:
            yield rest

    def _followed(self) -> Iterator[str]:
        """Yield whole lines; a connection that breaks is made again, which begins with the first line."""
        seen = broken = 0
        while True:
            rest, number = "", 0
            try:
                for chunk in self._client.follow(self._job_id):
                    *whole, rest = (rest + chunk).split("\n")
                    for line in whole:
                        number += 1
                        if number > seen:
                            seen, broken = number, 0
                            yield line
                if rest and number >= seen:
                    yield rest
                return
            except TimeoutError:
                continue
            except ConfigError:
                broken += 1
                if broken > RECONNECTS:
                    raise
                self._sleep(broken * PAUSE_S)

    def _line(self, text: str) -> LogLine:
        at, rest = parsed(text.encode())
        self._at = at if at is not None else self._at
        of_role = parsed(rest.encode())  # of a role's line, which an event repeats with its own time
        if of_role[0] is not None and (named := _OF_ROLE.match(of_role[1])) is not None:
            return LogLine(of_role[0], named[1], of_role[1][named.end() :])
        return LogLine(self._at, "job", rest)
