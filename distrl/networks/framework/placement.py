"""Batches on the device before their update begins, so that the copy overlaps with the update before it."""

from collections.abc import Callable, Mapping

from keras import ops

from distrl import frames
from distrl.networks.actions.family import Tensor
from distrl.networks.framework import backend
from distrl.types import Array, Batch

LEAST_BYTES = 2**20
"""Size of the arrays that are copied ahead. Smaller ones go with the update; the learner's NumPy code reads them."""


class Placement:
    """Copies large observations of batches to the device, and rebuilds stacks of frames there.

    Each frame of a stack is copied once. The copies are the framework's arrays, of the values, dtypes and shapes that
    the batch would have had.

    Args:
        copy: As of `backend.copy_ahead`.
        frame_counts: Observation's name -> n, for stacks of n > 1 frames.
    """

    def __init__(self, copy: Callable[[Array], Array], frame_counts: Mapping[str, int]) -> None:
        self._copy = copy
        self._frame_counts = frame_counts
        self._stack = {name: backend.compiled(_stacking(count)) for name, count in frame_counts.items()}

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with large observations on the device; the copy may still go on.

        Args:
            batch: Of stacks it has the single frames, [T+n, N, ..., C].
        """
        return batch._replace(observations={name: self._placed(name, batch) for name in batch.observations})

    def _placed(self, name: str, batch: Batch) -> Array:
        rows = batch.observations[name]
        if (count := self._frame_counts.get(name)) is not None:
            stacks: Array = self._stack[name](self._copy(rows), frames.reach(batch.valid, count))
            return stacks
        return self._copy(rows) if rows.nbytes >= LEAST_BYTES else rows


def placement(replicas: int, frame_counts: Mapping[str, int]) -> Placement | None:
    """Return the placement of this process; None if copies ahead would gain nothing, as on a CPU.

    Args:
        replicas: Devices that share a batch.
    """
    copy = backend.copy_ahead(replicas)
    return None if copy is None else Placement(copy, frame_counts)


def _stacking(count: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the twin of `frames.rebuilt` for stacks of `count` frames, in `keras.ops`.

    It selects and never gathers: sequences that several devices share stay where they are.
    """

    def stacked(rows: Tensor, reach: Tensor) -> Tensor:
        length = reach.shape[0]
        windows = [rows[place : place + length] for place in range(count)]  # [T+1, N, ..., C], the oldest frame first
        oldest = ops.reshape(count - 1 - reach, (*reach.shape, *(1 for _ in rows.shape[2:])))
        places = []
        for place in range(count):
            frame = windows[-1]
            for earlier in range(count - 2, place - 1, -1):
                frame = ops.where(oldest <= earlier, windows[earlier], frame)
            places.append(frame)
        return ops.concatenate(places, axis=-1)

    return stacked
