"""The newest numbers of every role of a live run, one row for each look that pages made necessary."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from distrl.memory_backend.records import RoleStatus
from distrl.types import Array

MEASURES = ("env_steps_per_s", "blocked_share", "cpu_share", "rss_mb", "last_step_age_s")
"""Fields of `RoleStatus`."""
MOST_LOOKS = 600
"""Ten minutes of a page that is watched; of 1,000 roles they take 12 MB."""


class _Row(NamedTuple):
    at: float
    keys: tuple[str, ...]
    numbers: Array  # float32 [R, len(MEASURES)]


class RoleHistory:
    """Numbers of roles over time. One thread adds, others may read."""

    def __init__(self) -> None:
        self._rows: deque[_Row] = deque(maxlen=MOST_LOOKS)

    def add(self, at: float, roles: Sequence[RoleStatus]) -> None:
        """Keep the numbers of these heartbeats, read at `at` in seconds since 1970."""
        keys = tuple(role.key for role in roles)
        if self._rows and self._rows[-1].keys == keys:
            keys = self._rows[-1].keys  # so that they are kept once
        numbers = [[getattr(role, name) for name in MEASURES] for role in roles]
        self._rows.append(_Row(at, keys, np.array(numbers, np.float32).reshape(len(roles), len(MEASURES))))

    def of(self, key: str) -> dict[str, list[float]]:
        """Return "at" and every measure of a role, oldest first; empty lists of one that there was not.

        Args:
            key: `RoleStatus.key`.
        """
        found = [(row.at, row.numbers[row.keys.index(key)]) for row in tuple(self._rows) if key in row.keys]
        columns = np.array([numbers for _, numbers in found], np.float64).reshape(len(found), len(MEASURES)).T
        told = {
            name: [float(f"{value:.5g}") for value in column] for name, column in zip(MEASURES, columns, strict=True)
        }
        return {"at": [at for at, _ in found], **told}
