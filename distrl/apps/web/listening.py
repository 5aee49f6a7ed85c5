"""Listening sockets, opened before a server is up: early connections wait in their queue."""

import errno
import socket

from distrl.errors import ConfigError

PORTS_TRIED = 20


def listen(host: str, port: int | None, first: int = 0) -> socket.socket:
    """Open a listening socket at a port, or without one at the first free port from `first` on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(first, first + PORTS_TRIED) if port is None else [port]:
        try:
            listening = socket.create_server((host, number), family=family)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise ConfigError(f"cannot listen on {host}:{number}: {error.strerror or error}") from error
            continue
        # Connections inherit it; asyncio sets it only for sockets that it opens itself. Without it, a reply in two
        # writes waits up to 40 ms for the client to acknowledge the first.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    if port is None:
        raise ConfigError(
            f"ports {first} to {first + PORTS_TRIED - 1} of {host} are taken; name a free one with --port"
        )
    raise ConfigError(f"port {port} of {host} is taken; name another with --port, or leave it out for a free one")


def url_of(listening: socket.socket) -> str:
    """Return the URL for a browser on this machine."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}/"


def address_of(listening: socket.socket) -> str:
    """Return host and port as other hosts reach them."""
    host, port = listening.getsockname()[:2]
    host = socket.gethostname() if host in ("0.0.0.0", "::") else host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
