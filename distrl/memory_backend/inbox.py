"""Hop 6, the learner's end of the stream: yields entries in order, each of them once.

Redis may redeliver entries after a reconnect. Entries in progress, delivered and not yet settled, are skipped then:
they are no duplicates, however often they come and whenever they are settled. An entry is known by its id and header:
after a fail-over, another server may give the id of an entry that it has lost to a new one.
"""

import threading
from collections.abc import Iterator, Sequence

from distrl.memory_backend.backend import Backend
from distrl.memory_backend.ledger import EntryOutcome
from distrl.memory_backend.stream import Entry
from distrl.types import UnrollHeader

_Known = tuple[str, UnrollHeader | None]


class Inbox:
    """Entries for the learner: first those that a predecessor took and did not settle, one by one; then new ones.

    `next` and `drop` belong to one thread; `settle` may be called by another.

    Args:
        backend: The learner's. `next` and `drop` use its receiving lane. If the connection of `settle` breaks,
            settlements may be lost too.
        count: Number of entries taken from the stream at once.
        block_s: Longest wait for an entry.

    Attributes:
        inherits: Whether the newest entry was a predecessor's.
    """

    def __init__(self, backend: Backend, count: int, block_s: float) -> None:
        self._stream, self._settling = backend.receiving.unrolls, backend.unrolls
        self._count = count
        self._block_s = block_s
        self._interruptions = self._broken()
        self._lock = threading.Lock()
        self._in_progress: set[_Known] = set()
        self._in_doubt: frozenset[_Known] = frozenset()  # in progress when the connection broke for the last time
        self._entries = self._delivered()
        self.inherits = True

    def next(self) -> Entry | None:
        """Return the next entry; None if none came in time."""
        for entry in self._entries:
            if entry is None:
                return None
            if _known(entry) not in self._in_doubt:
                with self._lock:
                    self._in_progress.add(_known(entry))
                return entry
        raise AssertionError("the stream of entries never ends")

    def settle(self, entries: Sequence[Entry], outcome: EntryOutcome) -> None:
        """Settle entries after their use."""
        self._settling.settle(entries, outcome)
        self._leave(entries)

    def drop(self, entry: Entry, outcome: EntryOutcome, *, foreign: bool) -> None:
        """Settle an entry that is not used."""
        self._stream.settle([entry], outcome, foreign=foreign)
        self._leave([entry])

    def has_copy_of(self, entry: Entry) -> bool:
        """Return whether another entry with the header of this one is in progress."""
        with self._lock:
            return any(header == entry.header and other != entry.entry_id for other, header in self._in_progress)

    def _delivered(self) -> Iterator[Entry | None]:
        """Return the entries without those in progress, which a restarted Redis may deliver again."""
        yield from self._unacknowledged()
        self.inherits = False
        look_again = False
        while True:
            if look_again and not self._in_doubt & self._open():
                # All of them are settled, or Redis has lost that: those that it still holds come once more.
                look_again, self._in_doubt = False, self._open()
                yield from self._unacknowledged()
            before = self._open()  # before Redis is asked: the learner may settle some meanwhile
            entries = self._stream.take(self._count, self._block_s)
            if self._interruptions != (broken := self._broken()):
                self._interruptions = broken
                self._in_doubt = before
                yield from entries
                self._in_doubt |= self._open()
                yield from self._unacknowledged()
                look_again = True
                continue
            yield from entries
            if not entries:
                yield None

    def _unacknowledged(self) -> Iterator[Entry]:
        after = "0"
        while left := self._stream.unacknowledged(after, 1):
            after = left[0].entry_id
            yield left[0]

    def _leave(self, entries: Sequence[Entry]) -> None:
        with self._lock:
            self._in_progress.difference_update(map(_known, entries))

    def _broken(self) -> int:
        return self._stream.interruptions + self._settling.interruptions

    def _open(self) -> frozenset[_Known]:
        with self._lock:
            return frozenset(self._in_progress)


def _known(entry: Entry) -> _Known:
    return entry.entry_id, entry.header
