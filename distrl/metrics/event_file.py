"""One of TensorBoard's event files: points of curves, histograms and texts."""

import itertools
import os
import time
from pathlib import Path

import numpy as np

from distrl.errors import require
from distrl.types import Array, FloatArray

MOST_NUMBERS = 2**18
"""Most numbers in a histogram; of larger arrays, evenly spread elements are taken."""
BINS = 64


class EventFile:
    """One file in `folder`, which is made if missing; a resumed run adds one more.

    Raises:
        MissingExtraError: tensorboardX is not installed.
        OSError: `folder` or the file cannot be written; the methods raise it too.
    """

    def __init__(self, folder: Path) -> None:
        require("tensorboardX", "tensorboardX", "cpu")
        # Imported here: actors and the CLI's other commands have no use for it.
        from tensorboardX.event_file_writer import EventsWriter

        folder.mkdir(parents=True, exist_ok=True)
        # Unique: the library's own name is the same for all processes of a host within one second.
        self._writer = EventsWriter(str(folder / "events"), filename_suffix=f".{os.getpid()}.{next(_files)}")

    def scalar(self, tag: str, value: float, step: int) -> None:
        """Write a point of a curve."""
        from tensorboardX import summary

        self._add(summary.scalar(tag, value), step)

    def histogram(self, tag: str, values: Array, step: int) -> None:
        """Write a histogram of the finite numbers, booleans or integers too, if there are any."""
        from tensorboardX import summary

        flat = values.reshape(-1)
        flat = flat[:: -(-flat.size // MOST_NUMBERS) or 1].astype(np.float64)
        flat = flat[np.isfinite(flat)]
        if flat.size:
            with np.errstate(over="ignore"):  # sums of squares may become infinite
                self._add(summary.histogram(tag, flat, bins=_edges(flat)), step)

    def text(self, tag: str, markdown: str) -> None:
        """Write Markdown for TensorBoard's Text tab, at once."""
        from tensorboardX import summary

        self._add(summary.text(tag, markdown), 0)
        self.flush()

    def flush(self) -> None:
        """Write buffered data."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _add(self, made: object, step: int) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(summary=made, step=step, wall_time=time.time()))


_files = itertools.count()


def _edges(values: FloatArray) -> FloatArray:
    """Return the edges of `BINS` equal bins, or of one bin if numbers are too close or too far apart for them."""
    low, high = values.min(), values.max()
    with np.errstate(over="ignore", invalid="ignore"):
        edges = np.linspace(low, high, BINS + 1)
        if np.isfinite(edges).all() and (np.diff(edges) > 0.0).all():
            return edges
    return np.array([np.nextafter(low, -np.inf), np.nextafter(high, np.inf)])
