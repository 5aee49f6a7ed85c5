"""The output of a Ray job as lines of roles: the job prints its own events, and the lines of its roles among them."""

import re
from collections.abc import Iterator

from distrl.errors import ConfigError
from distrl.jobs.ray_client import RayClient
from distrl.jobs.run_logs import parsed
from distrl.jobs.target import LogLine

_OF_ROLE = re.compile(r"(learner|evaluator|actor \d+) ")
RECONNECTS = 5
"""Broken connections in a row, without a line in between, after which following ends with the error."""


class RayLog:
    """The log of one job.

    Args:
        began: Time of lines before the first one with a time, in seconds since 1970.
    """

    def __init__(self, client: RayClient, job_id: str, began: float) -> None:
        self._client, self._job_id, self._at = client, job_id, began

    def lines(self, *, follow: bool) -> Iterator[LogLine]:
        """Yield the lines, until the job has ended or, without `follow`, until now."""
        if follow:
            yield from map(self._line, self._followed())
            return
        yield from map(self._line, self._client.output(self._job_id).splitlines())

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
            except (RuntimeError, OSError) as error:
                broken += 1
                if broken > RECONNECTS:
                    raise ConfigError(f"Ray's job server at {self._client.address}: {error}") from error

    def _line(self, text: str) -> LogLine:
        at, rest = parsed(text.encode())
        self._at = at if at is not None else self._at
        of_role = parsed(rest.encode())  # of a role's line, which an event repeats with its own time
        if of_role[0] is not None and (named := _OF_ROLE.match(of_role[1])) is not None:
            return LogLine(of_role[0], named[1], of_role[1][named.end() :])
        return LogLine(self._at, "job", rest)
