"""MLflow's own client finds in its store what metrics.csv has."""

from unittest.mock import MagicMock

import pytest

from distrl.apps.config.configuration import load
from distrl.apps.trackers.mlflow_tracker import MlflowTracker
from distrl.apps.trackers.tracker import Ending
from tests.apps.trackers.conftest import rows_of
from tests.apps.trackers.mlflow_store import stored_after


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        (Ending(0, "mean_return"), "FINISHED"),
        (Ending(0, "asked"), "FINISHED"),
        (Ending(130, "Ctrl-C"), "KILLED"),
        (Ending(143, "SIGTERM"), "KILLED"),
        (Ending(4, "stalled", "no update"), "FAILED"),
        (Ending(1, "died", "the process of the training has died"), "FAILED"),
    ],
)
def test_a_run_has_the_status_of_its_end(ending, status):
    tracker = MlflowTracker(None, "robots", None)
    tracker._client, tracker._id = MagicMock(), "1"
    tracker.end(ending)
    tracker._client.set_terminated.assert_called_once_with("1", status)


@pytest.mark.long
def test_the_store_is_the_csv_also_of_a_resumed_run(launch, tmp_path, callers):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    made = launch()
    made.take(*range(5))
    before = rows_of(tmp_path)
    made.take(*range(3, 8))  # from a checkpoint of update 2
    again = rows_of(tmp_path)[3:]
    config = {**load("cartpole-impala").config.model_dump(mode="json"), "kwargs": {"a(b)": "x" * 7000}}
    first, second = stored_after(
        uri,
        "robots",
        {"run_dir": str(tmp_path), "config": config, "rows": before, "ending": [5, "non-finite training"]},
        {"run_dir": str(tmp_path), "config": {"seed": 2, "more": 3}, "rows": again, "ending": [0, "updates"]},
    )
    assert callers() == []
    assert first["note"] == second["note"] == f"run {first['id']} of experiment robots in {uri}"
    assert (first["name"], first["status"], second["status"]) == (tmp_path.name, "FAILED", "FINISHED")
    assert (first["tags"]["distrl.run_id"], first["tags"]["distrl.stop_reason"]) == ("run-1", "non-finite training")
    assert len(first["params"]) > 100  # more than one request takes
    assert [first["params"][name] for name in ("seed", "environment.id")] == ["1", "CartPole-v1"]
    assert first["params"]["kwargs.a_b_"] == "x" * 6000
    assert second["params"] == {**first["params"], "more": "3"}
    for found, rows in ((first, before), (second, [*before, *again[2:]])):
        points = {name: [[int(row["env_steps"]), row[name]] for row in rows] for name in rows[0]}
        assert found["points"] == points
    assert first["points"].keys() == {"updates", "env_steps", "loss"}
