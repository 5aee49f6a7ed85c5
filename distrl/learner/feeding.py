"""Hop 6: joins unrolls to batches, with several threads, in memory that is used again."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise

from distrl.buffers import LEAST_BYTES, Buffers
from distrl.config import RunConfig
from distrl.machine import cores
from distrl.memory_backend.joining import Joined
from distrl.types import Batch, Unroll
from distrl.unroll_schema import UnrollSchema, bytes_of

MOST_THREADS = 4
"""Most threads of `auto`: threads that copy share the memory's bandwidth."""


def feed_threads(config: RunConfig, schema: UnrollSchema) -> int:
    """Return the number of threads that `learner.feed_threads` means on this machine."""
    given = config.learner.feed_threads
    if config.deterministic:
        return 1
    if given != "auto":
        return given
    if bytes_of(schema.observations) < LEAST_BYTES:
        return 1
    return min(max(cores() - config.started_actors - config.learner.threads, 1), MOST_THREADS)


class Joining:
    """Writes unrolls into one batch after the other.

    Args:
        size: Unrolls in a batch.
        frame_counts: As of `Joined`.
        threads: Threads that write unrolls beside each other, or parts of one if a batch has fewer unrolls than there
            are threads, and end with this object; 1: the caller alone writes.
    """

    def __init__(self, size: int, frame_counts: Mapping[str, int], threads: int = 1) -> None:
        self._size, self._frame_counts = size, frame_counts
        self._parts = -(-threads // size)
        self._buffers = Buffers()
        self._workers = ThreadPoolExecutor(threads, "feed writer") if threads > 1 else None
        self._joined: Joined | None = None
        self._written = 0
        self._pending: list[Future[None]] = []

    def begin(self) -> None:
        """Begin a batch; what was written of an earlier one that never was complete is forgotten."""
        self._joined, self._written, self._pending = None, 0, []

    def add(self, unroll: Unroll) -> None:
        """Write the batch's next unroll, or let the threads write it."""
        if self._joined is None:
            self._joined = Joined(unroll, self._size, self._frame_counts, self._buffers.empty)
        joined, number = self._joined, self._written
        self._written += 1
        joined.write_steps(number, unroll)
        if self._workers is None:
            joined.write_observations(number, unroll, 0, joined.columns)
            return
        parts = min(self._parts, joined.columns)
        bounds = [part * joined.columns // parts for part in range(parts + 1)]
        for begin, end in pairwise(bounds):
            self._pending.append(self._workers.submit(joined.write_observations, number, unroll, begin, end))

    def finish(self) -> Batch:
        """Return the batch once all of it is written. Raises what a thread raised."""
        assert self._joined is not None
        assert self._written == self._size
        for part in self._pending:
            part.result()
        batch = self._joined.batch
        self.begin()
        return batch
