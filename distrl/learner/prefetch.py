"""Prefetching: a thread collects the next batch or arrival, so that waiting for actors and computing overlap."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from distrl.learner.intake import BLOCK_S

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[T_co]):
    """A source of items: `StreamBatches`, `RoundBatches` or `Arrivals`."""

    def collect(self) -> T_co | None: ...


class Ahead(Protocol[T_co]):
    """A source that may have the next item ready: `Prefetch`, or deterministic mode's `InlineSource`."""

    def collect(self) -> T_co | None: ...

    def poll(self) -> T_co | None:
        """The next one if it is there already; else None. Raises what `collect` raises."""


class Prefetch(Generic[T]):
    """A source on a thread: it collects the next item as soon as an earlier one has been returned.

    Nothing is collected before the first `collect`, when the learner has published its weights and issued tickets. The
    thread ends when `stop` returns True; entries that it had taken stay unacknowledged and count as in flight.

    Args:
        ahead: Items that are collected before they are asked for, at most.

    Attributes:
        waits_on: Called by the learner's thread about every `BLOCK_S` while `collect` waits; False ends the wait.
    """

    def __init__(self, source: Source[T], stop: Callable[[], bool], ahead: int = 1) -> None:
        self._source, self._stop, self._ahead = source, stop, ahead
        self._ready: SimpleQueue[T | BaseException | None] = SimpleQueue()
        self._wanted = threading.Semaphore(0)
        self._asked = False
        self.waits_on: Callable[[], bool] = lambda: True
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def collect(self) -> T | None:
        """Return the next item, in order; None when stopped, or not to wait on. Raises the thread's error."""
        self._ask()
        while not self._stop():
            try:
                return self._handed_over(self._ready.get(timeout=BLOCK_S))
            except Empty:
                if not self.waits_on():
                    break
        return None

    def poll(self) -> T | None:
        """The next one if it is there already; else None. Raises what the thread raised."""
        self._ask()
        try:
            return self._handed_over(self._ready.get_nowait())
        except Empty:
            return None

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._wanted.release(self._ahead)

    def _handed_over(self, item: T | BaseException | None) -> T | None:
        if isinstance(item, BaseException):
            raise item
        self._wanted.release()
        return item

    def close(self) -> None:
        """Wait for the thread to end; `stop` must be set."""
        self._thread.join(timeout=10.0)

    def _run(self) -> None:
        while not self._stop():
            if not self._wanted.acquire(timeout=BLOCK_S):
                continue
            try:
                self._ready.put(self._source.collect())
            except BaseException as error:  # handed to the learner's thread, which raises it
                self._ready.put(error)
                return
