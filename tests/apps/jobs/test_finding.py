import json
import os

import pytest

from distrl.apps.jobs.finding import as_job, known_jobs
from distrl.apps.jobs.record import JobRecord
from distrl.errors import ConfigError
from distrl.runs.directories import directory_of_id, run_directory


def record(run_id="pong", **changes):
    told = {"run_id": run_id, "target": "here", "address": "box", "run_dir": f"/runs/{run_id}", "store": None}
    return JobRecord.model_validate({**told, "actors": 2, "submitted": 1000.0, "handles": {"pid": "1"}, **changes})


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Two jobs and a plain run under runs/, and a folder of code with a job's name."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "runs"
    for name, run_id in (("pong", "pong"), ("other-name", "breakout")):
        (root / name).mkdir(parents=True)
        record(run_id).write(root / name)
    (root / "plain").mkdir()
    (root / "plain" / "run.json").write_text(json.dumps({"run_id": "r1", "redis_url": None, "pid": 1, "started": 7.0}))
    (root / "empty").mkdir()
    (tmp_path / "pong").mkdir()
    for age, path in enumerate((root / "pong/job.json", root / "plain/run.json", root / "other-name/job.json")):
        os.utime(path, (1000 - age, 1000 - age))
    return root


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("pong", "runs/pong"),  # not the folder of code
        ("breakout", "runs/other-name"),
        ("r1", "runs/plain"),
        ("runs/plain", "runs/plain"),
        ("runs/nowhere", "runs/nowhere"),  # whose reader says so
        (None, "runs/pong"),
    ],
)
def test_runs_and_jobs_are_found_by_directory_and_by_id(root, name, found):
    assert run_directory(name) == root.parent / found or str(run_directory(name)) == found


def test_a_name_of_nothing_is_one_line(root):
    with pytest.raises(ConfigError, match=r"^nothing is no run's directory, and no run under runs/ has this id"):
        run_directory("nothing")
    assert directory_of_id("nothing", root) is None


def test_a_plain_run_is_a_job_of_this_machine(root):
    job = as_job(root / "plain")
    assert (job.run_id, job.target, job.run_dir, job.handles) == ("r1", "here", str(root / "plain"), {})
    assert as_job(root / "pong") == record()
    with pytest.raises(ConfigError, match="is not a run's directory"):
        as_job(root / "empty")


@pytest.mark.parametrize("content", ["{", '{"schema_version": 2}', json.dumps({"run_id": "pong", "pid": 1}), "[]"])
def test_damaged_records_are_one_line_each_and_hide_no_other_job(root, content):
    (root / "pong" / "job.json").write_text(content)
    (_, unasked), (damaged, state) = known_jobs(root)
    assert (unasked, damaged.run_id, damaged.run_dir, state.state) == (None, "pong", str(root / "pong"), "damaged")
    assert state.reason.startswith(f"{root}/pong/job.json is damaged: ")
    assert "\n" not in state.reason
    with pytest.raises(ConfigError, match="is damaged"):
        as_job(root / "pong")


def test_without_a_folder_of_runs_there_are_no_jobs(tmp_path):
    assert list(known_jobs(tmp_path / "nowhere")) == []
