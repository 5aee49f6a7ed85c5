"""Sockets of processes that take connections or datagrams, by the kernel's own tables."""

import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ACCEPTS = 0x10000
"""__SO_ACCEPTCON in the flags of /proc/net/unix."""
LISTEN, ANYWHERE = "0A", "07"
"""States in /proc/net: of a TCP socket that listens, and of a UDP socket that receives from any host."""


class Socket(NamedTuple):
    """One that takes connections or datagrams.

    Attributes:
        place: An address and port, or the path of a unix socket; '' for one without a name, which is unreachable.
    """

    kind: str
    place: str


def listening(pids: Iterable[int]) -> list[Socket]:
    """Those of the processes, by the kernel's own tables; nothing is asked over a network."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = os.readlink(link)
            except OSError:  # closed, or the process has ended, since the folder was read
                continue
            if target.startswith("socket:["):
                inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    found = []
    for kind, state in (("tcp", LISTEN), ("tcp6", LISTEN), ("udp", ANYWHERE), ("udp6", ANYWHERE)):
        for line in _lines(kind):
            fields = line.split()
            if fields[3] == state and fields[9] in inodes:
                found.append(Socket(kind, _address(fields[1])))
    for line in _lines("unix"):
        fields = line.split(maxsplit=7)
        if int(fields[3], 16) & ACCEPTS and fields[6] in inodes:
            found.append(Socket("unix", fields[7] if len(fields) > 7 else ""))
    return found


def _lines(kind: str) -> list[str]:
    path = Path(f"/proc/net/{kind}")
    return path.read_text().splitlines()[1:] if path.exists() else []


def _address(field: str) -> str:
    """'0100007F:1F90' -> '127.0.0.1:8080'; the kernel writes words of four bytes in the machine's order."""
    host, port = field.split(":")
    words = b"".join(bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8))
    return f"{socket.inet_ntop(socket.AF_INET6 if len(words) == 16 else socket.AF_INET, words)}:{int(port, 16)}"


def is_private(found: Socket) -> bool:
    """Return whether only this user, on this machine, can connect."""
    if found.kind != "unix":
        return found.place.rpartition(":")[0] in ("127.0.0.1", "::1")
    if not found.place or found.place.startswith("@"):  # an abstract one has no permissions: all users can connect
        return not found.place
    told = Path(found.place).parent.stat()
    return (stat.S_IMODE(told.st_mode), told.st_uid) == (0o700, os.getuid())
