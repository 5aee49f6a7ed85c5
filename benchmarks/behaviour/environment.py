"""A task of bsuite as a gymnasium environment that keeps bsuite's own log."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium


def recorded(bsuite_id: str, folder: str) -> gymnasium.Env[Any, Any]:
    """Return the task, which begins its log in this folder anew."""
    import bsuite
    from shimmy.bsuite_compatibility import BSuiteCompatibilityV0

    return BSuiteCompatibilityV0(bsuite.load_and_record_to_csv(bsuite_id, folder, overwrite=True))


def read_log(folder: Path) -> Sequence[Mapping[str, float]]:
    """Return the rows of the log in this folder.

    Raises:
        ValueError: There is none.
    """
    paths = list(folder.glob("*.csv"))
    if not paths:
        raise ValueError(f"no log in {folder}")
    with paths[0].open(encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items() if name} for row in csv.DictReader(file)]
