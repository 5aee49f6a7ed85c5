"""The one connection to Redis: a factory with every time-out pinned, retries with back-off, and fenced transactions.

redis-py's own retries are off. What may be repeated is decided here: reads and heartbeats give the same result when
they are sent twice; a push may store two copies, which the learner drops as duplicates; a fenced transaction
(acknowledging, publishing, issuing tickets) is known by its number in the `applied` hash and never applied twice.
"""

import random
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from distrl.errors import ConfigError, FencedError, MemoryBackendError
from distrl.memory_backend.keys import RunKeys

BLOCK_S = 1.0
"""Longest single blocking command; longer waits are made of several."""

_SOCKET_TIMEOUT_S = BLOCK_S + 5.0
_CONNECT_TIMEOUT_S = 3.0
_FIRST_BACK_OFF_S = 0.02
_LONGEST_BACK_OFF_S = 1.0
_WATCH_ATTEMPTS = 10
_OLDEST_SERVER = (6, 2)

Value = str | bytes | int | float
Command = tuple[Value, ...]
Reply = Any  # what redis-py makes of a reply; the callers know their commands
Result = TypeVar("Result")


def connect(url: str, *, name: str, give_up_s: float, first_connect_s: float = 3.0) -> "RedisClient":
    """Connects and checks the server.

    Args:
        url: redis://, rediss:// or unix://.
        name: Role ("actor 3"), shown by CLIENT LIST as distrl:actor-3.
        give_up_s: How long an operation is repeated while Redis is unreachable.
        first_connect_s: The same for this first connection, where a wrong URL is likelier than an outage.

    Raises:
        ConfigError: `url` is not a Redis URL.
        MemoryBackendError: Unreachable, older than 6.2, or would evict keys when full.
    """
    options: dict[str, Any] = {} if url.startswith("unix://") else {"socket_keepalive": True}
    try:
        connection = redis.Redis.from_url(
            url,
            protocol=2,
            client_name=f"distrl:{name}".replace(" ", "-"),  # Redis allows no spaces
            socket_timeout=_SOCKET_TIMEOUT_S,
            socket_connect_timeout=_CONNECT_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            driver_info=None,  # CLIENT SETINFO is unknown to Redis 6.2 and often denied
            **options,
        )
    except ValueError as error:
        raise ConfigError(f"{_public(url)} is not a Redis URL ({error}); use redis://, rediss:// or unix://") from error
    client = RedisClient(connection, _public(url), min(first_connect_s, give_up_s))
    try:
        client.check_server()
    except BaseException:
        client.close()
        raise
    client.give_up_s = give_up_s
    return client


class RedisClient:
    """One role's connection. Methods raise MemoryBackendError after `give_up_s` without Redis, or when it refuses."""

    def __init__(self, connection: redis.Redis, public_url: str, give_up_s: float) -> None:
        self.give_up_s = give_up_s
        self._redis = connection
        self.url = public_url
        self._session = uuid.uuid4().hex
        self._operations = 0
        self._jitter = random.Random()

    def call(self, *command: Value) -> Reply:
        """One command that may be repeated."""
        return self.patiently(lambda _attempt: self._redis.execute_command(*command))

    def transaction(self, commands: Sequence[Command]) -> list[Reply]:
        """MULTI … EXEC in one round trip. Repeated when the reply is lost: the caller bears a second application."""
        return self.patiently(lambda _attempt: self._execute(commands))

    def call_blocking(
        self, command: Callable[[float], Command], block_s: float, recover: Callable[[], Reply | None]
    ) -> Reply | None:
        """A blocking command in pieces of at most `BLOCK_S`, until it replies or `block_s` has passed.

        Args:
            command: Makes the command for a piece of that many seconds; 0 means without blocking.
            block_s: Longest wait in seconds.
            recover: Called before the command is repeated after a broken connection: what it had moved although its
                reply was lost, or None.
        """
        deadline = time.monotonic() + block_s
        while True:
            left_s = max(deadline - time.monotonic(), 0.0)
            ready = command(min(left_s, BLOCK_S) if left_s > 0.001 else 0.0)

            def attempt(number: int, ready: Command = ready) -> Reply | None:
                found = recover() if number else None
                return self._redis.execute_command(*ready) if found is None else found

            reply = self.patiently(attempt)
            if reply or time.monotonic() >= deadline:
                return reply

    def fenced(
        self, keys: RunKeys, fence: int, prepare: Callable[[Callable[..., Reply]], Sequence[Command]], what: str
    ) -> None:
        """Applies commands exactly once, in one transaction, if `fence` is the newest token.

        Args:
            keys: The run's keys; `run` is watched, `applied` remembers the operation.
            fence: The caller's fencing token.
            prepare: Given a function that reads, returns the commands; may raise. Runs again after every conflict.
            what: The operation, for errors.

        Raises:
            FencedError: Another learner has a newer token; nothing was changed.
        """

        def checked(read: Callable[..., Reply]) -> Sequence[Command]:
            token = int(read("HGET", keys.run, "fence") or 0)
            if token != fence:
                raise FencedError(
                    f"{what}: another learner runs {keys.run_id} (token {token}, ours {fence}); stop this one"
                )
            return prepare(read)

        self.exactly_once(keys, keys.run, checked, what)

    def exactly_once(
        self, keys: RunKeys, watched: str, prepare: Callable[[Callable[..., Reply]], Sequence[Command]], what: str
    ) -> None:
        """Applies commands exactly once, in one transaction, as nobody changed the key `watched` meanwhile.

        Args:
            keys: The run's keys; `applied` remembers the operation.
            prepare: As of `fenced`.
            what: The operation, for errors.
        """
        self._operations += 1
        operation = self._operations

        def attempt(number: int, conflict: int) -> bool:
            with self._redis.pipeline() as pipeline:
                pipeline.watch(watched)
                # An earlier attempt may have been applied before its reply was lost.
                if (number or conflict) and int(pipeline.hget(keys.applied, self._session) or 0) == operation:
                    return True
                commands = prepare(pipeline.execute_command)
                pipeline.multi()
                for command in (*commands, ("HSET", keys.applied, self._session, operation)):
                    pipeline.execute_command(*command)
                pipeline.execute()
                return True

        self._resolving_conflicts(attempt, what)

    def create_once(self, key: str, commands: Sequence[Command], what: str) -> None:
        """Applies `commands`, the first of which create `key`, in one transaction unless the key exists.

        Raises:
            MemoryBackendError: The key exists and an earlier attempt of ours did not make it.
        """

        def attempt(number: int, conflict: int) -> bool:
            with self._redis.pipeline() as pipeline:
                pipeline.watch(key)
                if pipeline.exists(key):
                    if (number or conflict) and pipeline.hget(key, "creator") == self._session.encode():
                        return True
                    raise MemoryBackendError(f"{what} exists already at {self.url}; resume it or choose another run id")
                pipeline.multi()
                for command in (("HSET", key, "creator", self._session), *commands):
                    pipeline.execute_command(*command)
                pipeline.execute()
                return True

        self._resolving_conflicts(attempt, what)

    def keys(self, pattern: str) -> list[str]:
        """Names of the keys that match; not atomic."""
        return self.patiently(
            lambda _attempt: [key.decode() for key in self._redis.scan_iter(match=pattern, count=1000)]
        )

    def close(self) -> None:
        """Closes the connection."""
        self._redis.close()

    def check_server(self) -> None:
        """Raises MemoryBackendError unless the server is new enough and never evicts what actors have pushed."""
        info = self.patiently(lambda _attempt: {**self._redis.info("server"), **self._redis.info("memory")})
        version = str(info["redis_version"])
        if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_SERVER:
            raise MemoryBackendError(f"Redis at {self.url} is {version}; 6.2 or newer is needed")
        policy = info.get("maxmemory_policy", "noeviction")
        if int(info.get("maxmemory", 0)) and policy != "noeviction":
            raise MemoryBackendError(
                f"Redis at {self.url} evicts keys when full (maxmemory-policy {policy}); set it to noeviction"
            )

    def patiently(self, attempt: Callable[[int], Result]) -> Result:
        """Repeats `attempt(number)` over broken connections, with jittered exponential back-off, for `give_up_s`."""
        deadline: float | None = None
        number = 0
        while True:
            try:
                return attempt(number)
            except (redis.AuthenticationError, redis.exceptions.AuthorizationError) as error:
                raise MemoryBackendError(
                    f"Redis at {self.url} refuses the login ({_line(error)}); check the URL"
                ) from error
            except (redis.ConnectionError, redis.TimeoutError) as error:
                now = time.monotonic()
                deadline = now + self.give_up_s if deadline is None else deadline
                if now >= deadline:
                    raise MemoryBackendError(
                        f"Redis at {self.url} is unreachable for {self.give_up_s:g} s ({_line(error)}); "
                        "check that it runs and the URL"
                    ) from error
                back_off_s = min(_FIRST_BACK_OFF_S * 2**number, _LONGEST_BACK_OFF_S) * self._jitter.uniform(0.5, 1.0)
                time.sleep(min(back_off_s, deadline - now))
                number += 1
            except redis.WatchError:
                raise  # a conflict, not a failure: resolved by the caller
            except redis.RedisError as error:
                raise MemoryBackendError(f"Redis at {self.url} refuses: {_line(error)}{_advice(error)}") from error

    def _execute(self, commands: Sequence[Command]) -> list[Reply]:
        with self._redis.pipeline(transaction=True) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return pipeline.execute()

    def _resolving_conflicts(self, attempt: Callable[[int, int], bool], what: str) -> None:
        for conflict in range(_WATCH_ATTEMPTS):
            try:
                self.patiently(lambda number, conflict=conflict: attempt(number, conflict))  # type: ignore[misc]
                return
            except redis.WatchError:  # the watched key changed, or the connection broke: prepared anew
                time.sleep(self._jitter.uniform(0.0, _FIRST_BACK_OFF_S))
        raise MemoryBackendError(f"{what}: {_WATCH_ATTEMPTS} conflicts at {self.url}; is another learner starting?")


def _public(url: str) -> str:
    """The URL without user, password and options, which may carry a password too."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "the given URL"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _advice(error: redis.RedisError) -> str:
    if isinstance(error, redis.OutOfMemoryError) or "OOM" in str(error):
        return "; raise its maxmemory or lower memory.queue_bytes"
    if isinstance(error, redis.exceptions.NoPermissionError) or "NOPERM" in str(error):
        return "; give its user the commands and keys distrl needs"
    if "NOGROUP" in str(error):
        return "; the run's data is gone, start a new run"
    return ""
