"""`distrl serve-env`: environments of this machine for learners on other machines, one per connection, on threads.

A client can harm no connection but its own: requests are bounded in size and time, a client that does not know the
token is dismissed after its first message, and an error in one environment is the reply to one request. Connections
that have sent nothing yet take no environment's place: the oldest of too many makes room for the newest.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from distrl.config.environment import EnvironmentConfig
from distrl.environments.gym_adapter import describe, make_one
from distrl.environments.remote.connection import (
    GREETING_S,
    Address,
    WaitingRoom,
    back_off,
    check_admitted,
    check_listening,
    dial,
    hello,
    is_remote,
    listening,
    next_client,
    read_token,
)
from distrl.environments.remote.protocol import Channel, ConnectionLostError, Message, RemoteError, foreign_text
from distrl.environments.remote.session import RemoteSession
from distrl.errors import ConfigError, DecodeError, DistrlError
from distrl.interrupt import interruptible

MESSAGE_TIMEOUT_S = 20.0
LARGEST_REQUEST_BYTES = 16 * 2**20
PROGRESS_EVERY_S = 5.0
REFUSALS_EVERY_S = 1.0

_POLL_S = 0.1
_PATIENCE_S = 2.0
_GREETINGS = 16  # more than environments, so that all of those may connect at once
_END_S = 2.0
_CONNECT_S = 5.0


def serve_environment(
    config: EnvironmentConfig,
    *,
    listen_at: tuple[str, int],
    dial: tuple[str, int] | None,
    connections: int,
    token_file: str | None,
    write: Callable[[str], None],
) -> int:
    """Serve the environment until Ctrl-C or SIGTERM.

    Args:
        listen_at: Host and port that clients dial.
        dial: Host and port of a listening training, instead.
        connections: The most there may be; with `dial`, the number to keep.
        token_file: Holds the token; None: the environment variable does, if it is set.
        write: Takes one line of progress.

    Returns:
        The exit code: 130 after Ctrl-C, 0 after SIGTERM or SIGHUP.

    Raises:
        ConfigError: The environment cannot be made or described, there is no token where one is needed, or the address
            cannot be listened on.
    """
    if is_remote(config.id):
        raise ConfigError(f"{config.id} is an address already; name the environment that is to be served")
    token = read_token(token_file)
    address = Address(*listen_at)
    if dial is None:
        check_listening(address, token)
    with _written_if_slow(f"making the environment {config.id} …", write):
        RemoteSession(make_one(config)).close()  # an error is known before a client connects
    server = EnvironmentServer(lambda: RemoteSession(make_one(config)), token, write)
    with interruptible() as interrupt:
        try:
            if dial is None:
                server.listen(address, connections, lambda: interrupt.code is not None)
            else:
                server.dial(Address(*dial), connections, lambda: interrupt.code is not None)
        finally:
            server.close()
    write(f"stopped by {interrupt.name}")
    return interrupt.code or 0


@contextmanager
def _written_if_slow(line: str, write: Callable[[str], None]) -> Iterator[None]:
    """Write the line if the block takes longer than two seconds."""
    timer = threading.Timer(_PATIENCE_S, write, (line,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class EnvironmentServer:
    """Serves environments over connections that clients make, or that it makes itself.

    Args:
        make_session: Makes one environment for one connection; called on that connection's thread.
        token: Expected in a client's first message; sent first with `dial`.
        write: Takes one line.
    """

    def __init__(
        self, make_session: Callable[[], RemoteSession], token: str | None, write: Callable[[str], None]
    ) -> None:
        self._make_session = make_session
        self._token = token
        self._write = write
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._waiting = WaitingRoom()
        self._sessions: dict[Channel, RemoteSession | None] = {}  # None: let in, and the environment is being made
        self._threads: list[threading.Thread] = []
        self._ended = [0, 0]  # steps and episodes of connections that are over
        self._refused, self._refused_at = 0, -REFUSALS_EVERY_S
        self._reported = (time.monotonic(), 0)

    def listen(self, address: Address, most: int, stop: Callable[[], bool]) -> None:
        """Accept clients until `stop` returns True; at most `most` of them have an environment at a time."""
        check_listening(address, self._token)
        with listening(address, shared=False) as server:
            server.settimeout(_POLL_S)
            host, port = server.getsockname()[:2]
            self._write(f"listening on {Address(host, port)}")
            while not stop():
                self._report()
                # Open connections go on where one cannot be accepted.
                channel = next_client(server, lambda why: self._write(f"a connection could not be accepted: {why}"))
                if channel is not None:
                    self._waiting.add(channel, most + _GREETINGS)
                    self._start(self._welcome, channel, most)

    def dial(self, address: Address, count: int, stop: Callable[[], bool]) -> None:
        """Keep `count` connections to `address` until `stop` returns True."""
        self._write(f"dialling {address}, {count} connections")
        for _ in range(count):
            self._start(self._dial_again_and_again, address, count)
        while not stop():
            self._report()
            time.sleep(_POLL_S)

    def close(self) -> None:
        """End every connection; threads whose environment does not return are left behind."""
        self._stopping.set()
        with self._lock:
            channels = [*self._waiting.channels(), *self._sessions]
        for channel in channels:
            channel.interrupt()
        deadline = time.monotonic() + _END_S
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads = [thread, *(each for each in self._threads if each.is_alive())]
        thread.start()

    def _welcome(self, channel: Channel, most: int) -> None:
        """Serve a client whose first message has the token, if there is a place."""
        with self._parting(channel):
            # Without a token, a client may wait before its first message.
            first = channel.receive(first_byte_s=None if self._token is None else GREETING_S)
            check_admitted(channel.peer, self._token, first)
            if not self._let_in(channel, most):
                reason = f"{most} connections are the most there may be"
                self._refuse(channel, reason)
                channel.dismiss(reason, retry=True)
                return
            channel.set_limits(MESSAGE_TIMEOUT_S, LARGEST_REQUEST_BYTES)
            self._write(f"{channel.peer} connected")
            self._answer(channel, first)

    def _let_in(self, channel: Channel, most: int) -> bool:
        self._waiting.remove(channel)
        with self._lock:
            if len(self._sessions) >= most:
                return False
            self._sessions[channel] = None
        if self._stopping.is_set():  # set before `close` could see this connection
            channel.interrupt()
        return True

    def _answer(self, channel: Channel, request: Message | None = None) -> None:
        """Make an environment, and answer requests until the connection ends, which is the only way out."""
        session = self._make_session()
        with self._lock:
            self._sessions[channel] = session
        if request is not None:
            channel.send(session.handle(request))
        while True:
            channel.send(session.handle(channel.receive(first_byte_s=None)))

    @contextmanager
    def _parting(self, channel: Channel) -> Iterator[None]:
        """Report the error that ends the block, send it to the client, and free what the connection holds."""
        try:
            yield
        except Exception as error:  # one connection's trouble is not the others'
            self._part(channel, error)
        finally:
            self._forget(channel)

    def _part(self, channel: Channel, error: Exception) -> None:
        with self._lock:
            session = self._sessions.get(channel)
        reason = foreign_text(error if isinstance(error, DistrlError) else describe(error))
        if isinstance(error, ConnectionLostError) and session is not None:
            self._write(f"{reason}, after {session.steps:,} steps")
        else:
            self._refuse(channel, reason)
        channel.dismiss(reason)

    def _refuse(self, channel: Channel, reason: str) -> None:
        """Count a refusal; write one line a second at most."""
        now = time.monotonic()
        with self._lock:
            self._refused += 1
            quiet = now - self._refused_at < REFUSALS_EVERY_S
            self._refused_at = now if not quiet else self._refused_at
        if not quiet:
            self._write(f"{channel.peer} dismissed: {reason}")

    def _forget(self, channel: Channel) -> None:
        channel.close()
        self._waiting.remove(channel)
        with self._lock:
            session = self._sessions.pop(channel, None)
            if session is not None:
                self._ended = [self._ended[0] + session.steps, self._ended[1] + session.episodes]
        if session is not None:
            try:
                session.close()
            except Exception as error:  # the environment's own: this thread has further connections to make
                self._write(f"{channel.peer}: its environment failed in close: {foreign_text(describe(error))}")

    def _dial_again_and_again(self, address: Address, count: int) -> None:
        attempt, said = 0, ""
        limits: dict[str, Any] = {"message_timeout_s": MESSAGE_TIMEOUT_S, "max_bytes": LARGEST_REQUEST_BYTES}
        while not self._stopping.is_set():
            try:
                channel = dial(address, hello(self._token), wait_s=_CONNECT_S, **limits)
            except (ConnectionLostError, RemoteError, DecodeError) as error:
                if (reason := foreign_text(error)) != said:
                    self._write(f"{reason}; trying again")
                    said = reason
                self._stopping.wait(back_off(attempt))
                attempt += 1
                continue
            attempt, said = 0, ""
            with self._parting(channel):
                self._let_in(channel, count)
                self._write(f"connected to {channel.peer}")
                self._answer(channel)

    def _report(self) -> None:
        """Write the number of connections and their speed every few seconds, if there are any."""
        now = time.monotonic()
        since, before = self._reported
        if now - since < PROGRESS_EVERY_S:
            return
        with self._lock:
            here = [session for session in self._sessions.values() if session is not None]
            steps = self._ended[0] + sum(session.steps for session in here)
            episodes = self._ended[1] + sum(session.episodes for session in here)
        self._reported = (now, steps)
        if here or steps != before:
            rate = (steps - before) / (now - since)
            refused = f" · {self._refused} refused" if self._refused else ""
            self._write(
                f"{len(here)} connections · {rate:,.0f} steps/s · {steps:,} steps · {episodes:,} episodes{refused}"
            )
