"""Jobs on this machine: real processes of the real command."""

import contextlib
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import distrl
from distrl.apps.commands import main
from distrl.apps.config.configuration import load
from distrl.apps.jobs.finding import known_jobs
from distrl.apps.jobs.here import Here
from distrl.apps.jobs.record import Job, JobRecord
from distrl.apps.jobs.submission import require_free, submit, withdraw_unfinished
from distrl.apps.jobs.target import OVER
from distrl.apps.jobs.watching import state_of
from distrl.errors import ConfigError
from distrl.roles.plan import RoleNeed
from distrl.runs.directories import process_mark
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(distrl.__file__).parent.parent))  # for processes that tests start
    monkeypatch.delenv("DISTRL_REDIS_URL", raising=False)
    monkeypatch.setenv("COLUMNS", "300")  # a worker of xdist has 80, which breaks cells into lines
    return tmp_path


@pytest.fixture
def start(workplace):
    """Submits jobs, and ends what is left of them."""
    records = []

    def submitted(*sets, run_id="r1"):
        job = Job(run_id, load("cartpole-impala", sets=sets), workplace / "runs" / run_id)
        records.append(submit(job, Here(), print, print))
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


def test_a_store_that_cannot_be_used_is_refused_and_leaves_nothing(start, workplace):
    (workplace / "file").touch()
    with pytest.raises(ConfigError, match=r"^checkpoint.store cannot be used: file://.*/file: .*Not a directory"):
        start(f"checkpoint.store=file://{workplace}/file")
    assert not (workplace / "runs" / "r1").exists()


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


def test_weights_that_are_not_here_are_refused_before_anything_is_submitted(workplace):
    loaded = load("cartpole-impala", flags={"--init-from": "runs/first@20"})
    with pytest.raises(ConfigError) as refused:
        Here().plan(Job("r1", loaded, workplace / "runs" / "r1"))
    run = workplace / "runs" / "first"
    assert str(refused.value) == (f"learner.init_from: {run} has no checkpoint: there is none in {run / 'checkpoints'}")


def test_a_job_that_cannot_begin_leaves_its_error_and_its_exit_code(start):
    record = start("environment.id=nowhere:Missing")
    assert Here().state(record).state == "running"
    assert os.getsid(int(record.handles["pid"])) != os.getsid(0)  # so that it outlives this terminal
    state = end_of(record)
    assert (state.state, state.exit_code) == ("failed", 2)
    assert "nowhere" in state.reason
    assert f"distrl: error: {state.reason}" in texts(record)
    reused = record.model_copy(update={"handles": {"pid": str(os.getpid()), "process": "boot:1"}})
    for gone in (record, reused):
        with pytest.raises(ConfigError, match=r"^r1 does not run; distrl status \S+/runs/r1 shows how it ended"):
            Here().stop(gone, now=gone is reused)
        with pytest.raises(ConfigError, match=r"^r1 does not run; distrl status \S+/runs/r1 shows how it ended"):
            Here().scale(gone, 3, force=False)


@pytest.fixture
def record(workplace):
    """A job of this host that has left nothing."""
    told = {"run_id": "r1", "target": "here", "address": platform.node(), "run_dir": str(workplace / "gone")}
    return JobRecord.model_validate({**told, "store": None, "actors": 1, "submitted": 1.0, "handles": {}})


def test_a_job_that_has_not_begun_to_train_is_not_scaled(record):
    pid = os.getpid()
    begins = record.model_copy(update={"handles": {"pid": str(pid), "process": process_mark(pid)}})
    with pytest.raises(ConfigError, match="r1 has not begun to train; repeat the command in a few seconds"):
        Here().scale(begins, 3, force=False)


def test_only_jobs_of_this_host_are_asked_for(record):
    elsewhere = record.model_copy(update={"address": "otherbox"})
    for ask in (
        Here().state,
        lambda job: Here().stop(job, now=True),
        lambda job: Here().scale(job, 2, force=False),
        lambda job: Here().autoscale(job, 1, 2, off=False),
    ):
        with pytest.raises(ConfigError, match="r1 was submitted on host otherbox; repeat the command there"):
            ask(elsewhere)


@pytest.mark.parametrize("pid", ["-1", "x", str(2**31)])
def test_a_damaged_record_is_one_line(record, pid):
    damaged = record.model_copy(update={"handles": {"pid": pid}})
    with pytest.raises(ConfigError, match=f"the record of r1 is damaged: its process is '{pid}'"):
        Here().state(damaged)


def test_a_job_whose_directory_is_gone_has_no_log(record):
    assert Here().log(record, follow=False) is None
    assert Here().state(record).state == "gone"


KILLED = """
import os, signal, sys
from pathlib import Path
from distrl.apps.config.configuration import load
from distrl.apps.jobs import submission
from distrl.apps.jobs.here import Here
from distrl.apps.jobs.record import Job, OpenRecord

phase, write = sys.argv[1], OpenRecord.write

def die(*_):
    print("goes on", flush=True)
    sys.stdin.read()  # until the test has looked
    os.kill(os.getpid(), signal.SIGKILL)

def writes(record, **changes):
    if phase == ("last record" if changes.get("complete") else "first record"):
        die()
    write(record, **changes)
    if phase == "start":
        die()

OpenRecord.write = writes
if phase == "claim":
    Here.submit = die
sets = ["environment.id=nowhere:Missing"]
submission.submit(Job("r1", load("cartpole-impala", sets=sets), Path("runs/r1").resolve()), Here(), [].append, print)
"""


def known_job():
    ((record, damage),) = known_jobs(Path("runs"))
    assert damage is None
    return record


@pytest.mark.parametrize(
    "phase",
    ["start", *(pytest.param(phase, marks=pytest.mark.long) for phase in ("claim", "first record", "last record"))],
)
def test_a_submission_that_is_killed_leaves_what_every_verb_sees(workplace, capsys, phase):
    command, pipes = [sys.executable, "-c", KILLED, phase], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=workplace, **pipes) as submitting:
        assert submitting.stdout.readline() == b"goes on\n"
        goes_on = known_job()
        with pytest.raises(
            ConfigError, match=r"^the submission of r1 is under way; repeat the command when it has ended"
        ):
            withdraw_unfinished(goes_on, workplace / "runs" / "r1")
        if phase in ("claim", "first record"):
            told = "the submission of r1 is under way"
            assert (state_of(goes_on).state, state_of(goes_on).reason) == ("waiting", told)
            with pytest.raises(ConfigError, match=rf"^the run id r1 is taken: {told}$"):
                require_free("r1", workplace / "runs" / "r1")
    assert submitting.returncode == -signal.SIGKILL
    record = known_job()
    assert (record.run_id, record.complete) == ("r1", False)
    if phase == "last record":  # the training has begun, and is a job as any other
        wait_until(lambda: state_of(record).state in OVER, "the job has ended")
        assert (state_of(record).state, state_of(record).exit_code) == ("failed", 2)
        assert not withdraw_unfinished(record, workplace / "runs" / "r1")
        return
    wait_until(lambda: state_of(record).state == "gone", "its shell has ended, if there was one")
    assert state_of(record).reason.startswith(record.unfinished)
    assert main.main(["jobs"]) == 0
    assert "the submission of r1 has not finished; distrl stop removes what there is of it" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="the run id r1 is taken: the submission of r1 has not finished"):
        require_free("r1", workplace / "runs" / "r1")
    assert main.main(["stop", "r1"]) == 0
    assert capsys.readouterr().out == "its submission had not finished: what there was of it is removed\n"
    require_free("r1", workplace / "runs" / "r1")
    assert [*Path("runs").iterdir()] == []
