"""The stop conditions of a training: the section `stop`, compared with the learner's state and the time."""

import time
from collections.abc import Mapping

from distrl.config.stop import BUDGETS, StopConfig
from distrl.learner.state import WINDOW_EPISODES, LearnerState

ASKED = "asked"
"""Stop reason of a requested stop."""


class StopConditions:
    """Counts the time of a training, and says when it is over."""

    def __init__(self, stop: StopConfig, state: LearnerState) -> None:
        self._stop, self._state = stop, state
        self._began = time.monotonic() - state.wall_s

    def count_time(self) -> None:
        """Bring the state's `wall_s` up to now."""
        self._state.wall_s = time.monotonic() - self._began

    def reached(self) -> str | None:
        """Return the stop condition that holds now, or None."""
        self.count_time()
        return stop_reason(self._stop, self._state)


def stop_reason(stop: StopConfig, state: LearnerState) -> str | None:
    """Return the name of the first stop condition that holds, or None."""
    mean = state.mean_return_100
    full = len(state.recent_returns) == WINDOW_EPISODES
    conditions: Mapping[str, bool] = {
        "mean_return": stop.mean_return is not None and full and mean is not None and mean >= stop.mean_return,
        "evaluation_return": _reached(stop.evaluation_return, state.best_evaluation_return),
        "metrics": any(_reached(wanted, state.full_window_metric(key)) for key, wanted in stop.metrics.items()),
        **{budget.field: _reached(getattr(stop, budget.field), getattr(state, budget.field)) for budget in BUDGETS},
        "minutes": stop.minutes is not None and state.wall_s >= 60.0 * stop.minutes,
    }
    return next((name for name, holds in conditions.items() if holds), None)


def _reached(wanted: float | None, value: float | None) -> bool:
    return wanted is not None and value is not None and value >= wanted
