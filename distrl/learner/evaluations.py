"""Evaluations: the learner reads them from the registry and keeps the weights of the best one."""

import time
from collections.abc import Callable
from pathlib import Path

from distrl.config import RunConfig
from distrl.learner.policy_files import best_return, forget_best, write_best
from distrl.learner.state import LearnerState
from distrl.memory_backend.records import Evaluation
from distrl.memory_backend.registry import Registry

EVERY_S = 0.5


class EvaluationReader:
    """Reads each evaluation of the run once, oldest first.

    Args:
        every_s: Least seconds between two reads of the registry.
    """

    def __init__(self, registry: Registry, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._every_s = every_s
        self._clock = clock
        self._look_at = 0.0
        self._after = "0"

    @staticmethod
    def of(config: RunConfig, registry: Registry) -> "EvaluationReader | None":
        """Return the reader of a run, or None without evaluations. Deterministic mode reads without regard to time."""
        if config.evaluation.every_env_steps is None:
            return None
        return EvaluationReader(registry, 0.0 if config.deterministic else EVERY_S)

    def new(self, *, at_once: bool = False) -> list[Evaluation]:
        """Return the evaluations since the last read; empty before the next read is due, unless `at_once`."""
        now = self._clock()
        if now < self._look_at and not at_once:
            return []
        self._look_at = now + self._every_s
        found = self._registry.evaluations(self._after)
        if found:
            self._after = found[-1][0]
        return [evaluation for _, evaluation in found]

    def keep_best(self, policy: Path) -> None:
        """Write the weights of this launch's best evaluation into the directory `policy`."""
        if (best := self._registry.best_evaluation()) is not None:
            write_best(policy, best)


def restore_evaluations(policy: Path, state: LearnerState, registry: Registry, *, resumed: bool) -> None:
    """Restore the progress and best return of earlier launches' evaluations, before evaluators start.

    A checkpoint may be older than the best evaluation, which a worse one must not replace.

    Args:
        policy: The directory policy/ of the run.
        resumed: Whether `state` comes from a checkpoint; if not, a best evaluation in `policy` is discarded.
    """
    if not resumed:
        forget_best(policy)
        return
    registry.restore_evaluated(state.evaluation_env_steps or 0)
    known = [value for value in (state.best_evaluation_return, best_return(policy)) if value is not None]
    state.best_evaluation_return = max(known, default=None)
