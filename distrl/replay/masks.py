"""Bootstrap masks: which members of an ensemble learn from an item (Osband et al. 2016, arXiv:1602.04621, section 3).

A mask is not stored. It follows from the seed and the item's number, so that an item has the same mask whenever it is
drawn, in a resumed training too. Numbers are unique, so that equal transitions have masks of their own.
"""

import numpy as np
from numpy.typing import NDArray

from distrl.replay.sum_tree import Indices
from distrl.types import FloatArray

Words = NDArray[np.uint64]
_GAMMA = np.uint64(0x9E3779B97F4A7C15)


class BootstrapMasks:
    """Independent Bernoulli masks of the items of one replay memory.

    Args:
        members: Members of the ensemble.
        probability: Probability with which a member learns from an item, in (0, 1].
        seeds: Seeds of the masks; the same ones whenever the training resumes.
    """

    def __init__(self, members: int, probability: float, seeds: np.random.SeedSequence) -> None:
        self._members: Words = np.arange(members, dtype=np.uint64)
        self._probability = probability
        self._key: Words = seeds.generate_state(1, np.uint64).astype(np.uint64)  # as mypy cannot know

    def of(self, items: Indices) -> FloatArray:
        """Return the masks of items, int64 [N] -> float32 [1, N, members]: 1 for a member that learns, else 0."""
        first: Words = items.astype(np.uint64) * np.uint64(len(self._members))
        numbers: Words = first[:, None] + self._members
        uniform = (split_mix(self._key, numbers) >> np.uint64(11)) * 2.0**-53  # in [0, 1), of 53 bits as a float64 has
        return (uniform < self._probability)[None].astype(np.float32)


def split_mix(key: Words, numbers: Words) -> Words:
    """Return random 64 bits of each number: SplitMix64's output of this number, from 0, when its state begins as `key`.

    A counter-based generator: an output depends on its number alone (Steele, Lea and Flood 2014, "Fast splittable
    pseudorandom number generators", with the constants of Stafford's variant 13).

    Args:
        key: uint64 [1].
        numbers: uint64 [...].
    """
    bits: Words = key + (numbers + np.uint64(1)) * _GAMMA  # uint64 arrays wrap
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
