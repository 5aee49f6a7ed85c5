"""Samplers choose the items of a batch. An item has a position: slot x items per slot + place in the slot."""

import math
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from distrl.config.replay import BalancedParameters, PrioritizedParameters, ReplayParameters
from distrl.config.schedules import Progress
from distrl.errors import NonFiniteError
from distrl.replay.classes import BYTES_PER_POSITION, NONE, Classes
from distrl.replay.new_items import NewItems, new_items_bytes
from distrl.replay.sum_tree import Indices, SumTree, tree_bytes
from distrl.types import Array, BoolArray, FloatArray, IntArray


class Drawn(NamedTuple):
    """Items for one batch.

    Attributes:
        positions: int64 [N].
        importance_weights: float32 [N]; None: 1.
    """

    positions: Indices
    importance_weights: FloatArray | None


class Sampler(Protocol):
    """Draws existing items; `put` registers them."""

    def put(
        self, slot: int, present: BoolArray, priorities: FloatArray | None, choices: IntArray | None = None
    ) -> None:
        """Replace the items of a slot; slots follow one another as in a ring.

        Args:
            present: bool [items per slot].
            priorities: float32 [items per slot], if the actors sent them; at least 0 where present.
            choices: int32 [items per slot]. The choice of each item, if the sampler balances them.
        """

    def draw(self, rng: np.random.Generator, count: int, progress: Progress) -> Drawn:
        """Draw `count` items, with replacement; there must be at least one item."""

    def reprioritise(self, positions: Indices, priorities: FloatArray) -> None:
        """Set the priorities of drawn items."""

    def state_arrays(self) -> dict[str, Array]: ...

    def restore(self, arrays: Mapping[str, Array], present: BoolArray) -> None:
        """Restore the result of `state_arrays`, for slots whose items are `present`, bool [slots filled, items].

        Raises:
            ValueError, LookupError: It cannot be of these items; the sampler must not be used any more.
        """


def make_sampler(parameters: ReplayParameters, slots: int, items_per_slot: int) -> Sampler:
    """Make the sampler that `parameters.sampler` describes."""
    if isinstance(parameters.sampler, PrioritizedParameters):
        return PrioritizedSampler(parameters.sampler, slots, items_per_slot)
    if isinstance(parameters.sampler, BalancedParameters):
        return BalancedSampler(slots, items_per_slot)
    return UniformSampler(slots, items_per_slot)


def sampler_bytes(parameters: ReplayParameters, slots: int, items_per_slot: int) -> int:
    """Return the bytes of the sampler that `make_sampler` makes."""
    items = slots * items_per_slot
    if isinstance(parameters.sampler, BalancedParameters):
        return BYTES_PER_POSITION * items
    if not isinstance(parameters.sampler, PrioritizedParameters):
        return items  # a boolean each
    new = new_items_bytes(slots, items_per_slot) if parameters.sampler.new_items_first else 0
    return tree_bytes(items) + new


class UniformSampler:
    """Draws all items with equal probability."""

    def __init__(self, slots: int, items_per_slot: int) -> None:
        self._present = np.zeros((slots, items_per_slot), np.bool_)
        self._filled = 0  # slots from 0 on that have been put

    def put(
        self, slot: int, present: BoolArray, priorities: FloatArray | None, choices: IntArray | None = None
    ) -> None:
        self._present[slot] = present
        self._filled = max(self._filled, slot + 1)

    def draw(self, rng: np.random.Generator, count: int, progress: Progress) -> Drawn:
        # A place without an item is drawn again. Most have one: rows that are not valid follow one that is.
        places, flat = self._filled * self._present.shape[1], self._present.reshape(-1)
        positions = rng.integers(places, size=count)
        while (absent := np.flatnonzero(~flat[positions])).size:
            positions[absent] = rng.integers(places, size=absent.size)
        return Drawn(positions, None)

    def reprioritise(self, positions: Indices, priorities: FloatArray) -> None:
        """Do nothing: there are no priorities."""

    def state_arrays(self) -> dict[str, Array]:
        return {}

    def restore(self, arrays: Mapping[str, Array], present: BoolArray) -> None:
        self._present[:] = False
        self._filled = len(present)
        self._present[: self._filled] = present


class BalancedSampler:
    """Draws items of each choice equally often, and those of one choice with equal probability."""

    def __init__(self, slots: int, items_per_slot: int) -> None:
        self._items_per_slot = items_per_slot
        self._classes = Classes(slots * items_per_slot)

    def put(
        self, slot: int, present: BoolArray, priorities: FloatArray | None, choices: IntArray | None = None
    ) -> None:
        assert choices is not None  # the memory passes them to this sampler
        self._classes.replace(slot * self._items_per_slot, choices, present)

    def draw(self, rng: np.random.Generator, count: int, progress: Progress) -> Drawn:
        return Drawn(self._classes.draw(rng, count), None)

    def reprioritise(self, positions: Indices, priorities: FloatArray) -> None:
        """Do nothing: there are no priorities."""

    def state_arrays(self) -> dict[str, Array]:
        return self._classes.state_arrays()

    def restore(self, arrays: Mapping[str, Array], present: BoolArray) -> None:
        self._classes.restore(arrays)
        if not np.array_equal(np.flatnonzero(present), np.flatnonzero(arrays["labels"] != NONE)):
            raise ValueError("the items with a choice are not those that exist")


class PrioritizedSampler:
    """Proportional prioritisation with importance weights (Schaul et al. 2016, algorithm 1); draws are stratified.

        P(i) = (priority_i + epsilon)^alpha / sum,   w_i = (N P(i))^-beta / max_j w_j

    over all N existing items. With `new_items_first`, a batch begins with items that no batch has held, and only the
    rest of it is drawn. The weight of such an item is that of its P(i), as if it had been drawn.

    Attributes:
        highest: Highest priority so far, which new items get; 1 at first.
    """

    def __init__(self, parameters: PrioritizedParameters, slots: int, items_per_slot: int) -> None:
        self._parameters = parameters
        self._items_per_slot = items_per_slot
        self._tree = SumTree(slots * items_per_slot)
        self._new = NewItems(slots, items_per_slot) if parameters.new_items_first else None
        self.highest = 1.0

    def put(
        self, slot: int, present: BoolArray, priorities: FloatArray | None, choices: IntArray | None = None
    ) -> None:
        first = slot * self._items_per_slot
        known = np.full(len(present), self.highest) if priorities is None else priorities
        weights = np.where(present, self._weights(np.where(present, known, 0.0)), 0.0)
        if priorities is not None and present.any():
            self.highest = max(self.highest, float(priorities[present].max()))
        self._tree.update(np.arange(first, first + self._items_per_slot), weights)
        if self._new is not None:
            self._new.put(slot, present)

    def draw(self, rng: np.random.Generator, count: int, progress: Progress) -> Drawn:
        if self._new is None:
            positions = self._tree.sample(rng, count)
        else:
            new = self._new.take(count)
            positions = np.concatenate([new, self._tree.sample(rng, count - len(new))]) if len(new) < count else new
        # N cancels out: weights are divided by the greatest one, that of the least likely item.
        weights = (self._tree[positions] / self._tree.minimum) ** -self._parameters.beta.at(progress)
        return Drawn(positions, weights.astype(np.float32))

    def reprioritise(self, positions: Indices, priorities: FloatArray) -> None:
        """Set priorities of existing items.

        Raises:
            NonFiniteError: A priority is NaN or infinite; nothing was changed.
            ValueError: A priority is negative.
        """
        if not positions.size:
            return
        self._tree.update(positions, self._weights(priorities))
        self.highest = max(self.highest, float(priorities.max()))

    def _weights(self, priorities: Array) -> Array:
        if not np.isfinite(priorities).all():
            raise NonFiniteError("a priority of the replay memory is not finite")
        if priorities.min() < 0.0:
            raise ValueError(f"priorities must be at least 0, not {priorities.min()}")
        weights = (priorities.astype(np.float64) + self._parameters.epsilon) ** self._parameters.alpha
        # Never 0, which would mean that the item does not exist.
        return np.maximum(weights, np.finfo(np.float32).tiny)

    def state_arrays(self) -> dict[str, Array]:
        new = {} if self._new is None else {f"new/{name}": array for name, array in self._new.state_arrays().items()}
        return {"weights": self._tree.leaves, "highest": np.array(self.highest), **new}

    def restore(self, arrays: Mapping[str, Array], present: BoolArray) -> None:
        weights, highest = arrays["weights"], float(arrays["highest"])
        if not (np.isfinite(weights).all() and math.isfinite(highest)) or min(weights.min(initial=0.0), highest) < 0.0:
            raise ValueError("priorities must be finite, and at least 0")
        if weights[: present.size][~present.reshape(-1)].any() or weights[present.size :].any():
            raise ValueError("items that do not exist have priorities")
        self._tree.restore(weights)
        self.highest = highest
        if self._new is not None:
            if arrays["new/waiting"][: len(present)][~present].any() or arrays["new/waiting"][len(present) :].any():
                raise ValueError("items that do not exist wait to be sampled")
            self._new.restore({name: arrays[f"new/{name}"] for name in self._new.state_arrays()})
