"""The engine in this process: an imitation of the Redis commands in use, for deterministic mode and tests.

A store is what a Redis server would hold. Every command and every transaction is atomic under its one lock, nothing is
ever lost, and nothing is repeated. Threads may share a connection.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

from distrl.errors import MemoryBackendError
from distrl.memory_backend.engine import Command, Engine, Reply, Value

PREFIX = "local:"


class LocalEngine(Engine):
    """A connection to a store.

    Args:
        url: `local:` for a store of its own, or `local:NAME` for the one that all connections of that name share.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.interruptions = self.survived = self.failovers = 0
        self.history = "local"
        self.keeps_expiring = True
        name = url.removeprefix(PREFIX)
        self._store = _STORES.setdefault(name, _Store()) if name else _Store()

    def goes_on_from(self, history: str) -> bool:
        return history in ("", self.history)

    def call(self, *command: Value) -> Reply:
        return self.transaction([command])[0]

    def transaction(self, commands: Sequence[Command]) -> list[Reply]:
        with self._store.changed:
            replies = [self._store.run(command) for command in commands]
            self._store.changed.notify_all()
            return replies

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
        """Run commands under the lock. No command fails alone, so `undo` is never needed."""
        with self._store.changed:
            check(self._store.run(guard))
            if wait is not None:
                self._store.wait_for(wait, float(wait[-1]))
            check(self._store.run(guard))
            return self.transaction(commands)

    def exactly_once(
        self,
        guard: Command,
        prepare: Callable[[Reply, Sequence[Reply]], Sequence[Command]],
        what: str,
        *,
        applied: str,
        reads: Sequence[Command] = (),
    ) -> None:
        with self._store.changed:
            self.transaction(prepare(self._store.run(guard), [self._store.run(command) for command in reads]))

    def call_blocking(
        self, command: Callable[[float], Command], block_s: float, recover: Callable[[], Reply | None]
    ) -> Reply | None:
        """Run the command that does not block, again after every change."""
        with self._store.changed:
            return self._store.wait_for(command(0.0), block_s)

    def confirm(self) -> bool:
        """Return True: there are no replicas."""
        return True

    def keys(self, pattern: str) -> list[str]:
        with self._store.changed:
            return [key for key, value in self._store.data.items() if value and fnmatchcase(key, pattern)]

    def close(self) -> None:
        """Do nothing: the store stays as long as a connection to it is referred to."""


class _Stream:
    """A stream with one consumer group of one consumer."""

    def __init__(self) -> None:
        self.entries: dict[int, dict[bytes, bytes]] = {}  # in order
        self.last = 0
        self.queue: deque[int] | None = None  # not delivered yet, deleted ones included; None: there is no group
        self.pending: dict[int, None] = {}  # in order

    def entry(self, number: int) -> tuple[bytes, dict[bytes, bytes] | None]:
        return b"%d-0" % number, self.entries.get(number)

    def new(self, count: int) -> list[int]:
        """Deliver up to `count` entries."""
        taken: list[int] = []
        queue = self.queue or deque()
        while queue and len(taken) < count:
            number = queue.popleft()
            if number in self.entries:
                taken.append(number)
        self.pending.update(dict.fromkeys(taken))
        return taken


class _Store:
    """Key -> value: a dict, a deque or a stream. `changed` is the one lock, notified after every transaction."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.data: dict[str, Any] = {}

    def run(self, command: Command) -> Reply:
        """Run one command, without blocking."""
        return getattr(self, _method(command[0]))(*command[1:])

    def wait_for(self, command: Command, block_s: float) -> Reply | None:
        """Run a command until it replies or `block_s` has passed; the caller holds the lock."""
        deadline = time.monotonic() + block_s
        while not (reply := self.run(command)):
            left_s = deadline - time.monotonic()
            if left_s <= 0.0:
                return None
            self.changed.wait(left_s)
        self.changed.notify_all()
        return reply

    # ------------------------------------------------------------------------- keys

    def _time(self) -> tuple[int, int]:
        now = time.time()
        return int(now), int(now % 1.0 * 1e6)

    def _exists(self, key: str) -> int:
        return int(bool(self.data.get(key)))

    def _expire(self, key: str, _seconds: int) -> bool:
        """A store ends with its process, which is the run's."""
        return bool(self._exists(key))

    def _unlink(self, *keys: str) -> int:
        return sum(self.data.pop(key, None) is not None for key in keys)

    _del = _unlink

    # ------------------------------------------------------------------------- hashes

    def _hash(self, key: str) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self.data.get(key, {})
        return found

    def _hset(self, key: str, *parts: Value) -> int:
        fields = _fields(parts)
        self.data.setdefault(key, {}).update(fields)
        return len(fields)

    def _hget(self, key: str, field: Value) -> bytes | None:
        return self._hash(key).get(_bytes(field))

    def _hmget(self, key: str, *fields: Value) -> list[bytes | None]:
        return [self._hash(key).get(_bytes(field)) for field in fields]

    def _hgetall(self, key: str) -> dict[bytes, bytes]:
        return dict(self._hash(key))

    def _hexists(self, key: str, field: Value) -> bool:
        return _bytes(field) in self._hash(key)

    def _hdel(self, key: str, field: Value) -> int:
        return int(self._hash(key).pop(_bytes(field), None) is not None)

    def _hincrby(self, key: str, field: Value, increment: int) -> int:
        fields, name = self.data.setdefault(key, {}), _bytes(field)
        number = int(fields.get(name, 0)) + increment
        fields[name] = b"%d" % number
        return number

    # ------------------------------------------------------------------------- lists

    def _list(self, key: str) -> "deque[bytes]":
        found: deque[bytes] = self.data.get(key, deque())
        return found

    def _rpush(self, key: str, *values: Value) -> int:
        held = self.data.setdefault(key, deque())
        held.extend(map(_bytes, values))
        return len(held)

    def _llen(self, key: str) -> int:
        return len(self._list(key))

    def _lpop(self, key: str, count: int) -> list[bytes]:
        held = self._list(key)
        return [held.popleft() for _ in range(min(count, len(held)))]

    def _lindex(self, key: str, index: int) -> bytes | None:
        held = self._list(key)
        return held[index] if index < len(held) else None

    def _lmove(self, source: str, target: str, _left: str, _right: str) -> bytes | None:
        held = self._list(source)
        if not held:
            return None
        value = held.popleft()
        self._rpush(target, value)
        return value

    # ------------------------------------------------------------------------- sorted sets

    def _zadd(self, key: str, *parts: Value) -> int:
        """With GT or, where all scores are equal, without."""
        scores, pairs = self.data.setdefault(key, {}), parts[1:] if parts[0] == "GT" else parts
        before = len(scores)
        for score, member in zip(pairs[::2], pairs[1::2], strict=True):
            name = _bytes(member)
            scores[name] = max(int(score), scores.get(name, int(score)))
        return len(scores) - before

    def _zrange(self, key: str, _first: int, _last: int, _scores: str) -> list[bytes]:
        scores: dict[bytes, int] = self.data.get(key, {})
        return [part for name, score in scores.items() for part in (name, _bytes(score))]

    def _bzpopmin(self, key: str, _block_s: float) -> tuple[bytes, bytes, float] | None:
        """Where all scores are equal."""
        scores: dict[bytes, int] = self.data.get(key, {})
        if not scores:
            return None
        name = min(scores)
        return _bytes(key), name, float(scores.pop(name))

    # ------------------------------------------------------------------------- streams

    def _stream(self, key: str) -> _Stream:
        stream: _Stream | None = self.data.get(key)
        if stream is None:
            raise MemoryBackendError(f"no stream {key} in this process; the run's data is gone, start a new run")
        return stream

    def _xgroup(self, _create: str, key: str, *_options: str) -> bool:
        self.data.setdefault(key, _Stream()).queue = deque()
        return True

    def _xadd(self, key: str, *parts: Value) -> bytes:
        stream: _Stream = self.data.setdefault(key, _Stream())
        star = parts.index("*")
        stream.last += 1
        stream.entries[stream.last] = _fields(parts[star + 1 :])
        if stream.queue is not None:
            stream.queue.append(stream.last)
        if star:  # MAXLEN [~] N
            for number in list(stream.entries)[: -int(parts[star - 1])]:
                del stream.entries[number]
        return b"%d-0" % stream.last

    def _xlen(self, key: str) -> int:
        return len(self.data[key].entries) if key in self.data else 0

    def _xrange(self, key: str, first: str | bytes, _last: str | bytes) -> list[Any]:
        """All entries after `(first`, or the one whose id is `first`."""
        if key not in self.data:
            return []
        stream, number = self._stream(key), _number(first)
        if not _bytes(first).startswith(b"("):
            return [stream.entry(number)] if number in stream.entries else []
        return [stream.entry(later) for later in stream.entries if later > number]

    def _xreadgroup(self, *parts: Value) -> list[Any]:
        """GROUP g c COUNT n STREAMS key ">" or an id."""
        count, (key, after) = int(parts[parts.index("COUNT") + 1]), parts[-2:]
        stream = self._stream(str(key))
        numbers = stream.new(count) if after == ">" else [n for n in stream.pending if n > _number(after)][:count]
        return [[_bytes(key), [stream.entry(number) for number in numbers]]] if numbers else []

    def _xack(self, key: str, _group: str, *ids: str) -> int:
        pending = self._stream(key).pending
        return sum(pending.pop(_number(entry_id), "") is None for entry_id in ids)

    def _xdel(self, key: str, *ids: str) -> int:
        entries = self._stream(key).entries
        return sum(entries.pop(_number(entry_id), None) is not None for entry_id in ids)

    def _xpending(self, key: str, _group: str) -> dict[str, int]:
        return {"pending": len(self._stream(key).pending)}


_STORES: "WeakValueDictionary[str, _Store]" = WeakValueDictionary()


@lru_cache
def _method(name: Value) -> str:
    return f"_{str(name).lower()}"


def _bytes(value: Value) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _fields(parts: Sequence[Value]) -> dict[bytes, bytes]:
    return {_bytes(name): _bytes(value) for name, value in zip(parts[::2], parts[1::2], strict=True)}


def _number(entry_id: Value) -> int:
    return int(_bytes(entry_id).lstrip(b"(").split(b"-")[0])
