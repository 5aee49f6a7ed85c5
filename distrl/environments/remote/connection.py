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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from distrl.config.environment import EnvironmentConfig
from distrl.config.remote_environment import RemoteParameters
from distrl.config.secrets import read_secret
from distrl.environments.remote.protocol import Channel, ConnectionLostError, Message, foreign_text
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
            f"{foreign_text(name)} is no address of an environment: tcp://HOST:PORT or tcp-listen://HOST:PORT"
        )
    return Address(host, port, dial=url.scheme == _DIAL)


def read_token(token_file: str | None) -> str | None:
    """Return the token that both sides know: from the file, else from the environment variable, else None."""
    if token_file is None:
        where, token = f"the environment variable {TOKEN_VARIABLE}", os.environ.get(TOKEN_VARIABLE)
        if token is None:
            return None
    else:
        where, token = token_file, read_secret(token_file, "token_file")
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


def check_admitted(peer: str, token: str | None, message: Message) -> None:
    """Raise DecodeError unless a first message has the token. A wrong token takes as long as the right one."""
    if token is None:
        return
    given = message.get("token") if message.get("cmd") == "hello" else None
    if type(given) is not str or not hmac.compare_digest(given.encode(), token.encode()):
        raise DecodeError(f"{peer} does not know the token")


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
    """Try once to connect, and receive the reply to the greeting, if there is one, by `reply_by` (`time.monotonic`).

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
    """Listen at an address, on a port that several processes may share; raise ConfigError where that is impossible."""
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address.host, address.port), family=family, backlog=128, reuse_port=shared)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot listen on {address}: {_reason(error)}") from error


def accept(address: Address, token: str | None, *, wait_s: float, message_timeout_s: float, max_bytes: int) -> Channel:
    """Accept the next environment that dials us and has the token; refuse and drop others.

    The port is open only meanwhile, so that actors can share it.

    Raises:
        ConnectionLostError: None has within `wait_s`.
        ConfigError: The port cannot be listened on.
    """
    deadline = time.monotonic() + wait_s
    door = _Door()
    with listening(address, shared=True) as server:
        server.settimeout(_POLL_S)
        while door.guest is None and time.monotonic() < deadline:
            channel = next_client(server, door.refuse)
            if channel is not None:
                door.add(channel, _MOST_GREETINGS)
                # Each on a thread of its own: a silent one blocks no other.
                threading.Thread(target=_greet, args=(channel, token, door), daemon=True).start()
    guest = door.shut()
    if guest is None:
        why = f"; refused: {door.refused}" if door.refused else ""
        raise ConnectionLostError(f"no environment has dialled {address} in {wait_s:.0f} s{why}")
    guest.set_limits(message_timeout_s, max_bytes)
    try:
        guest.send({"status": "ok"})
    except BaseException:
        guest.close()
        raise
    return guest


def next_client(server: socket.socket, report: Callable[[str], object]) -> Channel | None:
    """Accept a client under the limits of a greeting; None: none came in time, or a reason was reported."""
    try:
        connected, _ = server.accept()
    except TimeoutError:
        return None
    except OSError as error:  # such as too many open files, or a client that has left already
        report(foreign_text(error))
        time.sleep(_POLL_S)
        return None
    return Channel(connected, message_timeout_s=GREETING_S, max_bytes=FIRST_MESSAGE_BYTES)


class WaitingRoom:
    """Channels that have sent nothing yet; the oldest of too many is interrupted."""

    def __init__(self) -> None:
        self._waiting: dict[Channel, None] = {}  # oldest first
        self._lock = threading.Lock()

    def add(self, channel: Channel, most: int) -> None:
        oldest = None
        with self._lock:
            if len(self._waiting) >= most:
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]
            self._waiting[channel] = None
        if oldest is not None:
            oldest.interrupt()

    def remove(self, channel: Channel) -> None:
        with self._lock:
            self._waiting.pop(channel, None)

    def channels(self) -> list[Channel]:
        with self._lock:
            return [*self._waiting]


class _Door(WaitingRoom):
    """Admits one channel, `guest`, until it is shut."""

    def __init__(self) -> None:
        super().__init__()
        self.guest: Channel | None = None
        self.refused = ""
        self._open = True

    def refuse(self, reason: str) -> None:
        self.refused = reason

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


def _greet(channel: Channel, token: str | None, door: _Door) -> None:
    try:
        message = channel.receive(first_byte_s=GREETING_S)
        if message.get("cmd") != "hello":
            raise DecodeError(f"{channel.peer} did not begin with hello")
        check_admitted(channel.peer, token, message)
        if not door.enter(channel):
            channel.dismiss("another environment was first; dial again", retry=True)
    except (ConnectionLostError, DecodeError) as error:
        door.refuse(foreign_text(error))
        channel.dismiss(error)
    finally:
        door.remove(channel)


@dataclass(frozen=True)
class Route:
    """The way to the environments of one configuration; all of them in this process share it."""

    address: Address
    parameters: RemoteParameters
    token: str | None
    metrics: tuple[str, ...] = ()

    @staticmethod
    def of(config: EnvironmentConfig) -> "Route":
        """Read `environment.kwargs` and `environment.metrics`."""
        address = parse_address(config.id)
        try:
            parameters = RemoteParameters.model_validate(config.kwargs)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(["environment.kwargs", *map(str, first["loc"])])
            raise ConfigError(f"{where}: {first['msg']} (environment {config.id})") from error
        if config.atari is not None:
            raise ConfigError(
                f"environment {config.id}: environment.atari is not for remote environments; the game there says how "
                "it is played and shown, and environment.preprocessing works here"
            )
        _check_time(config, parameters, parameters.first_connection_s(dial=address.dial))
        token = read_token(parameters.token_file)
        if not address.dial:
            check_listening(address, token)
        return Route(address, parameters, token, tuple(config.metrics))

    @property
    def first_connection_s(self) -> float:
        """Longest time for the first connections of a process."""
        return self.parameters.first_connection_s(dial=self.address.dial)

    def connect(self, wait_s: float, reply_by: float) -> Channel:
        """Make one attempt, of `wait_s` seconds at most; a reply to our greeting must be there by `reply_by`."""
        limits: dict[str, Any] = {
            "message_timeout_s": self.parameters.message_timeout_s,
            "max_bytes": self.parameters.max_message_bytes,
        }
        if not self.address.dial:
            return accept(self.address, self.token, wait_s=wait_s, **limits)
        # TensorForce's servers know no hello: only servers with a token get it.
        greeting = None if self.token is None else hello(self.token)
        return dial(self.address, greeting, wait_s=wait_s, reply_by=reply_by, **limits)


def _check_time(config: EnvironmentConfig, parameters: RemoteParameters, connect_s: float) -> None:
    """Refuse time-outs with which one call of a vector could look like a hang, whatever its number of environments."""
    message_s, give_up_s = parameters.message_timeout_s, parameters.give_up_s
    for what, value_s in (
        (f"2 * message_timeout_s ({message_s:g})", 2 * message_s),
        (f"connect_timeout_s ({connect_s:g}) + message_timeout_s ({message_s:g})", connect_s + message_s),
        (f"give_up_s ({give_up_s:g}) + message_timeout_s ({message_s:g})", give_up_s + message_s),
    ):
        if value_s >= config.step_timeout_s:
            raise ConfigError(
                f"environment.kwargs: {what} is {value_s:g} and must be less than environment.step_timeout_s "
                f"{config.step_timeout_s:g}, after which the whole actor counts as hung"
            )


def _reason(error: OSError | UnicodeError) -> str:
    """Return the error in words; UnicodeError: an impossible host name."""
    return foreign_text(getattr(error, "strerror", None) or error)
