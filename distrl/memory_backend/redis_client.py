"""The engine over Redis: retries with back-off, and fenced transactions.

All commands of a round trip are sent at once; `redis_connection` sends them. What may be repeated is decided
here: reads and heartbeats give the same result when they are sent twice; a push may store two copies, which the learner
drops as duplicates; a fenced transaction (acknowledging, publishing, issuing tickets) is known by its number in the
`applied` hash and never applied twice. Redis does not roll back: where one command of a transaction fails inside EXEC,
the others are applied. What a push has counted is then taken back, under a number as well.
"""

import random
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import redis

from distrl.config.secrets import PASSWORD_VARIABLE
from distrl.errors import ForeignKeyError, MemoryBackendError, OutageError
from distrl.memory_backend import tls
from distrl.memory_backend.engine import Command, Engine, Reply, Value
from distrl.memory_backend.keys import number_or_zero
from distrl.memory_backend.meter import Meter
from distrl.memory_backend.redis_address import RedisAddress
from distrl.memory_backend.redis_connection import BLOCK_S, RedisConnection
from distrl.memory_backend.redis_errors import checked, code, is_outage, line, outage, refusal

_FIRST_BACK_OFF_S = 0.02
_LONGEST_BACK_OFF_S = 1.0
_WATCH_ATTEMPTS = 10
_CONFIRMATION_MS = 1000
"""Longest wait for a replica's confirmation; below the time-out of the socket."""
_REPORT_S = 1.5
"""Longest wait for a replica's own report, of which it makes one a second."""
_LOOK_S = 0.05

Result = TypeVar("Result")


def connect(
    address: RedisAddress, *, name: str, give_up_s: float, first_connect_s: float = 3.0, meter: Meter | None = None
) -> "RedisClient":
    """Connect and check the server.

    Args:
        name: Role ("actor 3"), shown by CLIENT LIST as distrl:actor-3.
        give_up_s: Time-out of an operation while Redis is unreachable.
        first_connect_s: The same for this first connection, at which a wrong URL is likelier than an outage.
        meter: Bounds the bytes received from a server that is not trusted.

    Raises:
        ConfigError: A file of TLS or of a password cannot be used.
        OutageError: Unreachable, or a replica.
        MemoryBackendError: It refuses the login, is older than 6.2, would evict the run's keys when full, or is of
            another kind than the URL says (a Sentinel, a Cluster).
    """
    client = RedisClient(address, name, min(first_connect_s, give_up_s), meter)
    try:
        client.open()
    except BaseException:
        client.close()
        raise
    client.give_up_s = give_up_s
    return client


class RedisClient(Engine):
    """One role's connection.

    Methods raise OutageError after `give_up_s` without a Redis that accepts commands, and MemoryBackendError at once if
    it refuses permanently.
    """

    def __init__(self, address: RedisAddress, name: str, give_up_s: float, meter: Meter | None = None) -> None:
        self.give_up_s = give_up_s
        self._address, self._name, self._meter = address, name, meter
        self._connection = RedisConnection(address, name, meter)
        self._user = address.user
        self._translations = dict(redis.Redis(protocol=2).response_callbacks)
        self._guarded: tuple[Command, Reply] | None = None
        self.url = address.public
        self.interruptions = self.survived = self.failovers = 0
        self.history = ""
        self.keeps_expiring = True
        self._has_connected = False
        self._session = uuid.uuid4().hex
        self._operations = 0
        self._jitter = random.Random()

    def open(self) -> None:
        """Connect now, not with the first command; raises as every operation does."""
        self.patiently(lambda _attempt: self._round_trip(()))
        self._has_connected = True

    def goes_on_from(self, history: str) -> bool:
        return self._connection.goes_on_from(history)

    def confirm(self) -> bool:
        before = self.failovers
        return self.patiently(lambda _attempt: self._confirmed()) and self.failovers == before

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
            return self._replies(commands, replies)

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
        nodes = self.patiently(lambda _attempt: self._connection.nodes())
        if not nodes:
            return self._scanned(pattern)
        found: list[str] = []
        for node in nodes:
            alone = RedisClient(replace(self._address, endpoints=(node,)), self._name, self.give_up_s, self._meter)
            try:
                found += alone._scanned(pattern)
            finally:
                alone.close()
        return list(dict.fromkeys(found))  # a slot that moves meanwhile is on two nodes

    def _scanned(self, pattern: str) -> list[str]:
        """Return the names of the keys that the connected server holds."""
        found: list[str] = []
        cursor = None
        while cursor != 0:
            cursor, names = self.call("SCAN", cursor or 0, "MATCH", pattern, "COUNT", 1000)
            found += [name.decode(errors="replace") for name in names]
        return list(dict.fromkeys(found))  # a scan may tell a key twice

    def close(self) -> None:
        self._hang_up()

    def patiently(self, attempt: Callable[[int], Result]) -> Result:
        """Repeat `attempt(number)` over outages, with jittered exponential back-off, for `give_up_s`.

        An outage is a broken connection, or a refusal that passes, such as that of a replica during a fail-over. The
        next attempt opens a new connection and looks the address up again. At the first connection, a refused
        certificate is final as soon as each server of the URL has been tried.
        """
        deadline: float | None = None
        reason: redis.RedisError | None = None  # the newest but redirections, which only lead to it
        number = 0
        while True:
            try:
                return attempt(number)
            except (redis.AuthenticationError, redis.exceptions.AuthorizationError) as error:
                raise MemoryBackendError(
                    f"Redis at {self.url} refuses the login of user {self._user or 'default'} ({line(error)}); "
                    f"check the user in the URL and {PASSWORD_VARIABLE}"
                ) from error
            except redis.WatchError:
                raise  # a conflict, not a failure: resolved by the caller
            except redis.RedisError as error:
                if not is_outage(error):
                    kind = ForeignKeyError if code(error) == "WRONGTYPE" else MemoryBackendError
                    raise kind(f"Redis at {self.url} {refusal(error, self._user)}") from error
                self._hang_up(error)
                self.interruptions += 1
                if reason is None or not isinstance(error, redis.exceptions.MovedError):
                    reason = error
                now = time.monotonic()
                deadline = now + self.give_up_s if deadline is None else deadline
                if self._is_hopeless(number, error):
                    raise MemoryBackendError(self._outage(reason, None)) from error
                if now >= deadline:
                    raise OutageError(self._outage(reason, self.give_up_s)) from error
                back_off_s = min(_FIRST_BACK_OFF_S * 2**number, _LONGEST_BACK_OFF_S) * self._jitter.uniform(0.5, 1.0)
                time.sleep(min(back_off_s, deadline - now))
                number += 1

    def _is_hopeless(self, number: int, error: redis.RedisError) -> bool:
        """Return whether the first connection fails for a certificate, and each server of the URL has been tried."""
        tried_all = number + 1 >= len(self._address.endpoints)
        return tried_all and not self._has_connected and tls.refuses(str(error))

    def _outage(self, error: redis.RedisError, seconds: float | None) -> str:
        """Return a line about an outage; `seconds`: its length, None if it is final at once."""
        address = self._address
        if self._has_connected:
            remedy = tls.advice(str(error))
        else:  # there are more causes for a connection that breaks
            remedy = tls.advice(str(error), secure=address.encrypted, certificate="cert_file" in address.files)
        return f"Redis at {self.url} {outage(error, seconds, remedy)}"

    def _ask(self, command: Command) -> Reply:
        (reply,) = self._round_trip([command])
        return self._translated(command, checked(reply, command))

    def _confirmed(self) -> bool:
        told = self._replication()
        if told is None or not told.get("connected_slaves"):
            return True
        (confirmed,) = self._round_trip([("WAIT", 1, _CONFIRMATION_MS)])
        if not self._connection.allows(confirmed, "WAIT: replicas are not asked what they hold"):
            return True
        return bool(confirmed >= 1) and self._is_held(int(told["master_repl_offset"]))

    def _is_held(self, offset: int) -> bool:
        """Whether a replica holds the stream of writes up to an offset; it may take a second to report that.

        Redis 7 makes WAIT depend on all that the server had at this connection's last command, Valkey 9 on what this
        connection has written: nothing, after a reconnect.
        """
        until = time.monotonic() + _REPORT_S
        while (told := self._replication()) is not None:
            replicas = [value for name, value in told.items() if name.startswith("slave") and isinstance(value, dict)]
            if any(int(replica["offset"]) >= offset for replica in replicas):
                return True
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK_S)
        return True

    def _replication(self) -> dict[str, Any] | None:
        """Return the server's facts about replication; None where it does not allow INFO."""
        (told,) = self._round_trip([("INFO", "replication")])
        if not self._connection.allows(told, "INFO"):
            return None
        return dict(self._translations["INFO"](told))

    def _execute(self, commands: Sequence[Command], guard: Command | None = None) -> list[Reply]:
        """Run `_executed`, and raise the error of the first command that failed inside EXEC."""
        replies = self._executed(commands, guard)
        return self._replies(commands, replies)

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
        sent = [*before, ("MULTI",), *commands, ("EXEC",), *after]
        replies = self._round_trip(sent)
        self._guarded = None if guard is None else (guard, replies[-1])
        unread = [reply for reply in replies[-2:] if isinstance(reply, redis.RedisError)] if guard is not None else []
        if unread:
            self._hang_up(unread[0])  # not watched, or not read: the next transaction does both again
            self.interruptions += 1
        last = len(before) + 1 + len(commands)
        executed: Sequence[Reply] | None = replies[last]
        if wait is not None or not isinstance(executed, list):
            for command, reply in zip(sent[: last + 1], replies, strict=False):
                checked(reply, command)  # refused before EXEC: that one's error says less
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
            replies = [
                checked(reply, command) for command, reply in zip(commands, self._round_trip(commands), strict=True)
            ]
        except redis.ResponseError:
            self._hang_up()  # what is watched now is not what was read before
            raise
        self._guarded = (guard, replies[2])
        return replies[2], [self._translated(command, reply) for command, reply in zip(reads, replies[3:], strict=True)]

    def _round_trip(self, commands: Sequence[Command]) -> list[Reply]:
        """Send all commands, then read all replies; a refusal is an exception object among them."""
        connection = self._connection
        try:
            replies = connection.exchange(commands)
        except BaseException as error:
            self._hang_up(error)  # later commands would take the unread replies for theirs
            raise
        self.failovers += connection.history_changed
        self.history = connection.history
        self.keeps_expiring = connection.keeps_expiring
        return replies

    def _hang_up(self, error: BaseException | None = None) -> None:
        self._guarded = None
        self._connection.leave(error)

    def _replies(self, commands: Sequence[Command], replies: Sequence[Reply]) -> list[Reply]:
        """Return the replies of a transaction as redis-py translates them; raise the first that is a refusal."""
        return [
            self._translated(command, checked(reply, command)) for command, reply in zip(commands, replies, strict=True)
        ]

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
