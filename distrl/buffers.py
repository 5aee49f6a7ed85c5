"""Memory of large arrays that is used again. It must not know what the arrays hold."""

import math
import mmap
import weakref
from collections import defaultdict
from contextlib import suppress

import numpy as np

from distrl.types import Array

LEAST_BYTES = 2**18
"""Size of the arrays that are worth it: below, reuse costs as much as it saves."""


class Buffers:
    """Memory of large arrays, which is used again once nothing refers to an array in it.

    The operating system clears fresh memory page by page, which takes as long as writing it. Every reader of an array
    refers to it: a view, a buffer, or a framework's array that shares its memory or copies it later. So memory under a
    running update, or of a batch that is kept, is never written to.
    """

    def __init__(self) -> None:
        self._free: defaultdict[int, list[mmap.mmap]] = defaultdict(list)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        """Return an array of any content."""
        size = math.prod(shape) * dtype.itemsize
        if size < LEAST_BYTES:
            return np.empty(shape, dtype)
        free = self._free[size]
        memory = free.pop() if free else _pages(size)
        # Views of this array, and views of these, all refer to it: NumPy looks for an owner up to the last array, and
        # `memory` is none. (Of a memoryview it would take the array behind it.)
        array: Array = np.ndarray(shape, dtype, memory)
        weakref.finalize(array, free.append, memory).atexit = False
        return array


def _pages(size: int) -> mmap.mmap:
    """Return memory that begins at a page, so that XLA on the CPU reads it in place.

    Linux makes its pages large, as it does for NumPy's own arrays: copies into small ones take longer.
    """
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
