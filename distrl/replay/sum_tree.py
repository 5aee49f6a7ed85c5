"""A tree of sums: draws items with probabilities proportional to their weights, many at a time.

Nodes have `FAN_OUT` children: a million items make five levels, where a binary tree would have twenty. Each level takes
a few array operations over all drawn or changed items.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

FAN_OUT = 16

Indices = NDArray[np.int64]
Weights = NDArray[np.float64]


def tree_bytes(capacity: int) -> int:
    """Return the bytes of a `SumTree`: sums and least weights, 8 bytes each, of whole nodes on every level."""
    nodes, total = -(-capacity // FAN_OUT), 0
    while True:
        total += nodes
        if nodes == 1:
            return 2 * 8 * FAN_OUT * total
        nodes = -(-nodes // FAN_OUT)


class SumTree:
    """Weights of the items 0 … capacity - 1; 0, the initial weight, means that the item does not exist.

    Parents are computed from their children and never moved by differences, so that the error of a sum does not grow
    with the number of updates.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a sum tree needs a capacity of at least 1, not {capacity}")
        self.capacity = capacity
        self._sums: list[Weights] = []  # [nodes, FAN_OUT] per level, the leaves first
        self._least: list[Weights] = []  # least positive weight below; inf where there is none
        nodes = capacity
        while True:
            nodes = -(-nodes // FAN_OUT)
            self._sums.append(np.zeros((nodes, FAN_OUT)))
            self._least.append(np.full((nodes, FAN_OUT), np.inf))
            if nodes == 1:
                break

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._sums[-1].sum())

    @property
    def minimum(self) -> float:
        """Least weight of an existing item; infinity without items."""
        return float(self._least[-1].min())

    def __getitem__(self, items: Indices) -> Weights:
        """Return a copy of the weights of `items`."""
        weights: Weights = self._leaves[items]
        return weights

    def update(self, items: Indices, weights: Weights) -> None:
        """Set weights; if an item is named twice, the last weight counts.

        Args:
            items: int64 [N].
            weights: float64 [N], at least 0.

        Raises:
            ValueError: A weight is negative, infinite or NaN; nothing was changed.
        """
        weights = np.asarray(weights, np.float64)
        if not (np.isfinite(weights) & (weights >= 0.0)).all():
            raise ValueError(f"weights must be finite and at least 0, not {weights.min()} … {weights.max()}")
        self._leaves[items] = weights
        self._least[0].reshape(-1)[items] = np.where(self._leaves[items] > 0.0, self._leaves[items], np.inf)
        nodes = items
        for level in range(len(self._sums) - 1):
            nodes = np.unique(nodes // FAN_OUT)
            self._sums[level + 1].reshape(-1)[nodes] = self._sums[level][nodes].sum(axis=1)
            self._least[level + 1].reshape(-1)[nodes] = self._least[level][nodes].min(axis=1)

    def find(self, prefixes: Weights) -> Indices:
        """Return the items at which the running sum of weights exceeds `prefixes`.

        Args:
            prefixes: float64 [N], from 0 to `total`; `total` itself belongs to the last existing item.

        Returns:
            int64 [N]; each an item whose weight is above 0.

        Raises:
            ValueError: No item is there.
        """
        if self.total <= 0.0:
            raise ValueError("nothing can be drawn where all weights are 0")
        rest = np.array(prefixes, np.float64)
        nodes = np.zeros(len(rest), np.int64)
        rows = np.arange(len(rest))
        for sums in reversed(self._sums):
            ends = sums[nodes].cumsum(axis=1)  # [N, FAN_OUT]
            # Rounding may leave more than this node's sum; the rest is kept below it.
            np.minimum(rest, np.nextafter(ends[:, -1], 0.0), out=rest)
            child = (ends > rest[:, None]).argmax(axis=1)  # the first whose end lies beyond
            rest -= np.where(child > 0, ends[rows, child - 1], 0.0)
            nodes = nodes * FAN_OUT + child
        return nodes

    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """Draw items in proportion to their weights, stratified: one from each of `count` equal parts of the sum.

        Returns:
            int64 [count].

        Raises:
            ValueError: No item is there.
        """
        return self.find((np.arange(count) + rng.random(count)) * (self.total / count))

    @property
    def leaves(self) -> Weights:
        """View of all weights."""
        return self._leaves[: self.capacity]

    def restore(self, weights: Weights) -> None:
        """Set the weights of all items.

        Args:
            weights: float64 [up to capacity], of the first items; all others become 0.
        """
        for zeros, infinite in self._levels():
            zeros.fill(0.0)
            infinite.fill(np.inf)
        self.update(np.arange(len(weights)), weights)

    def _levels(self) -> Iterator[tuple[Weights, Weights]]:
        return zip(self._sums, self._least, strict=True)

    @property
    def _leaves(self) -> Weights:
        return self._sums[0].reshape(-1)
