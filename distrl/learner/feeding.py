"""Hop 6: joins unrolls to batches, with several threads, in memory that is used again."""

import math
import os
import weakref
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from distrl.config import RunConfig
from distrl.memory_backend.joining import Joined
from distrl.types import Array, Batch, Unroll
from distrl.unroll_schema import UnrollSchema, bytes_of

LEAST_BYTES = 2**18
"""Size of the arrays that are worth it: below, threads and reuse cost as much as they save."""
_ALIGNMENT = 64
"""XLA on the CPU reads memory in place that begins at a multiple of it, and copies other memory."""

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
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(max(cores - config.started_actors - config.learner.threads, 1), MOST_THREADS)


class Buffers:
    """Memory of large arrays, which is used again once nothing refers to an array in it.

    The operating system clears fresh memory page by page, which takes as long as writing it. Every reader of an array
    refers to it: a view, a buffer, or a framework's array that shares its memory or copies it later. So memory under a
    running update, or of a batch that is kept, is never written to.
    """

    def __init__(self) -> None:
        self._free: defaultdict[int, list[bytearray]] = defaultdict(list)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        """Return an array of any content."""
        size = math.prod(shape) * dtype.itemsize
        if size < LEAST_BYTES:
            return np.empty(shape, dtype)
        free = self._free[size]
        memory = free.pop() if free else bytearray(size + _ALIGNMENT)
        start = -np.frombuffer(memory, np.uint8).ctypes.data % _ALIGNMENT
        # Views of this array, and views of these, all refer to it: NumPy looks for an owner up to the last array, and
        # `memory` is none. (Of a memoryview it would take the array behind it.)
        array: Array = np.ndarray(shape, dtype, memory, start)
        weakref.finalize(array, free.append, memory).atexit = False
        return array


class Joining:
    """Writes unrolls into one batch after the other.

    Args:
        size: Unrolls in a batch.
        frame_counts: As of `Joined`.
        threads: Threads that write parts of an unroll beside each other, and end with this object; 1: the caller alone
            writes.
    """

    def __init__(self, size: int, frame_counts: Mapping[str, int], threads: int = 1) -> None:
        self._size, self._frame_counts, self._threads = size, frame_counts, threads
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
        parts = min(self._threads, joined.columns)
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
