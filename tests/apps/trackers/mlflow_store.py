"""Track launches with MLflow, and print what its own client finds in the store after each of them, a line of JSON.

python -m tests.apps.trackers.mlflow_store URI EXPERIMENT < LAUNCHES.json

A process of its own: MLflow brings a second importlib.metadata, which takes the place of Python's.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.faults.arguments import environment


def stored_after(uri, experiment, *launches):
    """Return what the store has after each launch {config, rows, ending, run_dir}; without one, what it has now."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.apps.trackers.mlflow_store", uri, experiment],
        input=json.dumps(launches),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment(),
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _track(uri, experiment, launch):
    from distrl.apps.trackers.mlflow_tracker import MlflowTracker
    from distrl.apps.trackers.tracker import Ending, TrackedRun

    tracker = MlflowTracker(uri, experiment, None)
    note = tracker.begin(TrackedRun("run-1", Path(launch["run_dir"]), launch["config"], False))
    for row in launch["rows"]:
        tracker.record(row, int(row["env_steps"]))
    tracker.end(Ending(*launch["ending"]))
    return note


def _found(uri, experiment):
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    points = {}
    for name in run.data.metrics:
        history = sorted(client.get_metric_history(run.info.run_id, name), key=lambda each: (each.timestamp, each.step))
        points[name] = [[each.step, each.value] for each in history]
    info = {"id": run.info.run_id, "name": run.info.run_name, "status": run.info.status}
    return {**info, "tags": run.data.tags, "params": run.data.params, "points": points}


if __name__ == "__main__":
    for given in json.load(sys.stdin) or [None]:
        note = given and _track(*sys.argv[1:], given)
        print(json.dumps({"note": note, **_found(*sys.argv[1:])}))
