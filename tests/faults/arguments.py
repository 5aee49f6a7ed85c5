"""Command lines of runs to which something happens, and what they run with."""

import os
from pathlib import Path

import distrl


def environment(**changes: str) -> dict[str, str]:
    """distrl can be imported from anywhere, and no CI settings leak in."""
    return {**os.environ, "PYTHONPATH": str(Path(distrl.__file__).parent.parent), **changes}


def sets(*values: str) -> list[str]:
    """`--set` for each."""
    return [argument for value in values for argument in ("--set", value)]
