"""Slurm's answers as they are parsed. tests/cluster/test_slurm.py gets them from Slurm itself."""

import stat

import pytest

from distrl.apps.jobs import slurm_commands
from distrl.apps.jobs.slurm_commands import ActorTask, SlurmJob, parsed_tasks
from distrl.errors import ConfigError, DistrlError

pytestmark = pytest.mark.row("S23")


def test_tasks_are_sorted_and_a_job_without_tasks_is_none():
    assert parsed_tasks("12|3|RUNNING|None\n9|0|PENDING|Resources\n13|N/A|RUNNING|None\n") == [
        ActorTask(9, 0, "PENDING", "Resources"),
        ActorTask(12, 3, "RUNNING", "None"),
    ]
    assert ActorTask(12, 3, "RUNNING", "None").name == "12_3"


@pytest.fixture
def answer(tmp_path, monkeypatch):
    """Makes a command print something and end."""

    def put(command, script):
        file = tmp_path / command
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return put


def test_ctrl_c_does_not_end_a_command(answer):
    """It is for all processes of a terminal's session, of which the command is none: it leads one of its own."""
    answer("scancel", "set -- $(cat /proc/$$/stat); test $6 = $1 || { echo same session >&2; exit 1; }")
    slurm_commands.cancel(["12"])


@pytest.mark.parametrize(
    ("script", "job"),
    [
        ("echo 'PENDING|2026-11-25T14:05:00|Resources'", SlurmJob("PENDING", "Resources", "2026-11-25 14:05:00")),
        ("echo 'PENDING|N/A|(null)|x'", SlurmJob("PENDING", "(null)|x", "")),
        ("echo 'RUNNING|2026-11-25T14:05:00|None'", SlurmJob("RUNNING", "", "2026-11-25 14:05:00")),
        (":", None),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", None),
    ],
)
def test_a_job_is_read_from_squeue(answer, script, job):
    answer("squeue", script)
    assert slurm_commands.job_of("12") == job


def test_a_controller_that_is_away_is_no_job_that_is_gone(answer):
    answer("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(DistrlError, match=r"^squeue: Unable to contact slurm controller$"):
        slurm_commands.job_of("12")


def test_errors_of_several_lines_are_one_line(answer, tmp_path):
    answer(
        "sbatch", "echo 'sbatch: error: invalid partition specified: x\nsbatch: error: Batch job failed' >&2; exit 1"
    )
    with pytest.raises(ConfigError, match=r"^sbatch: invalid partition specified: x; Batch job failed$"):
        slurm_commands.submit(tmp_path / "script")
    answer("sbatch", "exit 7")
    with pytest.raises(ConfigError, match=r"^sbatch: it has ended with 7$"):
        slurm_commands.submit(tmp_path / "script")


def test_a_command_that_hangs_is_given_up(answer, monkeypatch):
    monkeypatch.setattr(slurm_commands, "QUERY_LIMIT_S", 0.2)
    answer("sbatch", "exec sleep 60")
    with pytest.raises(ConfigError, match=r"^sbatch does not answer within 0.2 s; is slurmctld up\?$"):
        slurm_commands.start_of("learner", "#!/bin/sh")


def test_neither_secrets_nor_the_users_own_defaults_come_to_the_commands(answer, tmp_path, monkeypatch):
    for name in ("DISTRL_REDIS_PASSWORD", "DISTRL_RUN_KEY", "SBATCH_PARTITION", "SQUEUE_FORMAT"):
        monkeypatch.setenv(name, "hidden")
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD_FILE", "/shared/password")
    answer("sbatch", f"env > {tmp_path}/env; echo '12;cluster'")
    assert slurm_commands.submit(tmp_path / "script", "11", options=["--array=1,4"]) == "12"
    seen = (tmp_path / "env").read_text()
    assert "hidden" not in seen
    assert "/shared/password" in seen


def test_without_slurm_there_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"^sbatch is not on PATH: --on slurm needs Slurm's commands; submit from"):
        slurm_commands.start_of("learner", "#!/bin/sh")
