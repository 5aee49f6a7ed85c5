"""Hop 6, the learner's end of the stream: yields entries in order, each of them once.

Redis may redeliver entries after a reconnect. Entries in progress, delivered and not yet settled, are skipped then:
they are no duplicates, however often they come and whenever they are settled.
"""

import threading
from collections.abc import Iterable, Iterator

from distrl.memory_backend.stream import Entry, UnrollStream


class Inbox:
    """Entries for the learner: first those that a predecessor took and did not acknowledge, one by one; then new ones.

    `next` belongs to one thread; `settled` may be called by another.

    Args:
        count: Number of entries taken from the stream at once.
        block_s: Longest wait for an entry.

    Attributes:
        inherits: Whether the newest entry was a predecessor's.
    """

    def __init__(self, stream: UnrollStream, count: int, block_s: float) -> None:
        self._stream = stream
        self._count = count
        self._block_s = block_s
        self._interruptions = stream.interruptions
        self._lock = threading.Lock()
        self._in_progress: set[str] = set()
        self._in_doubt: frozenset[str] = frozenset()  # in progress when the connection broke for the last time
        self._entries = self._delivered()
        self.inherits = True

    def next(self) -> Entry | None:
        """Return the next entry; None if none came in time."""
        for entry in self._entries:
            if entry is None:
                return None
            if entry.entry_id not in self._in_doubt:
                with self._lock:
                    self._in_progress.add(entry.entry_id)
                return entry
        raise AssertionError("the stream of entries never ends")

    def settled(self, entries: Iterable[Entry]) -> None:
        """Record entries that were acknowledged."""
        with self._lock:
            self._in_progress.difference_update([entry.entry_id for entry in entries])

    def _delivered(self) -> Iterator[Entry | None]:
        """Return the entries without those in progress, which a restarted Redis may deliver again."""
        yield from self._unacknowledged()
        self.inherits = False
        while True:
            before = self._open()  # before Redis is asked: the learner may acknowledge meanwhile
            entries = self._stream.take(self._count, self._block_s)
            if self._interruptions != self._stream.interruptions:
                self._interruptions = self._stream.interruptions
                self._in_doubt = before
                yield from entries
                self._in_doubt |= self._open()
                yield from self._unacknowledged()
                continue
            yield from entries
            if not entries:
                yield None

    def _unacknowledged(self) -> Iterator[Entry]:
        after = "0"
        while left := self._stream.unacknowledged(after, 1):
            after = left[0].entry_id
            yield left[0]

    def _open(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._in_progress)
