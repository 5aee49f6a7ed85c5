"""Memory of large arrays is used again, and never while something refers to it."""

import subprocess
import sys
import threading
from importlib.util import find_spec

import numpy as np
import pytest

from distrl.buffers import LEAST_BYTES, Buffers

LARGE = (LEAST_BYTES,)
BYTE = np.dtype("uint8")


def test_memory_is_used_again_once_no_array_refers_to_it():
    buffers = Buffers()
    array = buffers.empty(LARGE, BYTE)
    at, view = array.ctypes.data, array[1:][2:].reshape(-1, 1)
    del array
    other = buffers.empty(LARGE, BYTE)
    assert other.ctypes.data != at
    del view
    assert buffers.empty((LARGE[0] // 4,), np.dtype("float32")).ctypes.data == at
    assert at % 64 == 0


def test_another_thread_may_end_an_arrays_use():
    buffers = Buffers()
    held = [buffers.empty(LARGE, BYTE)]
    at = held[0].ctypes.data
    ends = threading.Thread(target=held.clear)
    ends.start()
    ends.join()
    assert buffers.empty(LARGE, BYTE).ctypes.data == at


def test_memory_outlives_its_buffers():
    array = Buffers().empty(LARGE, BYTE)
    array[:] = 7
    assert array.sum() == 7 * LARGE[0]


SHARED_WITH_JAX = """
import gc

import jax
import numpy as np
from distrl.buffers import LEAST_BYTES, Buffers

buffers = Buffers()
array = buffers.empty((LEAST_BYTES,), np.dtype("uint8"))
array[:] = 1
at = array.ctypes.data
theirs = jax.device_put(array)
assert theirs.unsafe_buffer_pointer() == at  # JAX on the CPU copies nothing
del array
other = buffers.empty((LEAST_BYTES,), np.dtype("uint8"))
other[:] = 2
assert (np.asarray(theirs) == 1).all()
del theirs, other
gc.collect()  # JAX lets go of arrays at its next call, or here
both = [buffers.empty((LEAST_BYTES,), np.dtype("uint8")) for _ in range(2)]
assert at in [array.ctypes.data for array in both]
"""


@pytest.mark.skipif(find_spec("jax") is None, reason="needs JAX")
def test_memory_that_jax_shares_is_not_written_to():
    done = subprocess.run(
        [sys.executable, "-c", SHARED_WITH_JAX], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
