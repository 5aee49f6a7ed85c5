"""The plan of a job for a Ray cluster. tests/cluster has jobs that run on one."""

from dataclasses import replace
from pathlib import Path

import pytest

from distrl.apps.config.configuration import load
from distrl.apps.jobs.record import Job, JobRecord, OpenRecord
from distrl.apps.jobs.watching import state_of
from distrl.errors import ConfigError

pytest.importorskip("ray")
pytest.importorskip("aiohttp")

from distrl.apps.jobs.ray_client import RayClient
from distrl.apps.jobs.ray_jobs import RayJobs

pytestmark = pytest.mark.ray


@pytest.fixture
def job(job_server):
    """Return a job with settings."""

    def make(*settings):
        return Job("pong", load("cartpole-impala", sets=settings), Path("/runs/pong"), job_server.url)

    return make


def test_a_plan_says_that_others_can_read_secrets_of_the_configuration(job):
    assert not [line for line in RayJobs().plan(job()).unprotected if "secrets" in line]
    plan = RayJobs().plan(job("environment.kwargs={token: hunter2}"))
    assert plan.unprotected[-1].startswith("job.yaml holds secrets of the configuration, and all users")
    assert "hunter2" not in str(plan)


def test_a_name_that_is_taken_on_the_cluster_is_refused_by_the_plan(job, job_server):
    job_server.jobs = {"pong"}
    with pytest.raises(ConfigError, match="the run id pong is taken"):
        RayJobs().plan(job())
    assert not [path for path in job_server.asked if "nodes" in path]


def test_a_submission_that_was_killed_is_found_by_its_id(job, job_server, tmp_path, monkeypatch):
    class KilledError(BaseException):
        pass

    def die(*_, **__):
        raise KilledError

    monkeypatch.setattr(RayClient, "submit", die)
    record = OpenRecord(replace(job(), run_dir=tmp_path), "ray")
    with pytest.raises(KilledError):
        RayJobs().submit(job(), record, print)
    half = JobRecord.read(tmp_path)
    assert (half.complete, half.address, half.handles) == (False, job_server.url, {"job": "pong"})
    assert state_of(half).state == "gone"
    RayJobs().withdraw(half)
    assert not [path for path in job_server.asked if path.endswith("/stop")]
    job_server.jobs = {"pong"}
    RayJobs().withdraw(half)
    assert job_server.asked[-1] == "/api/jobs/pong/stop"
