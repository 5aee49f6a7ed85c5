"""The connection to Redis: every time-out set, retries with back-off, and fenced transactions.

Connecting, logging in and reading replies are redis-py's. Commands are written here: all of a round trip at once, and a
long value from where it is, where redis-py copies it. redis-py's own retries are off. What may be repeated is decided
here: reads and heartbeats give the same result when they are sent twice; a push may store two copies, which the learner
drops as duplicates; a fenced transaction (acknowledging, publishing, issuing tickets) is known by its number in the
`applied` hash and never applied twice. Redis does not roll back: where one command of a transaction fails inside EXEC,
the others are applied. What a push has counted is then taken back, under a number as well.
"""

import random
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import redis
from redis._parsers import _RESP2Parser
from redis.backoff import NoBackoff
from redis.retry import Retry

from distrl.config.secrets import PASSWORD_VARIABLE, refuse_password
from distrl.errors import ConfigError, MemoryBackendError, OutageError
from distrl.memory_backend import credentials, tls
from distrl.memory_backend.engine import Command, Engine, Reply, Value
from distrl.memory_backend.keys import number_or_zero
from distrl.memory_backend.meter import Meter, metered

BLOCK_S = 1.0
"""Longest single blocking command; longer waits are made of several."""

_SOCKET_TIMEOUT_S = BLOCK_S + 5.0
_CONNECT_TIMEOUT_S = 3.0
_FIRST_BACK_OFF_S = 0.02
_LONGEST_BACK_OFF_S = 1.0
_WATCH_ATTEMPTS = 10
_OLDEST_SERVER = (6, 2)
_READ_BYTES = 2**18
"""Most bytes read from the socket at once."""
_LONG_BYTES = 262_144
"""Size from which a value is sent by itself: another system call costs less than copying it."""
_SHORT_TEXT = 64
"""Longest text in characters whose packed form is cached; heartbeats, for example, never recur."""

_OUTAGES = frozenset(
    ("READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "UNBLOCKED", "MISCONF", "OOM", "BUSY")
)
"""First words of refusals that pass by themselves or when an operator acts: a fail-over, a full memory or disk."""
_DISCARDED = "Transaction discarded because of: "

Result = TypeVar("Result")


def connect(
    url: str, *, name: str, give_up_s: float, first_connect_s: float = 3.0, meter: Meter | None = None
) -> "RedisClient":
    """Connect and check the server.

    Args:
        url: redis://, rediss:// or unix://, without a password, which the environment of this process has
            (`credentials`). Options: `ca_file`, `cert_file`, `key_file` (`tls`), `db`.
        name: Role ("actor 3"), shown by CLIENT LIST as distrl:actor-3.
        give_up_s: Time-out of an operation while Redis is unreachable.
        first_connect_s: The same for this first connection, at which a wrong URL is likelier than an outage.
        meter: Bounds the bytes received from a server that is not trusted.

    Raises:
        ConfigError: `url` is not a Redis URL or holds a password; a file of TLS or of a password cannot be used.
        MemoryBackendError: Unreachable, older than 6.2, or would evict keys when full.
    """
    refuse_password(url, "the Redis URL")
    address, login, files = _dissected(url)
    options: dict[str, Any] = {} if url.startswith("unix://") else {"socket_keepalive": True}
    if meter is not None:
        options["parser_class"] = _RESP2Parser  # hiredis makes room for all items that a reply announces
    try:
        connection = redis.Redis.from_url(
            address,
            protocol=2,
            credential_provider=login,
            client_name=f"distrl:{name}".replace(" ", "-"),  # Redis allows no spaces
            socket_timeout=_SOCKET_TIMEOUT_S,
            socket_connect_timeout=_CONNECT_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            driver_info=None,  # CLIENT SETINFO is unknown to Redis 6.2 and often denied
            socket_read_size=_READ_BYTES,
            **options,
        )
    except ValueError as error:
        # Without what the library says of it, which may be a part of a password.
        raise ConfigError(f"{public_url(url)} is not a Redis URL; use redis://, rediss:// or unix://") from error
    pool = connection.connection_pool
    if url.startswith("rediss://"):
        tls.context(files)  # refuses now what cannot be used
        pool.connection_class = _secured(files)
    if meter is not None:
        pool.connection_class = metered(pool.connection_class, meter)
    client = RedisClient(connection, public_url(url), min(first_connect_s, give_up_s))
    client.tls_advice = partial(tls.advice, secure=url.startswith("rediss://"), certificate="cert_file" in files)
    try:
        client.check_server()
    except BaseException:
        client.close()
        raise
    client.give_up_s = give_up_s
    client.tls_advice = tls.advice
    return client


class _Login(redis.CredentialProvider):
    """User and password, read whenever a connection is opened."""

    def __init__(self, url: str, user: str) -> None:
        self._url, self._user = url, user

    def get_credentials(self) -> Any:
        """Return user and password; none where there are none. Servers without passwords accept any of `default`."""
        password = credentials.password(self._url)
        return (self._user or "default", password or "") if self._user or password else ()


def _dissected(url: str) -> tuple[str, _Login, dict[str, str]]:
    """Return the URL as redis-py reads it, who logs in, and the files of TLS."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{public_url(url)} is not a Redis URL; use redis://, rediss:// or unix://") from error
    user, at, hosts = parts.netloc.rpartition("@")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    files = {name: given.pop(name) for name in tls.FILES if name in given}
    if unknown := sorted(given.keys() - {"db"}):
        known = ", ".join(("namespace", "db", *tls.FILES))
        raise ConfigError(f"{public_url(url)}: unknown option {unknown[0]!r} of a Redis URL; known: {known}")
    query = f"?db={given['db']}" if "db" in given else ""
    return f"{parts.scheme}://{hosts}{parts.path}{query}", _Login(url, unquote(user) if at else ""), files


def _secured(files: dict[str, str]) -> type[redis.SSLConnection]:
    """Return redis-py's connection with distrl's rules for certificates; files are read whenever it connects."""

    class Secured(redis.SSLConnection):
        def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
            return tls.context(files).wrap_socket(sock, server_hostname=self.host)

    return Secured


class RedisClient(Engine):
    """One role's connection.

    Methods raise MemoryBackendError after `give_up_s` without a Redis that accepts commands, and at once if it refuses
    permanently.

    Attributes:
        interruptions: See `Engine`.
    """

    def __init__(self, connection: redis.Redis, public_url: str, give_up_s: float) -> None:
        self.give_up_s = give_up_s
        self.tls_advice: Callable[[str], str] = tls.advice
        self._redis = connection
        self._line = connection.connection_pool.make_connection()  # connects when it is first used
        self._translations = dict(connection.response_callbacks)
        self._guarded: tuple[Command, Reply] | None = None
        self.url = public_url
        self.interruptions = self.failovers = 0
        self._session = uuid.uuid4().hex
        self._operations = 0
        self._jitter = random.Random()

    def call(self, *command: Value) -> Reply:
        return self.patiently(lambda _attempt: self._ask(command))

    def transaction(self, commands: Sequence[Command]) -> list[Reply]:
        """Run MULTI … EXEC in one round trip. Repeated if the reply is lost: applying it twice must be harmless."""
        return self.patiently(lambda _attempt: self._execute(commands))

    def guarded(
        self,
        guard: Command,
        check: Callable[[Reply], None],
        commands: Sequence[Command],
        *,
        applied: str,
        undo: Sequence[Command] = (),
        wait: Command | None = None,
    ) -> list[Reply]:
        """Run MULTI … EXEC under WATCH, in one round trip after another transaction with the same guard."""

        def attempt(number: int, conflict: int) -> list[Reply]:
            found, _ = self._guard(guard, [])
            check(found)
            first = number == conflict == 0
            replies = self._executed(commands, guard, wait if first else None)
            if undo and isinstance(replies[0], redis.ResponseError):
                taking_back = "taking back what was counted"
                self.exactly_once(guard, lambda there, _: undo if there else (), taking_back, applied=applied)
            return [
                self._translated(command, _checked(reply)) for command, reply in zip(commands, replies, strict=True)
            ]

        return self._resolving_conflicts(attempt, "a transaction")

    def call_blocking(
        self, command: Callable[[float], Command], block_s: float, recover: Callable[[], Reply | None]
    ) -> Reply | None:
        """Block in pieces of at most `BLOCK_S`."""
        deadline = time.monotonic() + block_s
        while True:
            left_s = max(deadline - time.monotonic(), 0.0)
            ready = command(min(left_s, BLOCK_S) if left_s > 0.001 else 0.0)

            def attempt(number: int, ready: Command = ready) -> Reply | None:
                found = recover() if number else None
                return self._ask(ready) if found is None else found

            reply = self.patiently(attempt)
            if reply or time.monotonic() >= deadline:
                return reply

    def exactly_once(
        self,
        guard: Command,
        prepare: Callable[[Reply, Sequence[Reply]], Sequence[Command]],
        what: str,
        *,
        applied: str,
        reads: Sequence[Command] = (),
    ) -> None:
        """Run MULTI … EXEC under WATCH with the operation's number, by which a repeated one is recognised."""
        self._operations += 1
        done: Command = ("HSET", applied, self._session, self._operations)

        def attempt(number: int, conflict: int) -> None:
            # An earlier attempt may have been applied before its reply was lost.
            doubts: list[Command] = [("HGET", applied, self._session)] if number or conflict else []
            token, replies = self._guard(guard, [*reads, *doubts])
            if doubts and number_or_zero(replies[-1]) == done[-1]:
                return
            self._execute([*prepare(token, replies[: len(reads)]), done], guard)

        self._resolving_conflicts(attempt, what)

    def keys(self, pattern: str) -> list[str]:
        found: list[str] = []
        cursor = None
        while cursor != 0:
            cursor, names = self.call("SCAN", cursor or 0, "MATCH", pattern, "COUNT", 1000)
            found += [name.decode(errors="replace") for name in names]
        return list(dict.fromkeys(found))  # a scan may tell a key twice

    def close(self) -> None:
        self._hang_up()

    def check_server(self) -> None:
        """Raise MemoryBackendError unless the server is new enough and never evicts keys."""
        info = self.patiently(lambda _attempt: {**self._redis.info("server"), **self._redis.info("memory")})
        self._redis.close()  # the connection of its own that it took for this
        version = str(info["redis_version"])
        if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_SERVER:
            raise MemoryBackendError(f"Redis at {self.url} is {version}; 6.2 or newer is needed")
        policy = info.get("maxmemory_policy", "noeviction")
        if int(info.get("maxmemory", 0)) and policy != "noeviction":
            raise MemoryBackendError(
                f"Redis at {self.url} evicts keys when full (maxmemory-policy {policy}); set it to noeviction"
            )

    def patiently(self, attempt: Callable[[int], Result]) -> Result:
        """Repeat `attempt(number)` over outages, with jittered exponential back-off, for `give_up_s`.

        An outage is a broken connection, or a refusal that passes (`_OUTAGES`), such as that of a replica during a
        fail-over. The next attempt opens a new connection and looks the address up again.
        """
        deadline: float | None = None
        number = 0
        while True:
            try:
                return attempt(number)
            except (redis.AuthenticationError, redis.exceptions.AuthorizationError) as error:
                raise MemoryBackendError(
                    f"Redis at {self.url} refuses the login ({_line(error)}); check the user in the URL and "
                    f"{PASSWORD_VARIABLE}"
                ) from error
            except redis.WatchError:
                raise  # a conflict, not a failure: resolved by the caller
            except redis.RedisError as error:
                if not _is_outage(error):
                    raise MemoryBackendError(f"Redis at {self.url} refuses: {_line(error)}{_advice(error)}") from error
                self._hang_up()
                self.interruptions += 1
                now = time.monotonic()
                deadline = now + self.give_up_s if deadline is None else deadline
                if now >= deadline:
                    raise OutageError(
                        f"Redis at {self.url} {_state(error)} for {self.give_up_s:g} s ({_line(error)})"
                        f"{self.tls_advice(str(error)) or _advice(error)}"
                    ) from error
                back_off_s = min(_FIRST_BACK_OFF_S * 2**number, _LONGEST_BACK_OFF_S) * self._jitter.uniform(0.5, 1.0)
                time.sleep(min(back_off_s, deadline - now))
                number += 1

    def _ask(self, command: Command) -> Reply:
        (reply,) = self._round_trip([command])
        return self._translated(command, _checked(reply))

    def _execute(self, commands: Sequence[Command], guard: Command | None = None) -> list[Reply]:
        """Run `_executed`, and raise the error of the first command that failed inside EXEC."""
        replies = self._executed(commands, guard)
        return [self._translated(command, _checked(reply)) for command, reply in zip(commands, replies, strict=True)]

    def _executed(
        self, commands: Sequence[Command], guard: Command | None, wait: Command | None = None
    ) -> Sequence[Reply]:
        """Send `wait`, MULTI … EXEC and, with `guard`, the next transaction's WATCH and read, in one round trip.

        Returns:
            EXEC's reply to each command; an exception object for one that failed.

        Raises:
            redis.WatchError: The key that `_guard` watches was changed; nothing was applied. With `guard` alone.
        """
        before: list[Command] = [("UNWATCH",)] if guard is None and self._guarded is not None else []
        if wait is not None:
            before.append(wait)
        after: list[Command] = [] if guard is None else [("WATCH", guard[1]), guard]
        replies = self._round_trip([*before, ("MULTI",), *commands, ("EXEC",), *after])
        self._guarded = None if guard is None else (guard, replies[-1])
        if guard is not None and any(isinstance(reply, redis.RedisError) for reply in replies[-2:]):
            self._hang_up()  # not watched, or not read: the next transaction does both again
        last = len(before) + 1 + len(commands)
        executed: Sequence[Reply] | None = replies[last]
        if wait is not None or not isinstance(executed, list):
            for reply in replies[: last + 1]:
                _checked(reply)  # refused before EXEC: that one's error says less
        if executed is None:
            raise redis.WatchError("the watched key changed")
        return executed

    def _guard(self, guard: Command, reads: Sequence[Command]) -> tuple[Reply, list[Reply]]:
        """Watch the guard's key; return the replies to `guard` and `reads`.

        Without `reads` it needs no round trip where the last transaction was guarded in the same way: `_execute` has
        watched and read the key right after it.
        """
        if self._guarded is not None and self._guarded[0] == guard and not reads:
            return self._guarded[1], []
        # A watch that stands may have been broken already.
        commands: list[Command] = [("UNWATCH",), ("WATCH", guard[1]), guard, *reads]
        try:
            replies = [_checked(reply) for reply in self._round_trip(commands)]
        except redis.ResponseError:
            self._hang_up()  # what is watched now is not what was read before
            raise
        self._guarded = (guard, replies[2])
        return replies[2], [self._translated(command, reply) for command, reply in zip(reads, replies[3:], strict=True)]

    def _round_trip(self, commands: Sequence[Command]) -> list[Reply]:
        """Send all commands, then read all replies; a refusal is an exception object among them."""
        try:
            self._line.send_packed_command(packed(commands), check_health=False)
            # The connection's own method would prepare for the errors of each reply apart.
            read = self._line._parser.read_response  # type: ignore[attr-defined]
            return [read() for _ in commands]
        except OSError as error:
            self._hang_up()
            raise redis.ConnectionError(f"Error while reading from {self.url}: {error}") from error
        except BaseException:
            self._hang_up()  # later commands would take the unread replies for theirs
            raise

    def _hang_up(self) -> None:
        self._guarded = None
        self._line.disconnect()

    def _translated(self, command: Command, reply: Reply) -> Reply:
        translate = self._translations.get(command[0])
        return reply if translate is None else translate(reply)

    def _resolving_conflicts(self, attempt: Callable[[int, int], Result], what: str) -> Result:
        for conflict in range(_WATCH_ATTEMPTS):
            try:
                return self.patiently(lambda number, conflict=conflict: attempt(number, conflict))  # type: ignore[misc]
            except redis.WatchError:  # the watched key changed: prepared anew
                time.sleep(self._jitter.uniform(0.0, _FIRST_BACK_OFF_S))
        raise MemoryBackendError(f"{what}: {_WATCH_ATTEMPTS} conflicts at {self.url}; is another learner starting?")


def _checked(reply: Reply) -> Reply:
    """Return the reply; raise it if it is a refusal."""
    if isinstance(reply, redis.RedisError):
        raise reply
    return reply


def _is_outage(error: redis.RedisError) -> bool:
    """Return whether the same command may be accepted later, perhaps by another server."""
    return isinstance(error, redis.ConnectionError | redis.TimeoutError) or _code(error) in _OUTAGES


def _code(error: redis.RedisError) -> str:
    """Return the first word of a refusal, which redis-py removes if it knows it."""
    text = str(error)
    if error.status_code is None or text.startswith(_DISCARDED):
        return text.removeprefix(_DISCARDED).split(" ", 1)[0]
    return str(error.status_code)


def _state(error: redis.RedisError) -> str:
    """Return the words for a Redis that has answered with `error` all the time."""
    return "is unreachable" if isinstance(error, redis.ConnectionError | redis.TimeoutError) else "has refused"


def public_url(url: str) -> str:
    """Return the URL without user, password and options, which may hold a password too."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "the given URL"
    if not parts.netloc and parts.scheme != "unix":  # user:password@host without a scheme, for instance
        return "the given URL"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _advice(error: redis.RedisError) -> str:
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        return "; check that it runs and the URL"
    if _code(error) == "READONLY":
        return "; name the master in the URL, or an address that follows it"
    if _code(error) == "OOM":
        return "; raise its maxmemory or lower memory.queue_bytes"
    if _code(error) == "NOPERM":
        return "; give its user the commands and keys distrl needs"
    if _code(error) == "NOGROUP":
        return "; the run's data is gone, start a new run"
    return ""


def packed(commands: Sequence[Command]) -> list[bytes]:
    """Encode commands by the RESP protocol: arrays of strings with their lengths.

    Args:
        commands: Values are sent as they are if bytes, and as their text otherwise.

    Returns:
        Pieces to send one after the other; a long value is a piece of its own, not copied.
    """
    pieces: list[bytes] = []
    text: list[bytes] = []
    for command in commands:
        text.append(b"*%d\r\n" % len(command))
        for value in command:
            if type(value) is not bytes:
                recurs = type(value) is str and len(value) < _SHORT_TEXT
                text.append(_remembered(value) if recurs else _written(value))
            elif len(value) < _LONG_BYTES:
                text.append(b"$%d\r\n%b\r\n" % (len(value), value))
            else:
                text.append(b"$%d\r\n" % len(value))
                pieces += (b"".join(text), value)
                text = [b"\r\n"]
    pieces.append(b"".join(text))
    return pieces


def _written(value: Value) -> bytes:
    if not isinstance(value, str | int | float):
        raise TypeError(f"a value of a command is bytes, str, int or float, not {type(value).__name__}")
    data = str(value).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


_remembered = lru_cache(maxsize=1024)(_written)  # names of commands, keys and fields, which are the same all the time
