"""The dashboard as a process: uvicorn on a socket, until Ctrl-C or the end of the training that started it."""

import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from distrl.apps.dashboard.access import access_of_environment
from distrl.apps.dashboard.alert_settings import AlertSettings
from distrl.apps.dashboard.app import make_app
from distrl.apps.web.access import Access
from distrl.apps.web.connections import MOST_CONNECTIONS, Bounded
from distrl.health import Beats

GRACE_S = 2
USUAL_ALERTS = AlertSettings()
NICENESS = 10
"""Nice value beside a training: roles have priority."""


class BoundedProtocol(Bounded, H11Protocol):
    """One connection of a client."""


def make_server(
    root: Path,
    access: Access,
    redis_urls: Sequence[str] = (),
    beats: Beats | None = None,
    alerts: AlertSettings | None = USUAL_ALERTS,
    *,
    may_start: bool = False,
) -> uvicorn.Server:
    """Make a server of the runs below `root` and of those in these Redis servers.

    Args:
        beats: Written by the server's own loop: no heartbeat means that no request is answered.
        alerts: None: no alerts.
        may_start: As in `make_app`.
    """

    async def notify() -> None:
        if beats is not None:
            beats.beat()

    return uvicorn.Server(
        uvicorn.Config(
            make_app(root, access, redis_urls, alerts, may_start=may_start),
            log_level="warning",
            access_log=False,  # keeps tokens and readers out of logs
            server_header=False,
            proxy_headers=False,  # failures are counted by address, which a client's header must not change
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=64 * 1024,
            limit_concurrency=MOST_CONNECTIONS + 1,
            lifespan="on",
            http=BoundedProtocol,
            ws="none",
            callback_notify=notify,
            timeout_notify=1,
        )
    )


def serve_beside(root: Path, descriptor: int) -> None:
    """Serve on an inherited socket until standard input ends; `beside.py` starts it."""
    os.nice(NICENESS)
    with socket.socket(fileno=descriptor) as listening:
        server = make_server(root, access_of_environment(listening.getsockname()[0]))

        def end_with_parent() -> None:
            while sys.stdin.buffer.read(4096):
                pass
            server.should_exit = True

        threading.Thread(target=end_with_parent, name="lifeline", daemon=True).start()
        server.run(sockets=[listening])


if __name__ == "__main__":
    serve_beside(Path(sys.argv[1]), int(sys.argv[2]))
