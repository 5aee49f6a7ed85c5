"""The dashboard as a process: uvicorn on a socket, and an end at Ctrl-C, or with the training that started it."""

import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from distrl.dashboard.access import Access, access_of_environment
from distrl.dashboard.app import make_app
from distrl.dashboard.connections import MOST_CONNECTIONS, BoundedProtocol

GRACE_S = 2
NICENESS = 10
"""Beside a training: whatever the page costs, it costs after the roles."""


def make_server(root: Path, access: Access, redis_urls: Sequence[str] = ()) -> uvicorn.Server:
    """Serves the runs below `root`, and those that these Redis servers know of, once it is run."""
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(root, access, redis_urls),
            log_level="warning",
            access_log=False,  # tokens must not end up in logs, and who looks is nobody's business
            server_header=False,
            proxy_headers=False,  # failures are counted by address, which a header of the client's must not change
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=64 * 1024,
            limit_concurrency=MOST_CONNECTIONS + 1,
            lifespan="on",
            http=BoundedProtocol,
            ws="none",
        )
    )
    return server


def serve_beside(root: Path, descriptor: int) -> None:
    """What `beside.py` starts: serves on an inherited socket until standard input ends."""
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
