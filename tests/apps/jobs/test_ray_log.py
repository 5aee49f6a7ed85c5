"""The output of a Ray job is read as lines of roles, once each, also over connections that break."""

import time

import pytest

from distrl.apps.jobs.ray_log import RECONNECTS, RayLog
from distrl.errors import ConfigError

OUTPUT = (
    "Running entrypoint for job pong\n"
    "2026-11-24 03:00:00 run pong in /runs/pong\n"
    "2026-11-24 03:00:07 2026-11-24 03:00:05,250 actor 3 INFO joined\n"
    "2026-11-24 03:00:09 the learner is at work\n"
)


BROKEN = ConfigError("Ray's job server at http://head:8265: WebSocket connection closed unexpectedly")


class Server:
    """Sends the output in pieces, and breaks so many connections, after one piece more each time, or falls silent."""

    address = "http://head:8265"

    def __init__(self, breaks=0):
        self.breaks = breaks

    def output(self, job_id):
        return OUTPUT

    def follow(self, job_id):
        pieces = [OUTPUT[at : at + 40] for at in range(0, len(OUTPUT), 40)]
        for number, piece in enumerate(pieces):
            if self.breaks and number == max(len(pieces) - self.breaks, 1):
                self.breaks -= 1
                raise TimeoutError if self.breaks % 2 else BROKEN
            yield piece


def seconds(text):
    return time.mktime(time.strptime(f"2026-11-24 {text}", "%Y-%m-%d %H:%M:%S"))


@pytest.mark.parametrize("breaks", [None, 0, 3])
def test_every_line_comes_once_with_its_role_and_time(breaks):
    pauses = []
    log = RayLog(Server(breaks or 0), "pong", 7.0, pauses.append)
    lines = list(log.lines(follow=breaks is not None))
    assert [(line.role, line.text) for line in lines] == [
        ("job", "Running entrypoint for job pong"),
        ("job", "run pong in /runs/pong"),
        ("actor 3", "INFO joined"),
        ("job", "the learner is at work"),
    ]
    assert [line.at for line in lines] == [7.0, seconds("03:00:00"), seconds("03:00:05") + 0.25, seconds("03:00:09")]


def test_a_server_that_is_gone_ends_the_log_with_one_line_after_half_a_minute():
    class Gone(Server):
        def follow(self, job_id):
            raise BROKEN
            yield

    pauses = []
    with pytest.raises(ConfigError, match="Ray's job server at http://head:8265: WebSocket connection closed"):
        list(RayLog(Gone(), "pong", 0.0, pauses.append).lines(follow=True))
    assert len(pauses) == RECONNECTS
    assert sum(pauses) >= 30


def test_a_separator_that_is_no_line_end_does_not_cut_a_line():
    class Odd(Server):
        def output(self, job_id):
            return "2026-11-24 03:00:00 50 %\x0c \u2028 ü\n\nend"

    assert [line.text for line in RayLog(Odd(), "pong", 7.0).lines(follow=False)] == ["50 %\x0c \u2028 ü", "", "end"]
