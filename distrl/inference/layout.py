"""The memory that one actor shares with the inference server: arrays of B rows, at places that both sides compute."""

import fcntl
import math
import mmap
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from distrl.errors import DistrlError
from distrl.networks.policy.description import BundleDescription
from distrl.types import Array, ArraySpec

_ALIGNED_BYTES = 64
MOST_BYTES = 2**32
"""Largest memory of one actor."""


class Block(NamedTuple):
    """Views of the memory of one actor, name -> [B, ...] each.

    Attributes:
        observations: In the environment's dtype; the actor writes them.
        recurrent_state: Before the step; the actor writes it.
        outputs: float32; the server writes them.
        next_state: Of the next step, before any restart; the server writes it.
    """

    observations: dict[str, Array]
    recurrent_state: dict[str, Array]
    outputs: dict[str, Array]
    next_state: dict[str, Array]


class Layout:
    """Places of the arrays of a policy for B rows.

    Attributes:
        size: Bytes of the memory.

    Raises:
        DistrlError: There are no rows, or too many.
    """

    def __init__(self, description: BundleDescription, rows: int) -> None:
        outputs = {name: ArraySpec(shape, "float32") for name, shape in description.outputs.items()}
        state = description.recurrent_state
        self._rows = rows
        self._groups: tuple[Mapping[str, ArraySpec], ...] = description.inputs, state, outputs, state  # as in a Block
        self.size = sum(_room(spec, rows) for group in self._groups for spec in group.values())
        if rows < 1 or self.size > MOST_BYTES:
            raise DistrlError(f"shared inference takes 1 to {MOST_BYTES:,} bytes of an actor, not {rows:,} rows")

    def block(self, memory: mmap.mmap) -> Block:
        """Return the views of a memory of `size` bytes."""
        places = self._placed(memory)
        return Block(*({name: next(places) for name in group} for group in self._groups))

    def _placed(self, memory: mmap.mmap) -> Iterator[Array]:
        offset = 0
        for group in self._groups:
            for spec in group.values():
                shape = (self._rows, *spec.shape)
                yield np.frombuffer(memory, spec.dtype, math.prod(shape), offset).reshape(shape)
                offset += _room(spec, self._rows)


def write(views: Mapping[str, Array], arrays: Mapping[str, Array]) -> None:
    """Copy arrays, name -> [B, ...], into a group of a block.

    Raises:
        DistrlError: Names, shapes or dtypes are others.
    """
    if views.keys() != arrays.keys():
        raise DistrlError(f"the policy does not take these observations: it takes {[*views]}, not {[*arrays]}")
    for name, view in views.items():
        array = arrays[name]
        if (array.shape, array.dtype) != (view.shape, view.dtype):
            raise DistrlError(
                f"the policy does not take these observations: {name} is {array.dtype} {array.shape}, not "
                f"{view.dtype} {view.shape}"
            )
        view[...] = array


def make_memory(size: int) -> int:
    """Return the descriptor of a new memory without a name, which ends with the last process that has it.

    Where the system can seal it, neither side can make it smaller.
    """
    if not hasattr(os, "memfd_create"):  # macOS: a file without a name
        with tempfile.TemporaryFile() as file:
            file.truncate(size)
            return os.dup(file.fileno())
    descriptor = os.memfd_create("distrl-inference", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


def map_memory(descriptor: int, size: int) -> mmap.mmap:
    """Map a memory that `make_memory` has made, here or in another process.

    Raises:
        DistrlError: It is no such memory, or has another size.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size != size:
        raise DistrlError(f"the memory of an actor has {status.st_size:,} bytes, not {size:,}")
    if hasattr(os, "memfd_create"):
        try:
            sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS
        except OSError:  # an ordinary file
            sealed = False
        if not sealed:
            raise DistrlError("the memory of an actor is not sealed, so that it could become smaller in use")
    return mmap.mmap(descriptor, size)


_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL if hasattr(fcntl, "F_SEAL_SHRINK") else 0


def _room(spec: ArraySpec, rows: int) -> int:
    """Return the bytes of an array of so many rows, up to the place of the next one."""
    size = max(rows, 1) * math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
    return -(-size // _ALIGNED_BYTES) * _ALIGNED_BYTES
