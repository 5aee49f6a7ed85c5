"""Connections of remote environments: we dial them or they dial us, and the token in the first message.

    tcp://host:port          the environment listens there, and we dial it, once for each environment
    tcp-listen://host:port   we listen there, and each environment dials us

The side that dials sends ``{"cmd": "hello", "token": …}`` first. An environment that dials us always does; we do it
where we have a token. A side that listens on more than the loopback device has a token and refuses clients without it.
"""

import hmac
import ipaddress
import math
import os
import random
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from distrl.environments.remote.protocol import Channel, ConnectionLostError, Message, one_line
from distrl.errors import ConfigError, DecodeError

TOKEN_VARIABLE = "DISTRL_ENV_TOKEN"
GREETING_S = 5.0
"""Longest time from a new connection to its first message."""
FIRST_MESSAGE_BYTES = 4_096
"""Largest first message."""

_SHORTEST_TOKEN = 16
_FIRST_BACK_OFF_S = 0.05
_LONGEST_BACK_OFF_S = 2.0
_MOST_GREETINGS = 16
_POLL_S = 0.05
_DIAL, _LISTEN = "tcp", "tcp-listen"


@dataclass(frozen=True)
class Address:
    """Address where one side listens: the environment's side if `dial` is True, else ours."""

    host: str
    port: int
    dial: bool = True

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_remote(name: str) -> bool:
    """Return whether an environment's name is an address."""
    return name.startswith((f"{_DIAL}://", f"{_LISTEN}://"))


def parse_address(name: str) -> Address:
    """Parse tcp://host:port or tcp-listen://host:port."""
    try:
        url = urlsplit(name)
        host, port = url.hostname, url.port
    except ValueError:  # such as a port that is no number
        host, port = None, None
    if not is_remote(name) or not host or port is None or url.path or url.query or url.username is not None:
        raise ConfigError(
            f"{one_line(name)} is no address of an environment: tcp://HOST:PORT or tcp-listen://HOST:PORT"
        )
    return Address(host, port, dial=url.scheme == _DIAL)


def read_token(token_file: str | None) -> str | None:
    """Return the token that both sides know: from the file, else from the environment variable, else None."""
    if token_file is None:
        where, token = f"the environment variable {TOKEN_VARIABLE}", os.environ.get(TOKEN_VARIABLE)
        if token is None:
            return None
    else:
        where = token_file
        try:
            token = Path(token_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the token in {token_file} cannot be read: {one_line(error)}") from error
    token = token.strip()
    if len(token) < _SHORTEST_TOKEN:
        raise ConfigError(
            f"the token in {where} has {len(token)} characters; {_SHORTEST_TOKEN} are the least: openssl rand -hex 16"
        )
    return token


def check_listening(address: Address, token: str | None) -> None:
    """Refuse to listen without a token where others can connect."""
    if token is not None:
        return
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot listen on {address}: {_reason(error)}") from error
    if not all(ipaddress.ip_address(str(host).partition("%")[0]).is_loopback for host in found):
        raise ConfigError(
            f"others can reach {address}, so a token is needed: a file (token_file, --token-file) "
            f"or the environment variable {TOKEN_VARIABLE}"
        )


def admits(token: str | None, message: Message) -> bool:
    """Return whether a first message has the token. Takes as long for a wrong token as for a right one."""
    if token is None:
        return True
    given = message.get("token") if message.get("cmd") == "hello" else None
    return type(given) is str and hmac.compare_digest(given.encode(), token.encode())


def back_off(attempt: int) -> float:
    """Return the seconds to wait before the next attempt: doubling, with jitter so that clients do not synchronise."""
    return random.uniform(0.5, 1.0) * min(_FIRST_BACK_OFF_S * 2.0**attempt, _LONGEST_BACK_OFF_S)


def hello(token: str | None) -> Message:
    """Return the first message of the side that dials."""
    return {"cmd": "hello"} if token is None else {"cmd": "hello", "token": token}


def dial(
    address: Address,
    greeting: Message | None,
    *,
    message_timeout_s: float,
    wait_s: float,
    max_bytes: int,
    reply_by: float = math.inf,
) -> Channel:
    """Make one attempt to connect, and read the reply to the greeting if there is one.

    Args:
        reply_by: Deadline of that reply on `time.monotonic`'s clock, if earlier than `message_timeout_s`.

    Raises:
        ConnectionLostError: No answer within `wait_s`, or the other side wants a later connection.
        RemoteError: The token is not the other side's.
        DecodeError: The other side does not speak this protocol.
    """
    try:
        connected = socket.create_connection((address.host, address.port), timeout=wait_s)
    except (OSError, UnicodeError) as error:
        raise ConnectionLostError(f"{address} cannot be reached: {_reason(error)}") from error
    channel = Channel(connected, message_timeout_s=message_timeout_s, max_bytes=max_bytes, peer=str(address))
    try:
        if greeting is not None:
            channel.send(greeting, by=reply_by)
            channel.reply(first_byte_s=min(message_timeout_s, reply_by - time.monotonic()), by=reply_by)
    except BaseException:
        channel.close()
        raise
    return channel


def listening(address: Address, *, shared: bool) -> socket.socket:
    """Open a listening socket.

    Args:
        shared: Several processes may listen on the port; each takes the next environment when it needs one.

    Raises:
        ConfigError: The address is not this machine's, or taken.
    """
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address.host, address.port), family=family, backlog=128, reuse_port=shared)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot listen on {address}: {_reason(error)}") from error


class Listener:
    """Accepts environments that dial us. The port is open only inside `accept`, so that actors can share it.

    Args:
        token: Expected in the first message; None only on the loopback device.
    """

    def __init__(self, address: Address, token: str | None, *, message_timeout_s: float, max_bytes: int) -> None:
        check_listening(address, token)
        self.address = address
        self._token = token
        self._message_timeout_s = message_timeout_s
        self._max_bytes = max_bytes

    def accept(self, wait_s: float) -> Channel:
        """Accept the next environment that dials and has the token; refuse and drop others.

        Raises:
            ConnectionLostError: None has within `wait_s`.
            ConfigError: The port cannot be listened on.
        """
        deadline = time.monotonic() + wait_s
        door = _Door()
        with listening(self.address, shared=True) as server:
            server.settimeout(_POLL_S)
            while door.guest is None and time.monotonic() < deadline:
                try:
                    connected, _ = server.accept()
                except TimeoutError:
                    continue
                except OSError as error:  # such as too many open files, or a client that has left already
                    door.refused = one_line(error)
                    time.sleep(_POLL_S)
                    continue
                channel = Channel(connected, message_timeout_s=GREETING_S, max_bytes=FIRST_MESSAGE_BYTES)
                door.wait_before(channel)
                # Each on a thread of its own: a silent one blocks no other.
                threading.Thread(target=self._greet, args=(channel, door), daemon=True).start()
        guest = door.shut()
        if guest is None:
            why = f"; refused: {door.refused}" if door.refused else ""
            raise ConnectionLostError(f"no environment has dialled {self.address} in {wait_s:.0f} s{why}")
        guest.set_limits(self._message_timeout_s, self._max_bytes)
        try:
            guest.send({"status": "ok"})
        except BaseException:
            guest.close()
            raise
        return guest

    def _greet(self, channel: Channel, door: "_Door") -> None:
        try:
            message = channel.receive(first_byte_s=GREETING_S)
            if message.get("cmd") != "hello":
                raise DecodeError(f"{channel.peer} did not begin with hello")
            if not admits(self._token, message):
                raise DecodeError(f"{channel.peer} does not know the token")
            if not door.enter(channel):
                channel.dismiss("another environment was first; dial again", retry=True)
        except (ConnectionLostError, DecodeError) as error:
            door.refused = one_line(error)
            channel.dismiss(error)
        finally:
            door.leave(channel)


class _Door:
    """Admits one channel, `guest`, until it is shut.

    Channels without a message yet wait before it; the oldest of too many is dropped.
    """

    def __init__(self) -> None:
        self.guest: Channel | None = None
        self.refused = ""
        self._open = True
        self._waiting: dict[Channel, None] = {}  # oldest first
        self._lock = threading.Lock()

    def wait_before(self, channel: Channel) -> None:
        oldest = None
        with self._lock:
            if len(self._waiting) >= _MOST_GREETINGS:
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]
            self._waiting[channel] = None
        if oldest is not None:
            oldest.interrupt()

    def leave(self, channel: Channel) -> None:
        with self._lock:
            self._waiting.pop(channel, None)

    def enter(self, channel: Channel) -> bool:
        with self._lock:
            if not self._open or self.guest is not None:
                return False
            self.guest = channel
            return True

    def shut(self) -> Channel | None:
        with self._lock:
            self._open = False
            return self.guest


def _reason(error: OSError | UnicodeError) -> str:
    """Return the error in words; UnicodeError: an impossible host name."""
    return one_line(getattr(error, "strerror", None) or error)
