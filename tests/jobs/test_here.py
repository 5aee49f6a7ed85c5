"""Jobs on this machine: real processes of the real command."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

import distrl
from distrl.config.load import load
from distrl.errors import ConfigError
from distrl.jobs.here import Here
from distrl.jobs.record import Job, JobRecord
from distrl.jobs.submission import submit
from distrl.jobs.target import OVER, RoleNeed
from tests.faults.training import alive, wait_until

SLEEPING = """
import time
import gymnasium

class Sleeping(gymnasium.Env):
    def __init__(self):
        open("sleeps", "w").close()
        time.sleep(600)
"""


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(distrl.__file__).parent.parent))  # for processes that tests start
    monkeypatch.delenv("DISTRL_REDIS_URL", raising=False)
    return tmp_path


@pytest.fixture
def start(workplace):
    """Submits jobs, and ends what is left of them."""
    records = []

    def submitted(*sets, run_id="r1"):
        job = Job(run_id, load("cartpole-impala", sets=sets), workplace / "runs" / run_id)
        records.append(submit(job, Here(), lambda text: None))
        return records[-1]

    yield submitted
    for record in records:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(os.getpgid(int(record.handles["pid"])), signal.SIGKILL)


def end_of(record):
    wait_until(lambda: Here().state(record).state in OVER, "the job has ended")
    return Here().state(record)


def texts(record, role="job"):
    return [line.text for line in Here().log(record, follow=False) if line.role == role]


def test_the_plan_is_of_this_machine(workplace):
    loaded = load("cartpole-impala", sets=["actors.count=3"])
    job = Job("r1", loaded, workplace / "runs" / "r1")
    plan = Here().plan(job)
    assert plan.roles == [RoleNeed("learner", 1, 1), RoleNeed("actor", 3, 1)]
    assert "cores" in plan.available
    assert plan.code == f"{workplace}, in place"
    assert plan.files == {"command": f"distrl train job.yaml --run-dir {workplace}/runs/r1 --run-id r1 --dated\n"}
    with pytest.raises(ConfigError, match="--address http://head has no use with --on here"):
        Here().plan(Job("r1", loaded, workplace / "runs" / "r1", address="http://head"))


def test_a_job_that_cannot_begin_leaves_its_error_and_its_exit_code(start):
    record = start("environment.id=nowhere:Missing")
    assert Here().state(record).state == "running"
    state = end_of(record)
    assert (state.state, state.exit_code) == ("failed", 2)
    assert "nowhere" in state.reason
    assert f"distrl: error: {state.reason}" in texts(record)
    with pytest.raises(ConfigError, match=r"^r1 does not run; distrl status \S+/runs/r1 shows how it ended"):
        Here().stop(record, now=False)
    with pytest.raises(ConfigError, match="r1 has not begun to train"):
        Here().scale(record, 3, force=False)


@pytest.mark.parametrize(("now", "state", "code"), [(False, "failed", 130), (True, "gone", None)])
def test_a_job_that_has_not_begun_is_stopped_and_leaves_no_process(start, workplace, now, state, code):
    (workplace / "sleepers.py").write_text(SLEEPING)
    record = start("environment.id=sleepers:Sleeping")
    wait_until((workplace / "sleeps").exists, "the environment is made")
    pid = int(record.handles["pid"])
    assert os.getsid(pid) != os.getsid(0)  # so that it outlives this terminal
    Here().stop(record, now=now)
    found = end_of(record)
    assert (found.state, found.exit_code) == (state, code)
    assert not alive(pid)


def test_only_the_own_host_and_the_own_process_are_taken_for_the_job(start, workplace):
    record = start("environment.id=nowhere:Missing")
    end_of(record)
    elsewhere = record.model_copy(update={"address": "otherbox"})
    for ask in (Here().state, lambda job: Here().stop(job, now=True), lambda job: Here().scale(job, 2, force=False)):
        with pytest.raises(ConfigError, match="r1 was submitted on host otherbox; repeat the command there"):
            ask(elsewhere)
    reused = record.model_copy(update={"handles": {"pid": str(os.getpid()), "process": "boot:1"}})
    with pytest.raises(ConfigError, match="does not run"):
        Here().stop(reused, now=True)
    damaged = record.model_copy(update={"handles": {"pid": "-1"}})
    with pytest.raises(ConfigError, match="the record of r1 is damaged: its process is '-1'"):
        Here().state(damaged)


def test_a_job_whose_directory_is_gone_has_no_log(start, workplace):
    record = JobRecord(
        run_id="r1",
        target="here",
        address=None,
        run_dir=str(workplace / "gone"),
        store=None,
        actors=1,
        submitted=1.0,
        handles={},
    )
    assert Here().log(record, follow=False) is None
    assert Here().state(record).state == "gone"
