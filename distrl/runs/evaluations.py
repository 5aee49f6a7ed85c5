"""evaluations.jsonl: every evaluation of a run's launches, one JSON object per line, oldest first.

A resumed run appends to it. The keys are those of `memory_backend.records.Evaluation`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from distrl.config.curriculum import RETURN, SUCCESS
from distrl.files import read_end
from distrl.memory_backend.records import Estimate

EVALUATIONS = "evaluations.jsonl"
MOST_BYTES = 2**20
"""Most bytes of the file's end that are read: thousands of evaluations."""


class RecordedEvaluation(BaseModel):
    """One line; see `memory_backend.records.Evaluation` for units."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    weights_version: int
    env_steps: int = Field(ge=0, lt=2**63)
    episodes: int
    mean_return: float
    std_return: float
    min_return: float
    max_return: float
    mean_length_steps: float
    wall_s: float
    success_rate: float | None = None
    metrics: dict[str, float | None] = {}
    others: dict[str, "RecordedEvaluation"] = {}
    best_by: str = RETURN
    cut_episodes: int = 0
    mean_discounted_return: float | None = None
    estimates: tuple[Estimate, ...] = ()

    @property
    def score(self) -> float | None:
        """The result that `best_by` names; None: unknown."""
        return {RETURN: self.mean_return, SUCCESS: self.success_rate, **self.metrics}.get(self.best_by)


def best(evaluations: Sequence[RecordedEvaluation]) -> RecordedEvaluation | None:
    """Return the best by the result that the newest one names, the first of equals; None if none has that result."""
    by = evaluations[-1].best_by if evaluations else ""
    scored = [one for one in evaluations if one.best_by == by and one.score is not None]
    return max(scored, key=lambda one: one.score or 0.0, default=None)


def write_evaluation(path: Path, evaluation: Mapping[str, Any]) -> None:
    """Append one evaluation.

    Raises:
        OSError: The disk is full or fails.
    """
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(evaluation, separators=(",", ":")) + "\n")


def read_evaluations(path: Path, most_bytes: int | None = None) -> list[RecordedEvaluation]:
    """Return the newest evaluations, oldest first; torn and foreign lines are left out.

    Args:
        most_bytes: Bytes of the file's end that are read; None: `MOST_BYTES`.

    Raises:
        OSError: The file cannot be read.
    """
    found = []
    for line in read_end(path, MOST_BYTES if most_bytes is None else most_bytes).splitlines():
        try:
            found.append(RecordedEvaluation.model_validate_json(line))
        except ValidationError:  # torn by a crash or a full disk
            continue
    return found
