"""Where the dashboard listens. Knows nothing of what is served there, so that a training can open the socket."""

import errno
import socket
from pathlib import Path

from distrl.dashboard.files import id_of
from distrl.errors import ConfigError

PORT = 8720
"""Where the dashboard is, unless it is taken: then on one of the next."""
PORTS_TRIED = 20


def listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens.

    Args:
        port: None: `PORT`, or the next that is free.

    Raises:
        ConfigError: The port is taken, or the host is none of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(PORT, PORT + PORTS_TRIED) if port is None else [port]:
        try:
            return socket.create_server((host, number), family=family)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise ConfigError(f"cannot listen on {host}:{number}: {error.strerror or error}") from error
    if port is None:
        raise ConfigError(f"ports {PORT} to {PORT + PORTS_TRIED - 1} of {host} are taken; name a free one with --port")
    raise ConfigError(f"port {port} of {host} is taken; name another with --port, or leave it out for a free one")


def url_of(listening: socket.socket) -> str:
    """Where a browser on this machine finds it."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}/"


def page_of(root: Path, run_dir: Path) -> str:
    """The address of a run's page, below the dashboard's own."""
    path = run_dir.resolve().relative_to(root.resolve()).as_posix()
    return f"#/run/{id_of('' if path == '.' else path)}"
