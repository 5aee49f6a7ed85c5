"""Jobs and runs in a data store: their list, and their logs when their machines are gone."""

import pytest

from distrl.apps.jobs.record import JobRecord
from distrl.apps.jobs.stored_jobs import store_record, stored_jobs, stored_log
from distrl.apps.jobs.target import JobState
from distrl.apps.jobs.watching import watch
from distrl.data_store.opening import open_objects
from distrl.errors import ConfigError, StoreError
from tests.run_folders import ENDED


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


def record(run_id, url):
    told = {"address": None, "run_dir": "/gone", "store": url, "actors": 2, "submitted": 5.0, "handles": {}}
    return JobRecord.model_validate({"run_id": run_id, "target": "here", **told})


def summary(code):
    from distrl.runs.summary import Summary

    return Summary.model_validate({**ENDED, "exit_code": code}).model_dump_json().encode()


def test_runs_with_and_without_a_job(url):
    store_record(record("asked", url))
    store_record(record("over", url))
    objects = open_objects(url)
    objects.put("over/summary.json", summary(0))
    objects.put("failed/summary.json", summary(4))
    objects.put("trains/manifest.json", b"{}")
    objects.put("other/x", b"")
    objects.put("broken/job.json", b"{")
    states = {"asked": JobState("running")}
    found = {
        job.run_id: (job, state)
        for job, state in stored_jobs(url, lambda jobs: [states[job.run_id] for job in jobs], pytest.fail)
    }
    assert {run_id: each.state for run_id, (_, each) in found.items()} == {
        **{"asked": "running", "over": "solved", "failed": "failed", "trains": "unknown", "broken": "damaged"}
    }
    assert found["over"][0] == record("over", url)
    assert (found["failed"][0].target, found["failed"][1].exit_code) == ("-", 4)
    assert found["broken"][1].reason.startswith("job.json is damaged: ")


def test_a_job_without_a_store_stores_nothing(url):
    store_record(record("x", None))
    with pytest.raises(ConfigError, match=r"--store: file:.*No such file"):
        list(stored_jobs(url, lambda jobs: [], print))


def test_the_log_when_the_machine_is_gone(url, tmp_path):
    open_objects(url).put("r/logs/learner.log", b"2026-01-01 10:00:00,000 learner INFO one\n")
    open_objects(url).put("r/logs/actor-1.log", b"2026-01-01 10:00:01,000 actor 1 INFO two\n")
    assert [(line.role, line.text) for line in stored_log(f"{url}/r")] == [
        *(("learner", "INFO one"), ("actor 1", "INFO two"))
    ]
    lines = []
    job = record("r", url)
    shown = watch(
        job.model_copy(update={"run_dir": str(tmp_path / "gone")}), tmp_path, follow=False, report=lines.append
    )
    assert [line.text for line in shown] == ["INFO one", "INFO two"]
    assert lines[-1] == f"the log is the data store's, {url}/r"


def test_no_log(url):
    open_objects(url).put("r/x", b"")
    with pytest.raises(ConfigError, match="no log of such a run is in the store"):
        list(stored_log(f"{url}/r"))


def test_a_store_that_does_not_answer(url, monkeypatch):
    def down(url):
        raise StoreError(f"{url}: no answer")

    monkeypatch.setattr("distrl.apps.jobs.stored_jobs.open_objects", down)
    with pytest.raises(ConfigError, match="no answer"):
        list(stored_log(f"{url}/r"))
    with pytest.raises(ConfigError, match="no answer"):
        list(stored_jobs(url, lambda jobs: [], print))
