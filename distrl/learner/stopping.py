"""Stop reasons: the conditions under `stop` in the configuration, and requests of operators."""

from collections.abc import Mapping

from distrl.config.run import StopConfig
from distrl.learner.state import WINDOW_EPISODES, LearnerState

ASKED = "asked"
"""Stop reason of a requested stop."""


def stop_reason(stop: StopConfig, state: LearnerState) -> str | None:
    """Return the name of the first stop condition that holds, or None."""
    mean = state.mean_return_100
    full = len(state.recent_returns) == WINDOW_EPISODES
    conditions: Mapping[str, bool] = {
        "mean_return": stop.mean_return is not None and full and mean is not None and mean >= stop.mean_return,
        "evaluation_return": _reached(stop.evaluation_return, state.best_evaluation_return),
        "env_steps": stop.env_steps is not None and state.env_steps >= stop.env_steps,
        "updates": stop.updates is not None and state.updates >= stop.updates,
        "minutes": stop.minutes is not None and state.wall_s >= 60.0 * stop.minutes,
    }
    return next((name for name, holds in conditions.items() if holds), None)


def _reached(wanted: float | None, value: float | None) -> bool:
    return wanted is not None and value is not None and value >= wanted
