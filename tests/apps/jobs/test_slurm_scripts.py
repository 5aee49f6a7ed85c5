"""The batch scripts: their text, and what bash does with them. Slurm's commands are scripted; Slurm itself runs them in
tests/cluster/test_slurm.py."""

import os
import pwd
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from distrl.apps.config.slurm import SlurmConfig
from distrl.apps.jobs.slurm_scripts import Scripts
from tests.waiting import wait_until

pytestmark = pytest.mark.row("S23")

CHILD = """#!/bin/bash
# Stands for the interpreter: it writes down how it was called, and ends as it is told.
echo "$@" >> {folder}/called
while [ -n "$IMPORTS" ]; do sleep 0.05; done
trap 'echo TERM >> {folder}/signals; exit 0' TERM
touch {folder}/ready
[ -z "$CODE" ] || exit "$CODE"
while :; do sleep 0.05; done
"""


def scripts(folder, **changes):
    return Scripts(
        **{
            "run_id": "r1",
            "run_dir": folder / "r1",
            "folder": folder,
            "slurm": SlurmConfig(),
            "learner_cpus": 3,
            **changes,
        }
    )


def options(script):
    return re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE)


def test_the_learner_is_one_task_with_its_cores_that_is_requeued(tmp_path):
    script = scripts(
        tmp_path, slurm=SlurmConfig(learner_options=["--partition=gpu", "--time=24:00:00"]), gpus=2
    ).learner
    assert script.startswith("#!/bin/bash\n#SBATCH ")
    assert options(script) == [
        "--job-name=r1",
        f"--output={tmp_path}/r1/logs/job.log",
        "--open-mode=append",
        "--requeue",
        "--signal=B:USR1@90",
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=3",
        "--partition=gpu",
        "--time=24:00:00",
        "--gres=gpu:2",
    ]
    assert (
        f"run {sys.executable} -P -m distrl train {tmp_path}/r1/job.yaml --run-dir {tmp_path}/r1 --run-id r1 "
        "--resume auto --dated --no-actors --set memory.listen=auto\n"
    ) in script


@pytest.mark.parametrize("option", ["--gres=gpu:a100:2", "--gpus=2", "--gpus-per-node=2"])
def test_gpus_are_the_user_s_where_options_name_some(tmp_path, option):
    script = scripts(tmp_path, slurm=SlurmConfig(learner_options=[option]), gpus=1).learner
    assert [text for text in options(script) if text.startswith("--g")] == [option]


def test_an_actor_is_one_task_of_an_array_with_one_core(tmp_path):
    script = scripts(tmp_path, slurm=SlurmConfig(actor_options=["--partition=spare"], python="python")).actors
    assert {"--job-name=r1:actors", f"--output={tmp_path}/r1/logs/actors-%a.log", "--cpus-per-task=1"} < {
        *options(script)
    }
    assert options(script)[-1] == "--partition=spare"
    assert f"run python -P -m distrl actors --run-dir {tmp_path}/r1 --wait --count 1 --dated\n" in script


def test_a_run_of_one_process_and_one_with_a_redis_of_yours(tmp_path):
    assert "--no-actors" not in scripts(tmp_path, alone=True).learner
    named = scripts(tmp_path, listen=False, variables={"DISTRL_REDIS_PASSWORD_FILE": "/a b/password"})
    assert "memory.listen" not in named.learner
    for script in (named.learner, named.actors):
        assert "export DISTRL_REDIS_PASSWORD_FILE='/a b/password'\n" in script


@pytest.fixture
def start(tmp_path):
    """Runs a script by bash, with Slurm's commands and the interpreter replaced."""
    processes = []
    folder = tmp_path / "it's here"
    (folder / "r1" / "logs").mkdir(parents=True)
    tools = tmp_path / "tools"
    tools.mkdir()
    for command in ("scancel", "scontrol", "squeue"):
        (tools / command).write_text(f'#!/bin/bash\necho "{command} $@" >> {tmp_path}/asked\neval "$ANSWER"\n')
    (tools / "child").write_text(CHILD.format(folder=tmp_path))
    for file in tools.iterdir():
        file.chmod(0o755)

    def started(role, *words, set_up=(), **variables):
        section = SlurmConfig(python=str(tools / "child"), set_up=set_up)
        script = tmp_path / "script"
        script.write_text(getattr(scripts(folder, slurm=section), role))
        told = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", **variables}
        with (tmp_path / "errors").open("wb") as errors:
            command = ["bash", str(script), *words]
            processes.append(subprocess.Popen(command, env=told, stderr=errors, start_new_session=True))
        return processes[-1]

    yield started
    for process in processes:
        send_all(process, signal.SIGKILL)
        process.wait()


def send_all(process, number):
    """Send a signal to all processes of the job, as Slurm does.

    The script gets it first: the child ends at once, while a training takes its time.
    """
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        for each in [parent, *parent.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)


def after(tmp_path):
    """Exit code that is written down, what Slurm was asked for, and the signals of the child."""
    files = [tmp_path / "it's here/r1/logs/job.exit", tmp_path / "asked", tmp_path / "signals"]
    return [file.read_text().split("\n")[:-1] if file.exists() else [] for file in files]


CANCELLED = f"scancel --quiet --user={pwd.getpwuid(os.getuid()).pw_name} --name=r1:actors"


@pytest.mark.parametrize("code", ["0", "4"])
def test_the_end_of_the_training_ends_the_actors_and_is_written_down(start, tmp_path, code):
    process = start("learner", CODE=code)
    assert process.wait(30) == int(code)
    assert after(tmp_path) == [[code], [CANCELLED], []]
    assert Path(tmp_path / "called").read_text().startswith("-P -m distrl train ")


def test_at_the_time_limit_the_learner_saves_and_is_requeued(start, tmp_path):
    process = start("learner")
    wait_until((tmp_path / "ready").exists, "it trains")
    process.send_signal(signal.SIGUSR1)
    assert process.wait(30) == 0
    assert after(tmp_path) == [[], ["scontrol requeue 7"], ["TERM"]]


def test_a_time_limit_at_which_slurm_refuses_to_requeue_is_a_failure_with_its_reason(start, tmp_path):
    process = start("learner", ANSWER="exit 1")
    wait_until((tmp_path / "ready").exists, "it trains")
    process.send_signal(signal.SIGUSR1)
    assert process.wait(30) == 1
    assert "distrl: error: at the time limit Slurm does not requeue the job" in (tmp_path / "errors").read_text()
    assert after(tmp_path) == [["1"], ["scontrol requeue 7", CANCELLED], ["TERM"]]


def test_a_time_limit_before_the_training_has_begun_does_not_requeue_for_ever(start, tmp_path):
    process = start("learner", set_up=[f"touch {tmp_path}/ready", "sleep 0.5"])
    wait_until((tmp_path / "ready").exists, "it is being set up")
    process.send_signal(signal.SIGUSR1)
    assert process.wait(30) == 1
    assert "distrl: error: the time limit is too short: the training has not begun" in (tmp_path / "errors").read_text()
    assert after(tmp_path) == [["1"], [CANCELLED], []]


def test_distrl_stop_ends_a_run_by_a_signal(start, tmp_path):
    process = start("learner")
    wait_until((tmp_path / "ready").exists, "it trains")
    process.send_signal(signal.SIGUSR2)
    assert process.wait(30) == 0
    assert after(tmp_path) == [["0"], [CANCELLED], ["TERM"]]


@pytest.mark.parametrize(("restarts", "goes_on"), [("2", True), ("1", False)])
def test_actors_wait_for_a_learner_that_slurm_restarts_and_end_with_a_cancelled_one(start, tmp_path, restarts, goes_on):
    """Slurm sends SIGTERM to all processes of the job, so that the script sends none."""
    process = start("learner", ANSWER=f"echo 'JobId=7 Restarts={restarts} x'", SLURM_RESTART_COUNT="1")
    wait_until((tmp_path / "ready").exists, "it trains")
    send_all(process, signal.SIGTERM)
    assert process.wait(30) == 0
    told, asked, signals = after(tmp_path)
    assert (told, signals) == ([], ["TERM"])
    assert asked == ["scontrol --oneliner show job 7", *([] if goes_on else [CANCELLED])]


def test_set_up_that_fails_ends_the_job_with_2_and_names_the_line(start, tmp_path):
    process = start("learner", set_up=["true", 'test "$HOME" = "$(echo `false`)"'])
    assert process.wait(30) == 2
    assert 'slurm.set_up has failed: test "$HOME" = "$(echo `false`)"\n' in (tmp_path / "errors").read_text()
    assert after(tmp_path) == [["2"], [CANCELLED], []]
    assert not (tmp_path / "called").exists()


def test_set_up_changes_the_environment_of_the_training(start, tmp_path):
    assert start("learner", set_up=["export CODE=5"]).wait(30) == 5


def test_actors_end_with_their_launch_and_are_requeued_at_the_time_limit(start, tmp_path):
    process = start("actors", "7", SLURM_ARRAY_JOB_ID="8", SLURM_ARRAY_TASK_ID="3")
    wait_until((tmp_path / "ready").exists, "it acts")
    process.send_signal(signal.SIGUSR1)
    assert process.wait(30) == 0
    assert after(tmp_path) == [[], ["scontrol requeue 8_3"], ["TERM"]]


@pytest.mark.parametrize("is_time_limit", [True, False])
def test_actors_that_are_ended_before_they_have_begun_have_not_failed(start, tmp_path, is_time_limit):
    process = start("actors", "7", IMPORTS="yes")
    wait_until((tmp_path / "called").exists, "the actors are started")
    if is_time_limit:
        process.send_signal(signal.SIGUSR1)
    else:
        send_all(process, signal.SIGTERM)
    assert process.wait(30) == 0


@pytest.mark.parametrize("answer", ["", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"])
def test_actors_of_a_learner_that_was_killed_without_a_word_end(start, tmp_path, monkeypatch, answer):
    monkeypatch.setattr("distrl.apps.jobs.slurm_scripts.LOOK_EVERY_S", 0.1)
    process = start("actors", "7", ANSWER=answer)
    assert process.wait(30) == 0
    assert after(tmp_path)[1][0] == "squeue --noheader --jobs=7 --format=%T"
    assert after(tmp_path)[2] in (["TERM"], [])  # it may not have begun


@pytest.mark.parametrize("answer", ["echo PENDING", "echo 'Unable to contact slurm controller' >&2; exit 1"])
def test_actors_go_on_while_the_learner_waits_or_slurm_is_away(start, tmp_path, monkeypatch, answer):
    monkeypatch.setattr("distrl.apps.jobs.slurm_scripts.LOOK_EVERY_S", 0.1)
    process = start("actors", "7", ANSWER=answer)
    wait_until(lambda: len(after(tmp_path)[1]) > 3 and (tmp_path / "ready").exists(), "it has looked some times")
    assert process.poll() is None
    send_all(process, signal.SIGTERM)
    assert process.wait(30) == 0
