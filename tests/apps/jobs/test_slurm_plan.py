"""Plans for Slurm, with a sinfo that is scripted: what fits, what never can, and what cannot run there."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from distrl.apps.config.configuration import load
from distrl.apps.jobs.record import Job
from distrl.apps.jobs.slurm_commands import NEEDED
from distrl.apps.jobs.slurm_jobs import SlurmJobs
from distrl.errors import ConfigError
from distrl.roles.plan import RoleNeed

pytestmark = pytest.mark.row("S23")

SINFO = "main*|4|3/9/0/12|3|(null)|mix\nspare|8|0/16/0/16|2|(null)|idle\ngpu|16|0/16/0/16|1|gpu:a100:2|idle\n"


@pytest.fixture(autouse=True)
def slurm(tmp_path, monkeypatch):
    """Slurm's commands, of which sinfo knows three partitions."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for command in NEEDED:
        (tools / command).write_text(
            f"#!/bin/sh\ncat <<'END'\n{SINFO}END\n" if command == "sinfo" else "#!/bin/sh\nexit 1\n"
        )
        (tools / command).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    for name in ("DISTRL_REDIS_URL", "DISTRL_REDIS_PASSWORD", "DISTRL_REDIS_PASSWORD_FILE"):
        monkeypatch.delenv(name, raising=False)


def plan(*sets, run_dir=Path("/shared/r1"), **options):
    return SlurmJobs().plan(Job("r1", load("cartpole-impala", sets=sets), run_dir, **options))


def test_the_plan_names_partitions_roles_and_scripts():
    found = plan(
        "actors.count=3", "slurm.learner_options=[--partition=gpu]", "slurm.actor_options=['--partition=main,spare']"
    )
    assert found.roles == [RoleNeed("learner", 1, 1), RoleNeed("actor", 3, 1)]
    assert found.available == (
        "partition gpu, 16 CPU, 2 GPU on 1 node, 16 CPU idle; partition main,spare, 28 CPU on 5 nodes, 25 CPU idle"
    )
    assert found.unprotected == ["traffic with Redis is not encrypted (memory.tls.cert_file and memory.tls.key_file)"]
    assert [*found.files] == ["learner.sbatch", "actors.sbatch"]
    assert (
        found.files
        == plan(
            "actors.count=3",
            "slurm.learner_options=[--partition=gpu]",
            "slurm.actor_options=['--partition=main,spare']",
        ).files
    )
    assert plan("actors.count=3").available == "partition main, 12 CPU on 3 nodes, 9 CPU idle"


def test_the_evaluator_has_a_core_in_the_learners_job():
    found = plan("evaluation.every_env_steps=1000", "learner.threads=2")
    assert "#SBATCH --cpus-per-task=3\n" in found.files["learner.sbatch"]


def test_one_process_has_no_actors():
    found = plan("actors.count=0")
    assert [*found.files] == ["learner.sbatch"]
    assert found.unprotected == []


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


@pytest.mark.parametrize(
    ("sets", "short"),
    [
        (
            ["actors.count=12"],
            "it needs 13 CPU (learner 1, 12 actors of 1), partition main has 12, its largest node 4",
        ),
        (["learner.threads=5"], "it needs 7 CPU (learner 5, 2 actors of 1), partition main has 12, its largest node 4"),
        (
            ["actors.count=17", "slurm.actor_options=[--partition=spare]"],
            "it needs 17 CPU (17 actors of 1), partition spare has 16, its largest node 8",
        ),
        (
            ["learner.device=gpu"],
            "it needs 3 CPU (learner 1 and 1 GPU, 2 actors of 1), partition main has 12, its largest node 4, and at "
            "most 0 GPU on a node",
        ),
    ],
)
def test_what_can_never_fit_is_refused_with_numbers_and_submitted_with_wait(sets, short):
    with pytest.raises(
        ConfigError, match=f"^Slurm can never run all roles at once: {re.escape(short)}; lower --actors"
    ):
        plan(*sets)
    assert plan(*sets, wait=True).files


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["slurm.actor_options=[--partition=gpus]"], r"Slurm has no partition 'gpus': .*gpu"),
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


def test_a_cluster_without_a_default_partition(tmp_path):
    (tmp_path / "tools" / "sinfo").write_text("#!/bin/sh\necho 'a|4|0/4/0/4|1|(null)|idle'\n")
    with pytest.raises(ConfigError, match=r"Slurm has no default partition here; name one in slurm.learner_options"):
        plan()
    with pytest.raises(ConfigError, match="no default partition"):
        plan("slurm.learner_options=[--partition=a]")
