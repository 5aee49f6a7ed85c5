"""Inputs of linear models: standardised numbers, and random Fourier features of them."""

import numpy as np

from distrl.types import Array, FloatArray

MOST_NUMBERS = 512
"""Numbers of an observation beyond which random projections take their place."""
_CONSTANT = np.float32(10.0)  # so large that a ridge hardly reduces it
_TOGETHER = 8_192


def projection(numbers: int, rng: np.random.Generator) -> FloatArray | None:
    """Return a random projection of so many numbers to `MOST_NUMBERS`, float32 [numbers, MOST_NUMBERS]; None: too few.

    Distances are nearly kept (Johnson and Lindenstrauss 1984).
    """
    if numbers <= MOST_NUMBERS:
        return None
    return rng.standard_normal((numbers, MOST_NUMBERS), np.float32) / np.float32(np.sqrt(numbers))


def standardised(rows: Array) -> FloatArray:
    """Return rows [N, D] with mean 0 and deviation 1 in every column; 0 in columns that are constant."""
    mean, deviation = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
    scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 1e-6)
    found: FloatArray = ((rows - mean) * scale).astype(np.float32)
    return found


class RandomFeatures:
    """Makes features whose products approximate a Gaussian kernel of standardised rows (Rahimi and Recht 2007).

    A constant and the numbers themselves are among them. The kernel's width is the distance of typical rows.

    Args:
        numbers: D, of each row.
        count: Number of cosines.

    Attributes:
        size: F.
    """

    def __init__(self, numbers: int, count: int, rng: np.random.Generator) -> None:
        scale = np.float32(1.0 / np.sqrt(max(numbers, 1)))
        self._directions = rng.standard_normal((numbers, count), np.float32) * scale
        self._phases = (2.0 * np.pi * rng.random(count)).astype(np.float32)
        self.size = 1 + numbers + count

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Return features, float32 [N, F], of rows [N, D]."""
        scale = np.float32(np.sqrt(2.0 / len(self._phases)))
        waves = scale * np.cos(rows @ self._directions + self._phases)
        found: FloatArray = np.concatenate([np.full((len(rows), 1), _CONSTANT), rows, waves], axis=1)
        return found


def products(features: FloatArray, others: Array) -> Array:
    """Return features [N, F] transposed times others [N] or [N, G], float64 [F] or [F, G]."""
    total = np.zeros((features.shape[1], *others.shape[1:]))
    for begin in range(0, len(features), _TOGETHER):  # float64 of all rows would take twice the memory
        part = slice(begin, begin + _TOGETHER)
        total += features[part].astype(np.float64).T @ others[part]
    return total


def gram(features: FloatArray, ridge: float = 1e-4) -> Array:
    """Return the products of features [N, F], float64 [F, F], with N times the ridge on the diagonal."""
    diagonal: Array = ridge * len(features) * np.eye(features.shape[1])
    return products(features, features) + diagonal
