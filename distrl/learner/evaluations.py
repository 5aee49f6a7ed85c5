"""Evaluations: the learner reads them from the registry and keeps the weights of the best one."""

import logging
import time

from distrl.learner.policy_files import write_best
from distrl.learner.preparation import Prepared
from distrl.learner.reporter import Reporter

log = logging.getLogger(__name__)
EVERY_S = 0.5
"""Least seconds between two reads of the registry."""


class Evaluations:
    """Records each evaluation of the run once, oldest first, and keeps the weights of the best one.

    Deterministic mode reads the registry without regard to time.
    """

    def __init__(self, prepared: Prepared, reporter: Reporter) -> None:
        self._registry, self._reporter = prepared.backend.registry, reporter
        self._state, self._policy_dir = prepared.state, prepared.run_dir / "policy"
        self._every_s = 0.0 if prepared.config.deterministic else EVERY_S
        self._look_at = 0.0
        self._after = "0"
        self._best_unkept = False

    def look(self, *, at_once: bool = False) -> None:
        """Record the evaluations since the last look, if the next one is due or `at_once`."""
        now = time.monotonic()
        if now < self._look_at and not at_once:
            return
        self._look_at = now + self._every_s
        found = self._registry.evaluations(self._after)
        for self._after, evaluation in found:
            self._best_unkept |= self._state.observe_evaluation(evaluation.mean_return, evaluation.env_steps)
            self._state.evaluation_success_rate = evaluation.success_rate
            self._state.evaluation_metrics = {key: evaluation.metrics.get(key) for key in self._state.recent_metrics}
        if not (found and self._best_unkept):
            return
        try:
            if (best := self._registry.best_evaluation()) is not None:
                write_best(self._policy_dir, best)
            self._best_unkept = False
        except OSError as error:  # tried again with the next evaluation
            log.error("the weights of the best evaluation cannot be kept: %s", error)
            self._reporter.unsaved = str(error)
