"""Comparisons of arrays: each one is checked, and kept for the table."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

TAKEN: list["Figure"] = []
"""All comparisons of this process, in order."""


@dataclass(frozen=True)
class Figure:
    """One comparison.

    Attributes:
        group: Part of the table: the algorithm, or what several have in common.
        what: Quantity that was compared.
        reference: Library, and function or method.
        error: Largest absolute difference.
        of: Largest absolute value of the reference; of weights, how far one moved at most.
        allowed: Bound of `error`; None where the conventions differ and the difference is only told.
        note: Conventions of the reference that were changed, or what differs.
    """

    group: str
    what: str
    reference: str
    error: float
    of: float
    allowed: float | None
    note: str


def agree(
    group: str,
    what: str,
    reference: str,
    found: Any,
    expected: Any,
    *,
    allowed: float,
    of: float | None = None,
    note: str = "",
) -> None:
    """Keep a comparison, and raise AssertionError if a difference is above `allowed`, or not a number.

    Args:
        found: distrl's: numbers, arrays, or lists of these.
        expected: The reference's, of the same shapes.
        of: See `Figure`; None: the largest value of `expected`.
    """
    ours, theirs = flat(found), flat(expected)
    assert ours.shape == theirs.shape, f"{what}: {ours.shape} numbers, the reference has {theirs.shape}"
    error = float(np.abs(ours - theirs).max())
    size = float(np.abs(theirs).max()) if of is None else of
    TAKEN.append(Figure(group, what, reference, error, size, allowed, note))
    assert size > 0.0, f"{what}: all values are 0, nothing was compared"
    assert error <= allowed, f"{what}: differs from {reference} by {error:.2g} of {size:.2g}, allowed is {allowed:.2g}"


def differ(
    group: str,
    what: str,
    reference: str,
    found: Any,
    expected: Any,
    *,
    least: float,
    of: float | None = None,
    note: str,
) -> None:
    """Keep a difference of conventions, and raise AssertionError unless it is at least `least`.

    Args:
        found, expected, of: As of `agree`.
        note: What differs.
    """
    ours, theirs = flat(found), flat(expected)
    error = float(np.abs(ours - theirs).max())
    size = float(np.abs(theirs).max()) if of is None else of
    TAKEN.append(Figure(group, what, reference, error, size, None, note))
    assert error >= least, f"{what}: differs from {reference} by {error:.2g} alone, but should by {least:.2g}: {note}"


def flat(values: Any) -> np.ndarray:
    """Return all numbers of nested lists of arrays, float64 [K]."""
    if isinstance(values, Iterable) and not hasattr(values, "shape"):
        parts = [flat(value) for value in values]
        return np.concatenate(parts) if parts else np.zeros(0)
    return np.asarray(values.detach() if hasattr(values, "detach") else values, np.float64).reshape(-1)
