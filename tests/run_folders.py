"""Run directories as runs leave them, without the runs."""

import json
import os
from pathlib import Path
from typing import Any

from distrl.config.load import dump, load
from distrl.observers.metrics_csv import CsvSink
from distrl.runs.summary import Summary

TEXTS = {
    "run_id": "r1",
    "launch": "",
    "algorithm": "impala",
    "env": "CartPole-v1",
    "stop_reason": "mean_return",
    "bottleneck": "-",
    "error": None,
    "accepted": True,
}
NAMED = ("dropped", "policy_lag", "peak_rss_mb", "untracked", "other_evaluation_returns")


def summary(**changes: Any) -> Summary:
    """The summary of a run that reached its mean return: every number is 0, and nothing is in its mappings."""
    numbers = dict.fromkeys(Summary.model_fields, 0)
    return Summary.model_validate({**numbers, **TEXTS, **{name: {} for name in NAMED}, **changes})


ROWS = (
    {"updates": 10, "env_steps": 1000, "episodes": 20, "wall_s": 1.5, "loss": 0.5, "env_steps_per_s": 900.0},
    {"updates": 20, "env_steps": 2000, "episodes": 30, "wall_s": 2.5, "loss": 0.25, "mean_return_100": 10.0},
    {
        "updates": 30,
        "env_steps": 3000,
        "episodes": 50,
        "wall_s": 3.5,
        "mean_return_100": 20.0,
        "best_mean_return_100": 20.0,
        "env_steps_per_s": 1000.0,
        "policy_lag_mean": 1.5,
        "policy_lag_max": 4,
        "bottleneck": "actors",
    },
)
ENDED = {
    "run_id": "r1",
    "algorithm": "impala",
    "env": "CartPole-v1",
    "seed": 1,
    "env_steps": 3000,
    "updates": 30,
    "episodes": 50,
    "mean_return_100": 20.0,
    "best_mean_return_100": 25.0,
    "wall_s": 9.84,
    "time_to_first_update_s": 3.2,
    "env_steps_per_s": 62057.3,
    "updates_per_s": 30.3,
    "trained_steps": 3000,
    "stop_reason": "mean_return",
    "exit_code": 0,
    "weights_version": 31,
    "produced": 31,
    "foreign": 0,
    "trained": 30,
    "queued": 1,
    "in_flight": 0,
    "dropped": {"stale": 0},
    "lost": 0,
    "rolled_back": 0,
    "policy_lag": {"mean": 1.24, "p95": 3, "max": 5},
    "bottleneck": "learner",
    "peak_rss_mb": {"learner": 812.5, "actor 0": 92.5},
    "restarts": 0,
}
MANIFEST = {
    "run_id": "r1",
    "environment": "Acrobot-v1",
    "algorithm": "ppo",
    "seed": 7,
    "command": ["distrl", "train", "--env", "Acrobot-v1"],
    "directory": "/home/me",
    "commit": None,
    "distrl": "0.1.0",
    "distrl_commit": "0123abcd+",
    "python": "3.11.7",
    "system": "Linux",
    "host": "box",
    "cpu": "AMD EPYC",
    "cores": 2,
    "memory_bytes": 25_300_000_000,
    "gpus": [],
    "packages": {"numpy": "2.4.6"},
}


def make_run(
    folder: Path,
    *,
    rows: Any = ROWS,
    summary: dict[str, Any] | None = {},  # noqa: B006  it is never changed
    sets: tuple[str, ...] = (),
    manifest: dict[str, Any] | None = None,
    pid: int | None = None,
    started: float = 1000.0,
    run_id: str = "r1",
) -> Path:
    """A run's directory.

    Args:
        summary: What is other than in `ENDED`; None: the run has not ended.
        manifest: Likewise of `MANIFEST`; None: there is none.
        pid: Of its command; this process by default.
    """
    (folder / "logs").mkdir(parents=True)
    record = {"run_id": run_id, "redis_url": None, "pid": pid or os.getpid(), "started": started}
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "config.yaml").write_text(dump(load(sets=sets)))
    sink = CsvSink(folder / "metrics.csv")
    for row in rows:
        sink.write(row)
    sink.close()
    if summary is not None:
        Summary.model_validate({**ENDED, "run_id": run_id, **summary}).write(folder / "summary.json")
    if manifest is not None:
        (folder / "manifest.json").write_text(json.dumps({**MANIFEST, **manifest}))
    return folder
