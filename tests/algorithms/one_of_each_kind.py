"""Algorithms whose updates differ in kind; what is the same code for all is tested with the others in `make long`."""

from collections.abc import Iterable

import pytest

ONE_OF_EACH_KIND = ("impala", "ppo", "dqn", "r2d2", "sac")
"""Once over unrolls, in epochs, from transitions, from sequences, of several networks."""


def others_in_long(names: Iterable[str], kept: Iterable[str] = ONE_OF_EACH_KIND) -> list[object]:
    """Return parameters of a test; those beside `kept` have the mark `long`."""
    kept = set(kept)
    return [name if name in kept else pytest.param(name, marks=pytest.mark.long) for name in names]
