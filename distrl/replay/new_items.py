"""A queue of the items that no batch has held yet, the oldest first."""

from collections.abc import Mapping

import numpy as np

from distrl.replay.sum_tree import Indices
from distrl.types import Array, BoolArray


def new_items_bytes(slots: int, items_per_slot: int) -> int:
    """Return the bytes of `NewItems`."""
    return slots * items_per_slot


class NewItems:
    """Items wait here from `put` until `take`.

    Slots are put in the order of a ring, so those with waiting items follow one another: the queue is the slot of the
    oldest and their number, and to put or to take an item costs the same however many there are.
    """

    def __init__(self, slots: int, items_per_slot: int) -> None:
        self._waiting = np.zeros((slots, items_per_slot), np.bool_)
        self._first, self._slots = 0, 0  # slot of the oldest waiting items, and slots from there to the newest

    def put(self, slot: int, present: BoolArray) -> None:
        """Replace the items of a slot, the one after that of the last call; bool [items per slot]."""
        if self._slots == len(self._waiting):  # the oldest ones have made room
            self._first, self._slots = (slot + 1) % len(self._waiting), self._slots - 1
        elif not self._slots:
            self._first = slot
        self._waiting[slot] = present
        self._slots += 1

    def take(self, count: int) -> Indices:
        """Return the positions of up to `count` items, which no longer wait; int64 [up to count]."""
        taken = [np.empty(0, np.int64)]
        while count and self._slots:
            places = np.flatnonzero(self._waiting[self._first])
            some = places[:count]
            self._waiting[self._first, some] = False
            taken.append(self._first * self._waiting.shape[1] + some)
            count -= len(some)
            if len(some) == len(places):
                self._first, self._slots = (self._first + 1) % len(self._waiting), self._slots - 1
        return np.concatenate(taken)

    def state_arrays(self) -> dict[str, Array]:
        """Return the state as arrays by name; `waiting` is a view."""
        return {"waiting": self._waiting, "queue": np.array([self._first, self._slots], np.int64)}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore the result of `state_arrays`, or raise ValueError if it cannot be one."""
        self._waiting[:] = arrays["waiting"]
        self._first, self._slots = (int(number) for number in arrays["queue"])
        if not (0 <= self._first < len(self._waiting) and 0 <= self._slots <= len(self._waiting)):
            raise ValueError(f"the queue of new items begins at {self._first} and has {self._slots} slots")
