"""The output of a Ray job is read as lines of roles, once each, also over connections that break."""

import time

import pytest

from distrl.errors import ConfigError
from distrl.jobs.ray_log import RECONNECTS, RayLog

OUTPUT = (
    "Running entrypoint for job pong\n"
    "2026-11-24 03:00:00 run pong in /runs/pong\n"
    "2026-11-24 03:00:07 2026-11-24 03:00:05,250 actor 3 INFO joined\n"
    "2026-11-24 03:00:09 the learner is at work\n"
)


class Server:
    """Sends the output in pieces, and breaks so many connections after one piece more each time."""

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
                raise RuntimeError("WebSocket connection closed unexpectedly")
            yield piece


def seconds(text):
    return time.mktime(time.strptime(f"2026-11-24 {text}", "%Y-%m-%d %H:%M:%S"))


@pytest.mark.parametrize("breaks", [None, 0, 3])
def test_every_line_comes_once_with_its_role_and_time(breaks):
    log = RayLog(Server(breaks or 0), "pong", began=7.0)
    lines = list(log.lines(follow=breaks is not None))
    assert [(line.role, line.text) for line in lines] == [
        ("job", "Running entrypoint for job pong"),
        ("job", "run pong in /runs/pong"),
        ("actor 3", "INFO joined"),
        ("job", "the learner is at work"),
    ]
    assert [line.at for line in lines] == [7.0, seconds("03:00:00"), seconds("03:00:05") + 0.25, seconds("03:00:09")]


def test_a_server_that_is_gone_ends_the_log_with_one_line():
    class Gone(Server):
        def follow(self, job_id):
            self.breaks += 1
            raise RuntimeError("WebSocket connection closed unexpectedly")
            yield

    server = Gone()
    with pytest.raises(ConfigError, match="Ray's job server at http://head:8265: WebSocket connection closed"):
        list(RayLog(server, "pong", began=0.0).lines(follow=True))
    assert server.breaks == RECONNECTS + 1
