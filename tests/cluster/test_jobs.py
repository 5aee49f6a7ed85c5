"""The life of a job, by the same commands on every target: submit, logs -f, scale, stop, and the logs after its end.

A target takes part with a fixture NAME_bed, which yields a `Bed`, and its name in `TARGETS`.
"""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from distrl.runs.summary import Summary
from tests.faults.arguments import environment, sets
from tests.faults.ray_cluster import ClusterWithJobs
from tests.faults.slurm import SlurmCluster
from tests.faults.training import alive
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.row("S17")]

TARGETS = ("here", "ray", "slurm")
RUN_ID = "job"
ENDLESS = [  # an environment that sleeps: a job of many roles takes little of the machine, and nothing is ever solved
    *("--env", "benchmarks.sleeping:Sleeping"),
    *sets("environment.kwargs={step_s: 0.01}", "actors.environments=1", "actors.unroll_length_steps=8"),
    *sets("learner.batch_size=1", "learner.device=cpu"),
]
SLOW = [*ENDLESS, *sets("actors.max_count=6")]


SLEEPING = """
import signal
import gymnasium

class Sleeping(gymnasium.Env):
    def __init__(self):
        open("sleeps", "w").close()
        signal.pause()
"""


@dataclass
class Bed:
    """Where the jobs of one target run.

    Attributes:
        on: Name of the target.
        folder: Current directory of all commands.
        options: Further options of `distrl submit`, such as --address.
        variables: Environment variables of all commands.
        sees_run: Whether this host reaches the run's Redis and processes, so that `distrl status` shows its roles.
    """

    on: str
    folder: Path
    options: Sequence[str] = ()
    variables: dict[str, str] = field(default_factory=dict)
    sees_run: bool = True

    def start(self, *arguments: str, output: Path) -> subprocess.Popen[bytes]:
        """Start a command with its output in a file, in a session of its own."""
        with output.open("wb") as file:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "distrl", *arguments],
                cwd=self.folder,
                env=environment(**self.variables),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "distrl", *arguments],
            cwd=self.folder,
            env=environment(**self.variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def submit(self, *arguments: str) -> dict[str, Any]:
        """Submit a job, and return the object that the command prints."""
        done = self.run("submit", "--on", self.on, *self.options, "--yes", "--json", "--run-id", RUN_ID, *arguments)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    @property
    def job(self) -> dict[str, Any]:
        """The job as `distrl jobs` has it."""
        done = self.run("jobs", "--json")
        assert done.returncode == 0, done.stderr
        (job,) = json.loads(done.stdout)
        return dict(job)


@pytest.fixture
def here_bed(tmp_path: Path) -> Bed:
    return Bed("here", tmp_path)


@pytest.fixture
def ray_bed(tmp_path: Path, free_port: int) -> Iterator[Bed]:
    """A cluster of one node with a token, which also has this machine's disk."""
    pytest.importorskip("aiohttp")
    cluster = ClusterWithJobs(free_port, free_port + 1, tmp_path / "ray.log")
    yield Bed("ray", tmp_path, ["--address", cluster.jobs], cluster.token)
    cluster.end()


@pytest.fixture
def slurm_bed(slurm_cluster: SlurmCluster, tmp_path: Path) -> Bed:
    """A cluster of three nodes."""
    return Bed("slurm", tmp_path, variables=slurm_cluster.variables)


@pytest.fixture(params=TARGETS)
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    """One target's; what is left of the job is killed."""
    bed: Bed = request.getfixturevalue(f"{request.param}_bed")
    yield bed
    bed.run("stop", RUN_ID, "--now")


@pytest.fixture
def follow(bed: Bed, tmp_path: Path) -> Iterator[Callable[..., "Followed"]]:
    started = []

    def start(*arguments: str) -> Followed:
        output = tmp_path / f"followed-{len(started)}.out"
        started.append(Followed(bed.start(*arguments, output=output), output))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)
        each.process.wait()


@dataclass
class Followed:
    """A command that follows a log."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def told(self) -> str:
        return self.output.read_text()

    def wait_for(self, pattern: str) -> None:
        """Wait for a line that comes after all that are there now."""
        begin = len(self.told)
        wait_until(lambda: re.search(pattern, self.told[begin:]) or self.process.poll() is not None, pattern)
        assert re.search(pattern, self.told[begin:]), self.told[-3000:]


def test_the_life_of_a_job(bed, follow):
    told = bed.submit(*SLOW, "--actors", "2")
    assert (told["run_id"], told["target"], told["actors"]) == (RUN_ID, bed.on, 2)
    taken = bed.run("submit", "--on", bed.on, *bed.options, "--yes", "--run-id", RUN_ID, *SLOW)
    assert (taken.returncode, taken.stderr.count("\n")) == (2, 1)
    assert f"the run id {RUN_ID} is taken" in taken.stderr

    log = follow("logs", "-f", RUN_ID)
    log.wait_for(r"job +.* updates [1-9].* actors 2/")
    assert bed.job["state"] == "running"
    for actors in (6, 2):
        scaled = bed.run("scale", str(actors), RUN_ID)
        assert (scaled.returncode, scaled.stderr) == (0, "")
        log.wait_for(rf" actors {actors}/")
    assert re.search(r" actor \d+ ", log.told)
    status = bed.run("status", RUN_ID)
    assert status.returncode == 0, status.stderr
    assert status.stdout.startswith(f"{RUN_ID} on {bed.on} runs\n")
    assert not bed.sees_run or "learner" in status.stdout

    stopped = bed.run("stop", RUN_ID)
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert log.process.wait(timeout=120) == 0
    assert "stopped as asked (exit code 0)" in log.told
    job = bed.job
    # Ray knows the exit code alone.
    assert (job["state"], job["exit_code"]) == ("ended" if bed.on == "ray" else "stopped", 0)

    after = bed.run("logs", RUN_ID)
    assert (after.returncode, after.stderr) == (0, "")
    assert re.search(r"job +  unrolls  .* · exact$", after.stdout, re.MULTILINE)
    assert {"learner", "job"} <= {line[20:].partition("  ")[0] for line in after.stdout.splitlines()}
    assert re.search(r"^.{20}actor \d+ ", after.stdout, re.MULTILINE)
    learner = bed.run("logs", RUN_ID, "--role", "learner", "--since", "1h").stdout.splitlines()
    assert {line[20:].partition("  ")[0] for line in learner} == {"learner"}
    assert bed.run("logs", RUN_ID, "--role", "actor:1").stdout.count("\n") < after.stdout.count("\n")
    for late in (["scale", "3"], ["stop"]):
        done = bed.run(*late, RUN_ID)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.row("S16")
def test_a_job_s_actors_follow_the_number_that_its_run_wants(bed, follow):
    bed.submit(*SLOW, "--actors", "2")
    log = follow("logs", "-f", RUN_ID)
    log.wait_for(r"job +.* updates [1-9].* actors 2/")
    watched = follow("autoscale", RUN_ID, "--min", "4", "--max", "4")
    log.wait_for(r" actors 4/")
    scaled = bed.run("scale", "2", RUN_ID)
    assert (scaled.returncode, scaled.stderr) == (0, "")
    log.wait_for(r" actors 2/")
    assert watched.process.wait(timeout=60) == 0, watched.told
    assert watched.told.startswith("autoscaling requested; ")
    assert bed.run("stop", RUN_ID).returncode == 0
    assert log.process.wait(timeout=120) == 0


def test_a_job_is_followed_to_its_end_and_its_exit_code_is_that_of_the_run(bed, follow):
    rest = ["--on", bed.on, *bed.options, "--yes"]
    done = follow("submit", *rest, "--run-id", RUN_ID, *SLOW, "--set", "stop.updates=5")
    assert done.process.wait(timeout=300) == 0, done.told
    assert "the budget of updates is spent (exit code 0)" in done.told
    failed = follow("submit", *rest, "--run-id", "failed", "--env", "benchmarks.sleeping:Missing")
    assert failed.process.wait(timeout=300) == 2, failed.told
    assert "distrl: error: " in failed.told.splitlines()[-1]


def test_ctrl_c_leaves_the_job_and_now_kills_it(bed, follow):
    followed = follow("submit", "--on", bed.on, *bed.options, "--yes", "--run-id", RUN_ID, *SLOW, "--actors", "2")
    followed.wait_for(r" updates [1-9]")
    os.killpg(followed.process.pid, signal.SIGINT)
    assert followed.process.wait(timeout=60) == 130
    assert f"detached: {RUN_ID} goes on" in followed.told.splitlines()[-1]
    assert bed.job["state"] == "running"
    follow("logs", "-f", RUN_ID).wait_for(r" updates [1-9]")
    assert bed.run("stop", RUN_ID, "--now").stdout == "killed\n"
    wait_until(lambda: bed.job["state"] in ("gone", "failed"), "the job is gone")


def test_a_job_on_kubernetes_is_the_same_text_at_every_call_and_without_secrets(kube_api, tmp_path):
    """A dry run only: there is no kubelet. test_kubernetes_jobs.py has the life of such a job."""
    bed = Bed("kubernetes", tmp_path)
    secret = "environment.kwargs={step_s: 0.01, api_key: s3cret}"
    values = "kubernetes.values={learner: {env: [{name: STORE_PASSWORD, value: s3cret}]}}"
    command = ["submit", "--on", "kubernetes", "--dry-run", *SLOW, *sets(secret, values)]
    first, second = bed.run(*command), bed.run(*command)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert "s3cret" not in first.stdout + first.stderr
    assert re.findall(r"^# ---- (.*)$", first.stdout, re.MULTILINE) == ["job.yaml", "values.yaml", "manifests.yaml"]
    assert {"kind: Job", "kind: Deployment", "kind: StatefulSet"} <= {*first.stdout.splitlines()}
    assert "kind: Secret" not in first.stdout
    assert "run benchmarks-sleeping-sleeping-impala-xxxxxx on kubernetes" in first.stderr
    assert {method for method, _ in kube_api.requests} == {"GET"}
    assert not (tmp_path / "runs").exists()


def test_a_job_of_one_process_is_stopped_in_order_too(here_bed, tmp_path):
    """Without Redis: a signal ends it."""
    here_bed.submit(*ENDLESS, "--actors", "0")
    log = tmp_path / "runs" / RUN_ID / "logs" / "job.log"
    wait_until(lambda: re.search(r" updates [1-9]", log.read_text()), "it has begun to learn")
    assert here_bed.run("stop", RUN_ID).stdout == "stop requested\n"
    wait_until(lambda: here_bed.job["state"] == "interrupted", "it has ended")
    assert here_bed.job["exit_code"] == 0
    assert any((tmp_path / "runs" / RUN_ID / "checkpoints").glob("ckpt-*"))


@pytest.mark.parametrize(("arguments", "state", "code"), [([], "interrupted", 130), (["--now"], "gone", None)])
def test_a_job_that_has_not_begun_is_stopped_and_leaves_no_process(here_bed, tmp_path, arguments, state, code):
    (tmp_path / "sleepers.py").write_text(SLEEPING)
    told = here_bed.submit("--env", "sleepers:Sleeping")
    wait_until((tmp_path / "sleeps").exists, "the environment is made")
    assert here_bed.run("stop", RUN_ID, *arguments).returncode == 0
    wait_until(lambda: here_bed.job["state"] == state, "it has ended")
    assert here_bed.job["exit_code"] == code
    assert arguments or here_bed.job["reason"] == "it was stopped before it began to train"
    assert not alive(int(told["handles"]["pid"]))


def test_a_job_outlives_its_terminal(here_bed, tmp_path):
    """A terminal is asked, shows the log with coloured roles, and closes."""
    master, slave = pty.openpty()

    def own_terminal():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # pytest itself may run under nohup
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    command = [sys.executable, "-P", "-m", "distrl", "submit", "--on", "here", "--run-id", RUN_ID, *SLOW]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(TERM="xterm"),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=own_terminal,
    )
    os.close(slave)
    shown = b""

    def read_until(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            shown += os.read(master, 65536)  # an end of the file would raise

    try:
        read_until(b"Submit? [Y/n]")
        os.write(master, b"\n")
        read_until(b"\x1b[32mlearner  \x1b[0m ")
        os.close(master)
        assert process.wait(timeout=60) == 130
        assert here_bed.job["state"] == "running"
        log = tmp_path / "runs" / RUN_ID / "logs" / "job.log"
        begin = log.stat().st_size
        wait_until(lambda: " updates " in log.read_text()[begin:], "it goes on")
    finally:
        process.kill()
        process.wait()
        here_bed.run("stop", RUN_ID, "--now")


SWEEP = """\
vary: {environment.id: ["benchmarks.sleeping:Sleeping", "benchmarks.sleeping:Missing"]}
seeds: 1..2
set:
  environment.kwargs: {step_s: 0.01}
  actors.count: 1
  actors.environments: 1
  actors.unroll_length_steps: 8
  learner.batch_size: 1
  learner.device: cpu
  stop.updates: 20
"""


@pytest.mark.timeout(600)
def test_a_sweep_of_jobs_outlives_its_command_and_one_that_fails_ends_no_other(bed, follow):
    (bed.folder / "envs.yaml").write_text(SWEEP)
    where = ["--on", bed.on, *bed.options, "--yes", "--dir", "envs", "--parallel", "2"]
    first = follow("sweep", "envs.yaml", *where)
    first.wait_for(r"\[2/4\] .* …")
    first.process.kill()
    first.process.wait()

    second = follow("sweep", "envs", "--parallel", "2")
    assert second.process.wait(timeout=300) == 1, second.told
    runs = json.loads((bed.folder / "envs" / "sweep.json").read_text())["runs"]
    assert [run["state"] for run in runs] == ["done", "done", "failed", "failed"], second.told
    assert all("benchmarks.sleeping:Missing" in run["error"] for run in runs[2:])
    jobs = [json.loads((bed.folder / "envs" / run["run"] / "job.json").read_text()) for run in runs]
    assert [job["target"] for job in jobs] == [bed.on] * 4
    for run in runs[:2]:
        summary = Summary.read(bed.folder / "envs" / run["run"] / "summary.json")
        assert (summary.seed, summary.resumed_wall_s, summary.imbalance) == (run["seed"], 0.0, 0)
    assert not (bed.folder / "envs" / "set-aside").exists()  # none was submitted twice
