"""Plans for Slurm, with an sbatch that is scripted: when it would start a job, and what cannot run there."""

import json
import subprocess
from pathlib import Path

import pytest

from distrl.apps.config.configuration import load
from distrl.apps.jobs.record import Job
from distrl.apps.jobs.slurm_jobs import SlurmJobs
from distrl.errors import ConfigError
from distrl.roles.plan import RoleNeed

pytestmark = pytest.mark.row("S23")

START = "to start at 2026-11-25T14:05:00 using 1 processors on nodes n1 in partition main"


@pytest.fixture(autouse=True)
def slurm(tmp_path, monkeypatch):
    """Makes sbatch try a script by other lines of shell; it says when it would start it."""
    tools = tmp_path / "tools"
    tools.mkdir()

    def put(script):
        (tools / "sbatch").write_text(f"#!/bin/sh\n{script}\n")
        (tools / "sbatch").chmod(0o755)

    put(f'[ "$1" = --test-only ] && grep -q "^#SBATCH" && echo "sbatch: Job 7 {START}" >&2')
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    for name in ("DISTRL_REDIS_URL", "DISTRL_REDIS_PASSWORD", "DISTRL_REDIS_PASSWORD_FILE"):
        monkeypatch.delenv(name, raising=False)
    return put


def plan(*sets, run_dir=Path("/shared/r1"), **options):
    return SlurmJobs().plan(Job("r1", load("cartpole-impala", sets=sets), run_dir, **options))


def test_the_plan_names_roles_scripts_and_when_slurm_would_start_them():
    found = plan("actors.count=3")
    assert found.roles == [RoleNeed("learner", 1, 1), RoleNeed("actor", 3, 1)]
    assert found.available == f"learner {START}; actor {START}"
    assert found.unprotected == ["traffic with Redis is not encrypted (memory.tls.cert_file and memory.tls.key_file)"]
    assert [*found.files] == ["learner.sbatch", "actors.sbatch"]
    assert found.files == plan("actors.count=3").files


def test_the_evaluator_has_a_core_in_the_learners_job():
    found = plan("evaluation.every_env_steps=1000", "learner.threads=2")
    assert "#SBATCH --cpus-per-task=3\n" in found.files["learner.sbatch"]


def test_one_process_has_no_actors():
    found = plan("actors.count=0")
    assert ([*found.files], found.available) == (["learner.sbatch"], f"learner {START}")
    assert found.unprotected == []


def test_a_run_that_learns_from_data_has_no_actors_and_is_reached_from_other_hosts():
    found = plan("actors.count=0", "algorithm={name: dqn}", "data.sets=/shared/steps.csv")
    assert ([*found.files], found.available) == (["learner.sbatch"], f"learner {START}")
    assert "--dated --no-actors --set memory.listen=auto\n" in found.files["learner.sbatch"]


def test_variables_that_slurm_keeps_are_named(monkeypatch):
    monkeypatch.setenv("DISTRL_ENV_TOKEN", "t")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "k")
    monkeypatch.setenv("DISTRL_RUN_KEY", "k")  # which no job gets
    (line,) = plan("actors.count=0").unprotected
    assert line.endswith("for its administrators: AWS_SECRET_ACCESS_KEY, DISTRL_ENV_TOKEN")


@pytest.mark.parametrize("script", ["learner.sbatch", "actors.sbatch"])
def test_the_scripts_are_bash(script):
    lines = ["true # it's", 'export A="$(date)"']
    text = plan(f"slurm.set_up={json.dumps(lines)}").files[script]
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_slurm_would_never_start_is_refused_in_its_words_and_submitted_with_wait(slurm):
    slurm("""case "$*" in *--array=0-2*) echo 'sbatch: error: no gres
    allocation failure: no such node' >&2; exit 1;; esac""")
    with pytest.raises(ConfigError) as caught:
        plan("actors.count=3")
    assert str(caught.value) == (
        "sbatch: no gres; allocation failure: no such node; change slurm.actor_options, or add --wait to submit the "
        "job all the same"
    )
    assert plan("actors.count=3", wait=True).available == ""


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["launch.launcher=ray"], "launch.launcher: ray has no use with --on slurm"),
        (["memory.url=redis://localhost:6379"], "each node would look for Redis on itself"),
        (["slurm.set_up=['if true; then']"], r"slurm.set_up is not right for bash: .*syntax error"),
        (["slurm.set_up=['echo \"open']"], r"slurm.set_up is not right for bash: .*unexpected EOF"),
    ],
)
def test_what_cannot_run_there_is_refused(sets, message):
    with pytest.raises(ConfigError, match=message) as caught:
        plan(*sets)
    assert "\n" not in str(caught.value)


def test_places_that_sbatch_would_not_understand_are_refused():
    with pytest.raises(ConfigError, match="the path /shared/50% of it would confuse sbatch; choose a --run-dir"):
        plan(run_dir=Path("/shared/50% of it"))
    with pytest.raises(ConfigError, match="--address head has no use with --on slurm"):
        plan(address="head")


def test_a_password_is_not_sent_by_slurm(monkeypatch, tmp_path):
    url = "memory.url=redis://box:6379"
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", "hidden")
    with pytest.raises(ConfigError, match="no password is sent by it; set DISTRL_REDIS_PASSWORD_FILE"):
        plan(url)
    monkeypatch.delenv("DISTRL_REDIS_PASSWORD")
    file = tmp_path / "password"
    file.write_text("hidden\n")
    file.chmod(0o600)
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD_FILE", "password")
    files = plan(url).files
    assert all(f"export DISTRL_REDIS_PASSWORD_FILE={file}\n" in text for text in files.values())
    assert "memory.listen" not in files["learner.sbatch"]
    assert "hidden" not in "".join(files.values())
