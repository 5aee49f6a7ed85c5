"""The stop conditions: which one holds, and that the first one of several is named."""

import pytest

from distrl.config.stop import StopConfig
from distrl.learner.state import LearnerState
from distrl.learner.stop_conditions import stop_reason


@pytest.mark.parametrize(
    ("stop", "state", "reason"),
    [
        ({}, {"updates": 10**9, "env_steps": 10**12, "wall_s": 1e9, "recent_returns": [1e9] * 100}, None),
        ({"mean_return": 5.0}, {"recent_returns": [5.0] * 100}, "mean_return"),
        ({"mean_return": 5.0}, {"recent_returns": [5.0] * 99 + [4.9]}, None),
        ({"mean_return": 5.0}, {"recent_returns": [1000.0] * 99}, None),  # a window that is not full proves nothing
        ({"mean_return": -10.0}, {"recent_returns": []}, None),
        ({"mean_return": -10.0}, {"recent_returns": [-10.0] * 100}, "mean_return"),
        ({"evaluation_return": 475.0}, {"recent_returns": [500.0] * 100}, None),
        ({"evaluation_return": 475.0}, {"best_evaluation_return": 474.9}, None),
        (
            {"evaluation_return": 475.0},
            {"best_evaluation_return": 475.0, "evaluation_mean_return": 50.0},
            "evaluation_return",
        ),
        ({"metrics": {"x": 2.0}}, {"recent_metrics": {"x": [2.0] * 100}}, "metrics"),
        ({"metrics": {"x": 2.0}}, {"recent_metrics": {"x": [2.0] * 99 + [1.9]}}, None),
        ({"metrics": {"x": 2.0}}, {"recent_metrics": {"x": [1000.0] * 99}}, None),
        ({"metrics": {"x": 2.0}}, {"recent_metrics": {"x": [1000.0] * 99 + [None]}}, None),
        ({"metrics": {"x": 9.0, "y": -2.0}}, {"recent_metrics": {"x": [2.0] * 100, "y": [-2.0] * 100}}, "metrics"),
        ({"env_steps": 100}, {"env_steps": 99}, None),
        ({"env_steps": 100}, {"env_steps": 100}, "env_steps"),
        ({"episodes": 2}, {"episodes": 1}, None),
        ({"episodes": 2}, {"episodes": 2}, "episodes"),
        ({"episodes": 2}, {"episodes": 3}, "episodes"),
        ({"updates": 7}, {"updates": 6}, None),
        ({"updates": 7}, {"updates": 7}, "updates"),
        ({"minutes": 0.5}, {"wall_s": 29.9}, None),
        ({"minutes": 0.5}, {"wall_s": 30.0}, "minutes"),
        ({"updates": 7, "minutes": 1.0}, {"updates": 1, "wall_s": 60.0}, "minutes"),
        ({"mean_return": 0.0, "updates": 7}, {"updates": 7, "recent_returns": [1.0] * 100}, "mean_return"),
    ],
)
def test_stop_conditions(stop, state, reason):
    assert stop_reason(StopConfig(**stop), LearnerState(run_id="r", **state)) == reason
