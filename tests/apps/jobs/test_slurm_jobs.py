"""States and numbers of actors of Slurm jobs by what Slurm's commands answer, which are scripted here.

tests/cluster/test_slurm.py has them from Slurm itself.
"""

import time
from pathlib import Path

import pytest

from distrl.apps.jobs.record import JobRecord
from distrl.apps.jobs.slurm_jobs import SlurmJobs
from distrl.apps.jobs.target import JobState
from distrl.errors import ConfigError, DistrlError
from tests.run_folders import make_run

pytestmark = pytest.mark.row("S23")

AWAY = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Makes squeue answer; returns what the other commands were called with."""
    tools = tmp_path / "tools"
    tools.mkdir()
    called = tmp_path / "called"

    def put(queue):
        for command in ("sbatch", "squeue", "scancel", "scontrol"):
            text = queue if command == "squeue" else f'echo "{command} $*" >> {called}; echo 13'
            (tools / command).write_text(f"#!/bin/sh\n{text}\n")
            (tools / command).chmod(0o755)
        return lambda: called.read_text().splitlines() if called.exists() else []

    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    return put


@pytest.fixture
def record(tmp_path):
    run_dir = tmp_path / "r1"
    (run_dir / "logs").mkdir(parents=True)
    (run_dir / "job.yaml").write_text("actors: {max_count: 4}\n")
    told = {"run_id": "r1", "target": "slurm", "address": None, "run_dir": str(run_dir), "store": None}
    return JobRecord(**told, actors=2, submitted=time.time(), handles={"learner": "12"})


@pytest.mark.parametrize(
    ("answer", "state", "reason"),
    [
        ("PENDING|2026-11-25T14:05:00|Resources", "waiting", "Resources, expected to start at 2026-11-25 14:05:00"),
        ("PENDING|N/A|Priority", "waiting", "Priority"),
        (
            "PENDING|N/A|PartitionTimeLimit",
            "waiting",
            "PartitionTimeLimit; if it stays so: distrl stop r1, change slurm.learner_options, and submit it again",
        ),
        ("SUSPENDED|2026-11-25T14:05:00|None", "waiting", "suspended"),
        ("COMPLETING|2026-11-25T14:05:00|None", "stopping", ""),
        ("OUT_OF_MEMORY|N/A|None", "gone", "Slurm has ended it: out of memory; it has left no exit code"),
        ("CANCELLED|N/A|None", "gone", "Slurm has ended it: cancelled; it has left no exit code"),
    ],
)
def test_the_state_is_slurm_s_until_there_is_an_exit_code(slurm, record, answer, state, reason):
    slurm(f"echo '{answer}'")
    found = SlurmJobs().state(record)
    assert (found.state, found.reason, found.exit_code) == (state, reason, None)


def test_a_job_that_slurm_has_forgotten_is_gone_unless_it_has_left_its_exit_code(slurm, record, tmp_path):
    slurm("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert SlurmJobs().state(record).reason == "Slurm does not know it any more; it has left no exit code"
    (tmp_path / "r1/logs/job.log").write_text("distrl: error: the environment is missing\n")
    (tmp_path / "r1/logs/job.exit").write_text("2\n")
    found = SlurmJobs().state(record)
    assert (found.state, found.reason, found.exit_code) == ("failed", "the environment is missing", 2)
    (tmp_path / "r1/logs/job.exit").write_text("130\n")
    found = SlurmJobs().state(record)
    assert (found.state, found.reason) == ("interrupted", "it was stopped before it began to train")


@pytest.mark.parametrize(("reason", "state"), [("mean_return", "solved"), ("updates", "ended"), ("SIGTERM", "gone")])
def test_a_run_that_had_reached_its_end_before_slurm_ended_its_script_has_ended(slurm, record, reason, state):
    slurm("echo 'CANCELLED|N/A|None'")
    (Path(record.run_dir) / "logs").rmdir()
    make_run(Path(record.run_dir), summary={"stop_reason": reason, "exit_code": 0})
    assert SlurmJobs().state(record).state == state


def test_a_learner_that_waits_again_says_so(slurm, record, tmp_path):
    slurm("echo 'PENDING|N/A|BeginTime'")
    (tmp_path / "r1/run.json").write_text('{"run_id": "r1", "redis_url": null, "pid": 0}')
    assert SlurmJobs().state(record).reason == "to go on: BeginTime"


def test_a_controller_that_is_away_leaves_the_state_open(slurm, record, tmp_path):
    slurm(AWAY)
    with pytest.raises(DistrlError, match="squeue: Unable to contact slurm controller"):
        SlurmJobs().state(record)
    (tmp_path / "r1/logs/job.log").write_text("2026-11-25 10:00:00 begins\n")
    log = SlurmJobs().log(record, follow=True)
    assert next(log).text == "begins"
    (tmp_path / "r1/logs/job.exit").write_text("0\n")
    assert [*log] == []


@pytest.mark.parametrize("number", ["", "x", "-1"])
def test_a_damaged_record_is_one_line(record, number):
    damaged = record.model_copy(update={"handles": {"learner": number}})
    with pytest.raises(ConfigError, match=f"the record of r1 is damaged: its learner's job is '{number}'"):
        SlurmJobs().state(damaged)


TASKS = "echo '13|0|RUNNING|None\n13|1|RUNNING|None\n13|2|COMPLETING|None\n14|3|PENDING|Resources'"


def queue(tasks=TASKS):
    return f'case "$*" in *--jobs=12*) echo "RUNNING|N/A|None" ;; *) {tasks} ;; esac'


@pytest.mark.parametrize(
    ("actors", "asked"),
    [
        (3, []),
        (4, ["sbatch --parsable --array=4 --dependency=after:12 {run_dir}/actors.sbatch 12"]),
        (2, ["scancel --quiet 14_3"]),  # what waits, first
        (1, ["scancel --quiet 13_1 14_3"]),  # and then the newest
    ],
)
def test_tasks_are_added_and_cancelled(slurm, record, actors, asked):
    called = slurm(queue())
    SlurmJobs().scale(record, actors, force=False)
    assert called() == [line.format(run_dir=record.run_dir) for line in asked]


def test_more_than_the_run_may_have_needs_force(slurm, record):
    called = slurm(queue())
    with pytest.raises(ConfigError, match=r"actors: 9 is more than this run may have, 4 \(actors.max_count\)"):
        SlurmJobs().scale(record, 9, force=False)
    assert called() == []
    SlurmJobs().scale(record, 9, force=True)
    (line,) = called()
    assert "--array=4,5,6,7,8,9 " in line


def test_one_process_has_no_actors(slurm, record, tmp_path):
    slurm(queue())
    (tmp_path / "r1" / "job.yaml").write_text("actors: {count: 0}\n")
    with pytest.raises(ConfigError, match="r1 has no actors"):
        SlurmJobs().scale(record, 2, force=False)


def test_a_job_that_runs_says_why_actors_wait_and_is_asked_for_once_in_some_seconds(slurm, record, tmp_path):
    slurm(f"echo asked >> {tmp_path}/asked; {queue()}")
    jobs = SlurmJobs()
    told = "1 of 3 actors wait: Resources; distrl scale 2 r1 gives them up"
    assert [jobs.state(record) for _ in range(5)] == [JobState("running", told)] * 5
    assert (tmp_path / "asked").read_text() == "asked\n" * 2
    slurm(queue("true"))
    assert SlurmJobs().state(record) == JobState("running")


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        ("13|0|PENDING|Dependency\n13|1|PENDING|None", ""),  # Slurm is about to look at them
        ("13|0|PENDING|Resources\n13|1|PENDING|Priority", "2 of 2 actors wait: Priority, Resources"),  # not to 0
    ],
)
def test_actors_that_all_wait_are_not_given_up(slurm, record, tasks, told):
    slurm(queue(f"echo '{tasks}'"))
    assert SlurmJobs().state(record) == JobState("running", told)


def test_what_a_killed_learner_has_left_is_cancelled_by_stop(slurm, record):
    called = slurm('case "$*" in *--jobs=12*) echo "FAILED|N/A|None" ;; *) echo 13 ;; esac')
    with pytest.raises(ConfigError, match="r1 does not run"):
        SlurmJobs().stop(record, now=False)
    assert called() == ["scancel --quiet 13"]


def test_a_run_that_has_not_begun_is_stopped_by_a_signal(slurm, record):
    called = slurm(queue())
    SlurmJobs().stop(record, now=False)
    assert called() == ["scancel --quiet --state=PENDING 12", "scancel --quiet --signal=USR2 --batch 12"]


def test_a_submission_that_was_killed_is_found_by_its_name(slurm, record):
    """Its learner was on hold, and its number had not been written down."""
    half = record.model_copy(update={"handles": {"name": "r1"}, "complete": False})
    called = slurm('case "$*" in *--format=%F) echo 12;; *) echo "PENDING|N/A|JobHeldUser";; esac')
    assert SlurmJobs().state(half) == JobState("waiting", "JobHeldUser")
    SlurmJobs().withdraw(half)
    assert called() == ["scancel --quiet 12"]
    slurm("true")  # sbatch had not been called
    assert SlurmJobs().state(half).state == "gone"
    SlurmJobs().withdraw(half)
