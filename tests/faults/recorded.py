"""Commands that a Redis runs, as MONITOR reports them, by the role that sends each."""

import re
import socket
import threading
from typing import NamedTuple

_LINE = re.compile(rb"\+?[\d.]+ \[\d+ ([^\]]+)\] (.*)", re.DOTALL)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_LONG = 200
"""Characters of a value that is no command, field or key."""


class Sent(NamedTuple):
    """One command; long values are cut off."""

    name: str  # the connection's, without distrl:
    words: tuple[str, ...]


class Recorder:
    """Records all commands from its making until `stop`, on a connection of its own.

    `mark` gives connections that have one name for several users, such as the command line's, the name of a user.
    """

    def __init__(self, port: int) -> None:
        self.sent: list[Sent] = []
        self._names: dict[bytes, str] = {}
        self._unnamed: dict[bytes, list[list[str]]] = {}
        self._aliases: dict[str, str] = {}
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(b"MONITOR\r\n")
        assert self._socket.recv(5) == b"+OK\r\n"
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def mark(self, name: str, user: str) -> None:
        """Record new connections of this name as the user's."""
        self._aliases[name] = user

    def stop(self) -> list[Sent]:
        """Return all commands, in order."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        return self.sent

    def _read(self) -> None:
        with self._socket.makefile("rb") as file:
            for line in file:
                found = _LINE.match(line)
                if found is not None:
                    self._take(found[1], [word.decode(errors="replace") for word in _WORD.findall(found[2])])

    def _take(self, client: bytes, words: list[str]) -> None:
        words[0] = words[0].upper()
        unnamed = self._unnamed.setdefault(client, [])
        unnamed.append(words)
        if words[0] == "CLIENT" and words[1].upper() == "SETNAME":
            name = words[2].removeprefix("distrl:")
            self._names[client] = self._aliases.get(name, name)
        if client in self._names:
            self.sent += [Sent(self._names[client], tuple(word[:_LONG] for word in one)) for one in unnamed]
            unnamed.clear()
