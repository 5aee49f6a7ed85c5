"""Evaluations: the learner reads them from the registry, keeps the best one's weights, and waits for the last one."""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig, info_word
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.attendants.reporter import Reporter
from distrl.learner.attendants.saver import Saver
from distrl.learner.batches import Trained
from distrl.learner.policy_files import write_best
from distrl.learner.state import LearnerState
from distrl.learner.stop_conditions import ASKED
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.records import AWAITS_EVALUATION, Estimate, Evaluation, Request
from distrl.metrics.snapshot import DISCOUNTED, estimate_columns, other_evaluation_column

log = logging.getLogger(__name__)
EVERY_S = 0.5
"""Least seconds between two reads of the registry."""
POLL_S = 0.1


class Evaluations(Attendant):
    """Records each evaluation of the run once, oldest first, and keeps the weights of the best one.

    Deterministic mode reads the registry without regard to time.

    Args:
        policy_dir: The directory policy/ of the run.
        saver: Saves before the end waits for the last evaluation.
        attend: Called between two looks at the end.
        stop: Ends the wait there.
    """

    def __init__(
        self,
        config: RunConfig,
        state: LearnerState,
        backend: Backend,
        policy_dir: Path,
        reporter: Reporter,
        saver: Saver,
        attend: Callable[[], None],
        stop: Callable[[], bool],
    ) -> None:
        self._config, self._state, self._policy_dir = config, state, policy_dir
        self._registry, self._weights = backend.registry, backend.weights
        self._reporter, self._saver, self._attend, self._stop = reporter, saver, attend, stop
        self._last_within_s = config.evaluation.last_within_s
        self._lacks = self._forget_others() or self._state.best_score is None
        self._every_s = 0.0 if config.deterministic else EVERY_S
        self._look_at = 0.0
        self._after = "0"
        self._best_unkept = False

    def _forget_others(self) -> bool:
        """Forget further results that this run has not, or has changed; return whether it lacks some."""
        state, config = self._state, self._config
        defined = {name: _digest(other) for name, other in config.other_environments.items()}
        kept = [name for name in defined if defined[name] == state.other_environments.get(name)]
        of_estimates = columns_of_estimates(config, None)
        columns = [column for name in kept for column in _columns_of(config, name, None)]
        found = {column: state.other_evaluations.get(column) for column in (*columns, *of_estimates)}
        lacks = len(kept) < len(defined) or not found.keys() <= state.other_evaluations.keys()
        state.other_evaluations, state.other_environments = columns_of_others(config, {}) | found, defined
        return lacks

    def attend(self, trained: Trained | None) -> None:
        if trained is not None:
            self.look()

    def end(self, reason: str) -> None:
        """Wait for the evaluation of the last weights, unless it was asked to stop, or an evaluation has ended it."""
        self.look(at_once=True)
        if reason in (ASKED, "evaluation_return") or not self.lacks_last:
            return
        self._saver.save_last(reason)
        activity, self._reporter.activity = self._reporter.activity, AWAITS_EVALUATION
        self._reporter.report()
        if self.have_last():
            self._saver.checkpointer.outdate()
        self._reporter.activity = activity

    def look(self, *, at_once: bool = False) -> None:
        """Record the evaluations since the last look, if the next one is due or `at_once`."""
        now = time.monotonic()
        if now < self._look_at and not at_once:
            return
        self._look_at = now + self._every_s
        found = self._registry.evaluations(self._after)
        for self._after, evaluation in found:
            self._best_unkept |= self._state.observe_evaluation(evaluation)
            others, estimates = evaluation.others, columns_of_estimates(self._config, evaluation)
            self._state.other_evaluations = columns_of_others(self._config, others) | estimates
            self._lacks = False
        if found and self._best_unkept:
            self._keep_best()

    @property
    def lacks_last(self) -> bool:
        """Whether the newest published weights are to be evaluated, and are not."""
        return self._last_within_s > 0.0 and not self._has_newest

    def have_last(self) -> bool:
        """Have the newest published weights evaluated, and wait for it, at most `evaluation.last_within_s`.

        Returns:
            Whether an evaluation came in.
        """
        before, until = self._after, time.monotonic() + self._last_within_s
        self._registry.add_request(Request("learner", f"evaluate the last weights, within {self._last_within_s:g} s"))
        self._registry.demand("evaluation")
        while not self._stop():
            self._attend()
            self.look(at_once=True)
            if self._has_newest:
                break
            if time.monotonic() >= until:
                what = f"end without an evaluation of the last weights: none within {self._last_within_s:g} s"
                self._registry.add_request(Request("learner", f"{what} (evaluation.last_within_s)"))
                break
            time.sleep(POLL_S)
        return self._after != before

    @property
    def _has_newest(self) -> bool:
        evaluated = self._state.evaluation_env_steps or 0
        return not self._lacks and evaluated >= self._weights.progress().env_steps

    def _keep_best(self) -> None:
        try:
            if (best := self._registry.best_evaluation()) is not None:
                write_best(self._policy_dir, best, self._state.best_by)
            self._best_unkept = False
        except OSError as error:  # tried again with the next evaluation
            log.error("the weights of the best evaluation cannot be kept: %s", error)
            self._reporter.unsaved = str(error)


def _digest(environment: EnvironmentConfig) -> str:
    """Return the sha256 of what an environment is; its keyword arguments may hold secrets."""
    definition = json.dumps([environment.id, environment.kwargs], sort_keys=True, default=str)
    return hashlib.sha256(definition.encode()).hexdigest()


def columns_of_others(config: RunConfig, results: Mapping[str, Evaluation]) -> dict[str, float | None]:
    """Return the columns of `evaluation.other_environments`; None: there is no result, or the environment has none."""
    columns: dict[str, float | None] = {}
    for name in config.evaluation.other_environments:
        columns |= _columns_of(config, name, results.get(name))
    return columns


def columns_of_estimates(config: RunConfig, found: Evaluation | None) -> dict[str, float | None]:
    """Return the columns of `evaluation.off_policy`; None: unknown."""
    wanted = config.evaluation.off_policy.estimators
    if not wanted:
        return {}
    columns = {DISCOUNTED: None if found is None else found.mean_discounted_return}
    made = {} if found is None else {each.estimator: each for each in found.estimates}
    for name in wanted:
        estimate = made.get(name, Estimate(name))
        columns |= zip(estimate_columns(name), (estimate.value, estimate.low, estimate.high), strict=True)
    return columns


def _columns_of(config: RunConfig, name: str, found: Evaluation | None) -> dict[str, float | None]:
    columns: dict[str, float | None] = {
        other_evaluation_column(name, "mean_return"): None if found is None else found.mean_return,
        other_evaluation_column(name, "success_rate"): None if found is None else found.success_rate,
    }
    for key in config.environment.metrics:
        value = None if found is None else found.metrics.get(key)
        columns[other_evaluation_column(name, f"info_{info_word(key)}")] = value
    return columns
