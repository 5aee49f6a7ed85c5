"""Items by class: any item of a class is found by its place among them, whatever comes and goes."""

from collections.abc import Mapping

import numpy as np

from distrl.replay.sum_tree import Indices
from distrl.types import Array, BoolArray

NONE = -1
"""Class of a position without an item."""
BYTES_PER_POSITION = 4 + 8 + 2 * 8
"""Class, place, and entry among those of its class, which have room for twice as many at most."""


class Classes:
    """Items of positions 0 … positions - 1, each of one class.

    To put or to remove n items takes a few array operations over n, to find one takes none. Items of a class are in any
    order: where some leave, the last ones take their places.
    """

    def __init__(self, positions: int) -> None:
        self._labels = np.full(positions, NONE, np.int32)
        self._places = np.zeros(positions, np.int64)  # of each item, among those of its class
        self._members: dict[int, Indices] = {}  # class -> positions by place; room for more after the last one
        self._counts: dict[int, int] = {}  # of the classes that have items

    def replace(self, first: int, labels: Array, present: BoolArray) -> None:
        """Replace the items of as many positions as there are labels, from `first` on.

        Args:
            labels: int [n], at least 0.
            present: bool [n]. Positions that hold an item from now on.
        """
        positions = np.arange(first, first + len(labels))
        self._remove(positions[self._labels[positions] != NONE])
        self._labels[positions] = np.where(present, labels, NONE)
        for label in np.unique(labels[present]).tolist():
            self._add(label, positions[present & (labels == label)])

    def draw(self, rng: np.random.Generator, count: int) -> Indices:
        """Draw as many items of each class as of any other, or one more, each uniformly from its class.

        Returns:
            int64 [count], by class in random order.
        """
        labels = rng.permutation(sorted(self._counts))  # in no order of arrival, of which a restored state knows none
        shares = np.full(len(labels), count // len(labels))
        shares[: count % len(labels)] += 1
        drawn = [
            self._members[label][rng.integers(self._counts[label], size=share)]
            for label, share in zip(labels.tolist(), shares.tolist(), strict=True)
            if share
        ]
        return np.concatenate(drawn)

    def state_arrays(self) -> dict[str, Array]:
        """Return the state as arrays by name, as views."""
        return {"labels": self._labels, "places": self._places}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore the result of `state_arrays`, or raise ValueError if it cannot be one."""
        self._labels[:], self._places[:] = arrays["labels"], arrays["places"]
        self._members, self._counts = {}, {}
        for label in np.unique(self._labels[self._labels != NONE]).tolist():
            positions = np.flatnonzero(self._labels == label)
            self._members[label] = np.empty(len(positions), np.int64)
            if not np.array_equal(np.sort(self._places[positions]), np.arange(len(positions))):
                raise ValueError(f"the places of the items with choice {label} are not 0 … {len(positions) - 1}")
            self._members[label][self._places[positions]] = positions
            self._counts[label] = len(positions)

    def _add(self, label: int, positions: Indices) -> None:
        count = self._counts.get(label, 0)
        members = self._members.get(label, positions[:0])
        if count + len(positions) > len(members):
            members = self._members[label] = _moved(members[:count], room=count + len(positions) + count // 2)
        members[count : count + len(positions)] = positions
        self._places[positions] = np.arange(count, count + len(positions))
        self._counts[label] = count + len(positions)

    def _remove(self, positions: Indices) -> None:
        labels = self._labels[positions]
        for label in np.unique(labels).tolist():
            leaving = self._places[positions[labels == label]]
            left = self._counts[label] - len(leaving)
            members = self._members[label]
            stays = np.ones(len(leaving), np.bool_)
            stays[leaving[leaving >= left] - left] = False
            movers, holes = members[left : left + len(leaving)][stays], leaving[leaving < left]
            members[holes], self._places[movers] = movers, holes
            if len(members) > 2 * left:
                self._members[label] = _moved(members[:left], room=left + left // 2)
            self._counts[label] = left
            if not left:
                del self._counts[label], self._members[label]


def _moved(members: Indices, room: int) -> Indices:
    moved = np.zeros(room, np.int64)
    moved[: len(members)] = members
    return moved
