"""Evaluations: the learner reads them from the registry, keeps the best one's weights, and waits for the last one."""

import logging
import time
from collections.abc import Callable, Mapping

from distrl.config import RunConfig
from distrl.config.environment import info_word
from distrl.learner.policy_files import write_best
from distrl.learner.preparation import Prepared
from distrl.learner.reporter import Reporter
from distrl.memory_backend.records import Evaluation
from distrl.metrics.snapshot import other_evaluation_column

log = logging.getLogger(__name__)
EVERY_S = 0.5
"""Least seconds between two reads of the registry."""
POLL_S = 0.1


class Evaluations:
    """Records each evaluation of the run once, oldest first, and keeps the weights of the best one.

    Deterministic mode reads the registry without regard to time.
    """

    def __init__(self, prepared: Prepared, reporter: Reporter) -> None:
        self._registry, self._weights, self._reporter = prepared.backend.registry, prepared.backend.weights, reporter
        self._last_within_s = prepared.config.evaluation.last_within_s
        self._state, self._policy_dir = prepared.state, prepared.run_dir / "policy"
        self._config = prepared.config
        columns = columns_of_others(self._config, {})  # a resumed run may have other ones
        self._state.other_evaluations = columns | {
            column: value for column, value in self._state.other_evaluations.items() if column in columns
        }
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
            self._state.other_evaluations = columns_of_others(self._config, evaluation.others)
        if found and self._best_unkept:
            self._keep_best()

    def have_last(self, attend: Callable[[], None], stop: Callable[[], bool]) -> None:
        """Have the newest published weights evaluated, and wait for it, at most `evaluation.last_within_s`.

        Args:
            attend: Called between two looks.
            stop: Ends the wait.
        """
        self.look(at_once=True)
        if self._has_newest or not self._last_within_s:
            return
        until = time.monotonic() + self._last_within_s
        self._registry.demand("evaluation")
        while not stop():
            attend()
            self.look(at_once=True)
            if self._has_newest:
                return
            if time.monotonic() >= until:
                what = "the last weights were not evaluated within %g s (evaluation.last_within_s)"
                log.warning(what, self._last_within_s)
                return
            time.sleep(POLL_S)

    @property
    def _has_newest(self) -> bool:
        return (self._state.evaluation_env_steps or 0) >= self._weights.env_steps()

    def _keep_best(self) -> None:
        try:
            if (best := self._registry.best_evaluation()) is not None:
                write_best(self._policy_dir, best)
            self._best_unkept = False
        except OSError as error:  # tried again with the next evaluation
            log.error("the weights of the best evaluation cannot be kept: %s", error)
            self._reporter.unsaved = str(error)


def columns_of_others(config: RunConfig, results: Mapping[str, Evaluation]) -> dict[str, float | None]:
    """Return the columns of `evaluation.other_environments`; None: there is no result, or the environment has none."""
    columns: dict[str, float | None] = {}
    for name in config.evaluation.other_environments:
        found = results.get(name)
        columns[other_evaluation_column(name, "mean_return")] = None if found is None else found.mean_return
        columns[other_evaluation_column(name, "success_rate")] = None if found is None else found.success_rate
        for key in config.environment.metrics:
            value = None if found is None else found.metrics.get(key)
            columns[other_evaluation_column(name, f"info_{info_word(key)}")] = value
    return columns
