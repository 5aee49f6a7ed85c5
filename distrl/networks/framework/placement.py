"""Batches on the device before their update begins, so that the copy overlaps with the update before it."""

from collections.abc import Callable, Collection, Mapping

from keras import ops

from distrl import frames
from distrl.networks.actions.family import Tensor
from distrl.networks.framework import backend
from distrl.types import Array, Batch

LEAST_BYTES = 2**20
"""Size of the arrays that are copied ahead. Smaller ones go with the update; the learner's NumPy code reads them."""


class Placement:
    """Copies large observations of batches to the device, and rebuilds stacks of frames there.

    Each frame of a stack is copied once. The copies are the framework's arrays, of the shapes that the batch would have
    had, and of the values and dtypes that the update computes with: JAX makes numbers of 64 bits ones of 32.

    Attributes:
        frames_on_host: Observation's name -> n, for the stacks that batches must come with.

    Args:
        copy, compiled: As of `backend.copy_ahead`.
        frame_counts: Observation's name -> n, for stacks of n > 1 frames.
        on_host: Names of observations that stay, as the learner's NumPy code reads them in 64 bits: from the device
            they would come back.
    """

    def __init__(
        self,
        copy: Callable[[Array], Array],
        compiled: Callable[[Callable[..., Tensor]], Callable[..., Array]],
        frame_counts: Mapping[str, int],
        on_host: Collection[str] = (),
    ) -> None:
        self._copy, self._on_host = copy, on_host
        self.frames_on_host = {name: count for name, count in frame_counts.items() if name in on_host}
        self._frame_counts = {name: count for name, count in frame_counts.items() if name not in on_host}
        self._stack = {name: compiled(_stacking(count)) for name, count in self._frame_counts.items()}

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with large observations on the device; the copy may still go on.

        Args:
            batch: Of stacks that do not stay it has the single frames, [T+n, N, ..., C].
        """
        return batch._replace(observations={name: self._placed(name, batch) for name in batch.observations})

    def _placed(self, name: str, batch: Batch) -> Array:
        rows = batch.observations[name]
        if (count := self._frame_counts.get(name)) is not None:
            return self._stack[name](self._copy(rows), frames.reach(batch.valid, count))
        return rows if rows.nbytes < LEAST_BYTES or name in self._on_host else self._copy(rows)


def placement(replicas: int, frame_counts: Mapping[str, int], on_host: Collection[str]) -> Placement | None:
    """Return the placement of this process; None if copies ahead would gain nothing, as on a CPU.

    Args:
        replicas: Devices that share a batch.
        frame_counts, on_host: As of `Placement`.
    """
    ahead = backend.copy_ahead(replicas)
    return None if ahead is None else Placement(*ahead, frame_counts, on_host)


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
