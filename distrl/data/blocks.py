"""The order in which data is played: blocks of consecutive episodes, as a whole or shuffled round after round."""

from collections.abc import Iterator
from itertools import count

import numpy as np

from distrl.data.episodes import Lengths
from distrl.data.recorded_vector import plan_rows, steps_of

BLOCKS_HELD = 16
"""Blocks that a replay memory holds, about: the more, the better batches are mixed; a block is read as it lies on disk.
"""
LEAST_HELD = 8
"""With more rows a block of as many episodes would be larger than this part of the memory."""
MOST_OF_NEEDED = 1.05
"""Rows of unrolls, at most, as a multiple of what the data's steps need; with one row they may be more."""


class Blocks:
    """Episodes in blocks, each of which a vector of its own plays to the end, in whole unrolls.

    Args:
        lengths: int64 [E]. Steps of every episode.
        rows: Of the vector.
        memory_steps: Steps that the replay memory holds; None: one block has all episodes.

    Attributes:
        unrolls: int64 [K]. Unrolls of every block.
        count: Unrolls of a round, in which each block is played once.
        steps: Recorded steps of a round.
    """

    def __init__(self, lengths: Lengths, rows: int, unroll_length_steps: int, memory_steps: int | None) -> None:
        self.rows, self._lengths, self._unroll_length_steps = rows, lengths, unroll_length_steps
        self._begins = (
            [0, len(lengths)] if memory_steps is None else _begins(lengths, rows, memory_steps // BLOCKS_HELD)
        )
        self._played = [steps_of(self.plan(block), lengths) for block in range(len(self._begins) - 1)]
        self.unrolls: Lengths = -(-np.array(self._played) // unroll_length_steps)
        self.count, self.steps = int(self.unrolls.sum()), int(lengths.sum())

    def plan(self, block: int) -> list[list[int]]:
        """Return the numbers of the episodes of each row."""
        begin, end = self._begins[block : block + 2]
        return [[begin + number for number in row] for row in plan_rows(self._lengths[begin:end], self.rows)]

    def suits(self, memory_steps: int | None) -> bool:
        """Return whether the rows are in use nearly to the end of every block, and the memory holds enough blocks."""
        filled = sum(self._played) * self.rows <= MOST_OF_NEEDED * (self.steps + len(self._lengths))
        return filled and (memory_steps is None or LEAST_HELD * max(self._played) * self.rows <= memory_steps)

    def following(self, seed: int, unroll: int) -> Iterator[tuple[int, int]]:
        """Yield blocks round after round, without an end, each with the number of its unrolls to leave out.

        Args:
            seed: Of the run: it determines the order of the blocks in each round.
            unroll: Number of the first one to play, since the beginning of the first round.
        """
        first, skipped = divmod(unroll, self.count)
        for number in count(first):
            random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(7, number)))
            for block in random.permutation(len(self.unrolls)).tolist():
                if skipped < self.unrolls[block]:
                    yield block, skipped
                skipped = max(skipped - int(self.unrolls[block]), 0)


def _begins(lengths: Lengths, rows: int, least_steps: int) -> list[int]:
    """Return the first episode of each block, and the number of all: blocks have as many episodes in each row."""
    begins, steps = [0], 0
    for number, length in enumerate(lengths.tolist(), 1):
        steps += length
        if steps >= least_steps and number % rows == 0:
            begins.append(number)
            steps = 0
    return begins if begins[-1] == len(lengths) else [*begins, len(lengths)]


def suiting(lengths: Lengths, most_rows: int, unroll_length_steps: int, memory_steps: int | None) -> Blocks:
    """Return blocks for `most_rows`, or for a half of them so often that they suit."""
    rows = most_rows
    while True:
        blocks = Blocks(lengths, rows, unroll_length_steps, memory_steps)
        if rows == 1 or blocks.suits(memory_steps):
            return blocks
        rows //= 2
