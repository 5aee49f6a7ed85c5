"""TensorBoard's event files, written at once: no thread, and neither TensorFlow nor TensorBoard in the process."""

import itertools
import os
import time
from pathlib import Path

import numpy as np

from distrl.errors import require
from distrl.types import Array, FloatArray

MOST_NUMBERS = 2**18
"""Of which a histogram is made; of larger arrays, evenly spread ones."""
BINS = 64


class EventFile:
    """One file in `folder`, which is made if missing; a resumed run adds one more.

    Raises:
        MissingExtraError: tensorboardX is not installed.
        OSError: The disk refuses, or `folder` cannot be made; the methods raise it likewise.
    """

    def __init__(self, folder: Path) -> None:
        require("tensorboardX", "tensorboardX", "cpu")
        # Imported here: actors and the CLI's other commands have no use for it.
        from tensorboardX.event_file_writer import EventsWriter

        folder.mkdir(parents=True, exist_ok=True)
        # Of this process alone: the name that the library makes is the same for all on a host in one second.
        self._writer = EventsWriter(str(folder / "events"), filename_suffix=f".{os.getpid()}.{next(_files)}")

    def scalar(self, tag: str, value: float, step: int) -> None:
        """A point of a curve."""
        from tensorboardX import summary

        self._add(summary.scalar(tag, value), step)

    def histogram(self, tag: str, values: Array, step: int) -> None:
        """How numbers are distributed, at a step; of none, and of what is not finite, nothing is written.

        Args:
            values: Booleans, integers or floats, of any shape.
        """
        from tensorboardX import summary

        flat = values.reshape(-1)
        flat = flat[:: -(-flat.size // MOST_NUMBERS) or 1].astype(np.float64)
        flat = flat[np.isfinite(flat)]
        if flat.size:
            with np.errstate(over="ignore"):  # of squares: infinity says as much
                self._add(summary.histogram(tag, flat, bins=_edges(flat)), step)

    def text(self, tag: str, markdown: str) -> None:
        """What TensorBoard shows under Text."""
        from tensorboardX import summary

        self._add(summary.text(tag, markdown), 0)

    def flush(self) -> None:
        """Writes what is buffered."""
        self._writer.flush()

    def close(self) -> None:
        """Nothing is written afterwards."""
        self._writer.close()

    def _add(self, made: object, step: int) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(summary=made, step=step, wall_time=time.time()))


_files = itertools.count()


def _edges(values: FloatArray) -> FloatArray:
    """Of `BINS` equal bins, or of one where numbers are too close to each other, or too far apart, to be told apart."""
    low, high = values.min(), values.max()
    with np.errstate(over="ignore", invalid="ignore"):
        edges = np.linspace(low, high, BINS + 1)
        if np.isfinite(edges).all() and (np.diff(edges) > 0.0).all():
            return edges
    return np.array([np.nextafter(low, -np.inf), np.nextafter(high, np.inf)])
