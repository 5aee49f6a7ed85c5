"""MLflow as a tracker."""

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from distrl.apps.trackers.tracker import Ending, TrackedRun
from distrl.config.document import flat, scalar
from distrl.config.secrets import masked_text

# MLflow sends telemetry from its import on.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

RUN_ID = "distrl.run_id"
"""Tag by which a resumed run is found."""
_PARAMS = 100
"""Most parameters in one request."""
_LONGEST_NAME, _LONGEST_VALUE = 250, 6000
_STATUSES = {"failed": "FAILED", "interrupted": "KILLED"}
"""MLflow's statuses of runs that have not ended as configured or as asked."""
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]", re.ASCII)


class MlflowTracker:
    """An MLflow run with the run's id as a tag. Metrics have environment steps as their step.

    Args:
        tracking_uri, experiment, name: The section `trackers.mlflow`.
    """

    def __init__(self, tracking_uri: str | None, experiment: str, name: str | None) -> None:
        self._uri, self._experiment, self._name = tracking_uri, experiment, name
        self._updates = -1.0  # of the newest row that the run has

    def begin(self, run: TrackedRun) -> str:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient(self._uri)
        known = self._client.get_experiment_by_name(self._experiment)
        experiment = self._client.create_experiment(self._experiment) if known is None else known.experiment_id
        found = self._client.search_runs([experiment], f"tags.`{RUN_ID}` = '{run.run_id}'", max_results=1)
        name = self._name or run.run_dir.name
        made = found[0] if found else self._client.create_run(experiment, tags={RUN_ID: run.run_id}, run_name=name)
        self._id = made.info.run_id
        self._updates = made.data.metrics.get("updates", -1.0)
        self._client.update_run(self._id, "RUNNING")
        # Those of an earlier launch cannot be changed.
        params = [Param(*param) for param in _params(run.config) if param[0] not in made.data.params]
        for first in range(0, len(params), _PARAMS):
            self._client.log_batch(self._id, params=params[first : first + _PARAMS])
        return f"run {self._id} of experiment {self._experiment} in {masked_text(self._client.tracking_uri)}"

    def record(self, row: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        if row["updates"] > self._updates:
            now = int(1000 * time.time())
            self._client.log_batch(self._id, [Metric(name, float(value), now, step) for name, value in row.items()])

    def end(self, ending: Ending) -> None:
        self._client.set_tag(self._id, "distrl.stop_reason", ending.stop_reason)
        self._client.set_terminated(self._id, _STATUSES.get(ending.end, "FINISHED"))


def _params(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the settings by their dotted paths, as MLflow takes them."""
    found = ((".".join(keys), value) for keys, value in flat(config))
    return [(_NOT_IN_NAMES.sub("_", dotted)[:_LONGEST_NAME], scalar(value)[:_LONGEST_VALUE]) for dotted, value in found]
