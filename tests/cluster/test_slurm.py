"""The target `slurm` on a real cluster of three nodes: what it refuses, and what a run outlives.

tests/cluster/test_jobs.py has the life of a job.
"""

import json
import os
import re
import subprocess

import psutil
import pytest
import redis

from distrl.apps.config.configuration import load
from distrl.apps.jobs import slurm_scripts
from distrl.apps.jobs.record import Job
from distrl.apps.jobs.slurm_jobs import SlurmJobs
from distrl.apps.jobs.submission import submit
from distrl.runs.directories import RunRecord
from distrl.runs.summary import Summary
from tests.cluster.test_jobs import RUN_ID, SLOW, Bed
from tests.faults.arguments import environment, sets
from tests.faults.training import WAIT_S
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.row("S23")]

STRANGER = 65534
OFTEN = sets("checkpoint.every_updates=5", "checkpoint.every_s=null")
SPARE = sets("slurm.actor_options=[--partition=spare]")


@pytest.fixture
def cluster(slurm_cluster):
    return slurm_cluster


@pytest.fixture
def bed(cluster, tmp_path):
    bed = Bed("slurm", tmp_path, variables=cluster.variables)
    yield bed
    bed.run("stop", RUN_ID, "--now")


class Watched:
    """A submitted job, and how it is doing."""

    def __init__(self, bed, cluster, *arguments):
        self.bed, self.cluster = bed, cluster
        self.learner = bed.submit(*SLOW, *OFTEN, *arguments)["handles"]["learner"]
        self.run_dir = bed.folder / "runs" / RUN_ID

    @property
    def updates(self):
        """Updates of the launch that runs now, as an operator sees them; 0 while none does."""
        done = self.bed.run("status", RUN_ID, "--json")
        return int(json.loads(done.stdout).get("snapshot", {}).get("updates") or 0) if done.returncode == 0 else 0

    def wait_for_updates(self, count):
        wait_until(lambda: self.updates >= count, f"{count} updates")

    def nodes(self, name=RUN_ID):
        """Nodes on which the learner, or with another name the actors run."""
        return [line.split("|")[3] for line in self.cluster.queue(f"--name={name}", "--states=RUNNING")]

    @property
    def actors(self):
        """Index -> state of the actors' tasks."""
        found = self.cluster.queue(f"--name={RUN_ID}:actors", what="%K|%T")
        return {int(index): state for index, state in (line.split("|") for line in found)}

    @property
    def log(self):
        path = self.run_dir / "logs" / "job.log"
        return path.read_text() if path.exists() else ""

    def wait_for_launch(self, number, seconds=WAIT_S):
        wait_until(lambda: self.log.count(f"run {RUN_ID} in ") >= number, f"launch {number} has begun", seconds)

    def stop_and_check(self, resumed):
        """Stop the run: its accounts are exact, it has resumed from at least so many updates, and nothing is left."""
        assert self.bed.run("stop", RUN_ID).returncode == 0
        wait_until(lambda: self.bed.job["state"] == "stopped", "it has ended")
        summary = Summary.read(self.run_dir / "summary.json")
        assert (summary.exit_code, summary.imbalance) == (0, 0)
        assert summary.resumed_updates >= resumed
        wait_until(lambda: not self.cluster.queue(), "nothing is left in the queue")


@pytest.fixture
def start(bed, cluster):
    return lambda *arguments: Watched(bed, cluster, *arguments)


def test_cartpole_is_solved(bed, cluster, tmp_path):
    done = bed.run(
        "submit", "--on", "slurm", "--yes", "--run-id", RUN_ID, "--preset", "cartpole-impala", "--actors", "2"
    )
    assert done.returncode == 0, done.stderr
    assert "solved: the mean return asked for is reached (exit code 0)" in done.stdout
    summary = Summary.read(tmp_path / "runs" / RUN_ID / "summary.json")
    assert (summary.stop_reason, summary.imbalance) == ("mean_return", 0)
    wait_until(lambda: not cluster.queue(), "nothing is left in the queue")


def test_a_requeued_learner_goes_on_from_its_checkpoint_with_the_same_actors(start, cluster):
    run = start("--actors", "2")
    run.wait_for_updates(10)
    cluster.ask("scontrol", "requeue", run.learner)
    seen = {}

    def waits():
        seen.update(run.bed.job)
        return seen["state"] == "waiting"

    wait_until(waits, "it waits in the queue")
    assert re.match(r"to go on: \w+", seen["reason"])
    saved = Summary.read(run.run_dir / "summary.json").updates
    assert saved >= 10
    assert [*run.actors.values()] == ["RUNNING"] * 2
    run.wait_for_launch(2)
    run.wait_for_updates(saved + 5)
    assert run.actors == {0: "RUNNING", 1: "RUNNING"}
    assert (run.run_dir / "logs" / "actors-0.log").read_text().count("joined run") == 2
    run.stop_and_check(resumed=saved)


def test_preempted_actors_come_back_and_the_run_goes_on(start, cluster):
    run = start("--actors", "3", *SPARE)
    run.wait_for_updates(10)
    urgent = cluster.occupy("main", 11, 600)  # all but the learner's core
    wait_until(lambda: [*run.actors.values()].count("PENDING") == 3, "all actors are preempted")
    assert run.bed.job["state"] == "running"
    before = run.updates
    cluster.ask("scancel", urgent)
    wait_until(lambda: [*run.actors.values()] == ["RUNNING"] * 3, "they run again")
    run.wait_for_updates(before + 5)
    run.stop_and_check(resumed=0)


def test_a_preempted_learner_goes_on_from_its_checkpoint(start, cluster):
    run = start("--actors", "2", *sets("slurm.learner_options=[--partition=spare]"))
    run.wait_for_updates(10)
    urgent = cluster.occupy("main", 10, 600)
    wait_until(lambda: run.bed.job["state"] == "waiting", "the learner is preempted")
    saved = Summary.read(run.run_dir / "summary.json").updates
    cluster.ask("scancel", urgent)
    run.wait_for_updates(saved + 5)
    run.stop_and_check(resumed=saved)


def test_a_learner_whose_partition_cancels_it_saves_and_ends_its_actors(start, cluster):
    run = start("--actors", "2", *sets("slurm.learner_options=[--partition=cancelling]"))
    run.wait_for_updates(10)
    cluster.occupy("main", 10, 1)
    wait_until(lambda: run.bed.job["state"] == "gone", "the learner is cancelled")
    assert run.bed.job["reason"].startswith("Slurm has ended it: ")
    assert Summary.read(run.run_dir / "summary.json").updates >= 10
    assert list((run.run_dir / "checkpoints").glob("ckpt-*"))
    wait_until(lambda: not run.actors, "its actors are cancelled")
    late = run.bed.run("scale", "3", RUN_ID)
    assert (late.returncode, late.stdout, late.stderr.count("\n")) == (2, "", 1)


def test_at_the_time_limit_the_learner_and_actors_save_and_are_requeued(start, cluster):
    limit = "[--time=3]"
    run = start("--actors", "1", *sets(f"slurm.learner_options={limit}", f"slurm.actor_options={limit}"))
    run.wait_for_launch(2, WAIT_S + 180)
    resumed = re.findall(r"resuming .*", run.log)
    assert resumed, run.log
    assert "DUE TO TIME LIMIT" not in run.log
    wait_until(lambda: "RUNNING" in run.actors.values(), "the actor runs again")
    run.wait_for_updates(1)
    assert run.bed.job["exit_code"] is None
    run.bed.run("stop", RUN_ID, "--now")


def test_a_lost_node_costs_the_updates_since_the_last_checkpoint(start, cluster):
    run = start("--actors", "2", *sets("slurm.learner_options=[--exclude=n3]", "slurm.actor_options=[--nodelist=n3]"))
    run.wait_for_updates(10)
    (node,) = run.nodes()
    cluster.lose_node(node)
    wait_until(lambda: run.nodes() not in ([node], []), "the learner runs on another node")
    run.wait_for_launch(2)
    wait_until(lambda: "resuming" in run.log, "it resumes")
    run.wait_for_updates(15)
    run.stop_and_check(resumed=5)


def test_actors_of_a_learner_that_is_killed_without_a_word_end(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_scripts, "LOOK_EVERY_S", 2)
    monkeypatch.chdir(tmp_path)
    for name, value in environment(**cluster.variables).items():
        monkeypatch.setenv(name, value)
    loaded = load(flags={"--env": "benchmarks.sleeping:Sleeping", "--actors": 2}, sets=SLOW[3::2])
    record = submit(Job(RUN_ID, loaded, tmp_path / "runs" / RUN_ID), SlurmJobs(), print, print)
    logs = tmp_path / "runs" / RUN_ID / "logs"
    wait_until(lambda: len([*logs.glob("actors-*.log")]) == 2, "both actors run")
    wait_until((logs / "job.log").exists, "the learner runs")
    cluster.kill_script(record.handles["learner"])
    wait_until(lambda: not cluster.queue(), "the actors have ended by themselves")
    assert SlurmJobs().state(record).state == "gone"
    assert "the learner's job 1 is gone" in (logs / "actors-0.log").read_text()


def test_a_log_is_followed_while_slurm_does_not_answer(start, cluster, tmp_path):
    run = start("--actors", "1")
    run.wait_for_updates(1)
    output = tmp_path / "followed.out"
    log = run.bed.start("logs", "-f", RUN_ID, output=output)
    wait_until(lambda: " updates " in output.read_text(), "the log is followed")
    cluster.end_controller()
    assert run.bed.job["state"] == "unknown"
    before = len(output.read_text())
    wait_until(lambda: " updates " in output.read_text()[before:], "the log goes on")
    cluster.start_controller()
    wait_until(lambda: run.bed.job["state"] == "running", "Slurm answers again")
    assert log.poll() is None
    run.stop_and_check(resumed=0)
    assert log.wait(120) == 0


def test_a_job_that_waits_says_why_and_is_stopped(bed, cluster):
    cluster.occupy("main", 12, 600)
    bed.submit(*SLOW, "--actors", "2")
    wait_until(lambda: re.match(r"(Resources|Priority)", bed.job["reason"]), "Slurm has looked at it")
    assert bed.job["state"] == "waiting"
    assert bed.run("stop", RUN_ID).stdout == "stop requested\n"
    job = bed.job
    assert (job["state"], job["exit_code"], job["reason"]) == ("failed", 130, "it was stopped before it began to train")
    assert len(cluster.queue()) == 1


def test_actors_without_a_place_are_told_with_the_reason_of_slurm(start, cluster):
    urgent = cluster.occupy("main", 10, 600)
    run = start("--actors", "3")
    run.wait_for_updates(1)
    told = f"2 of 3 actors wait: Resources; distrl scale 1 {RUN_ID} gives them up"
    wait_until(lambda: run.bed.job["reason"] == told, "two actors wait")
    assert run.bed.job["state"] == "running"
    cluster.ask("scancel", urgent)
    run.stop_and_check(resumed=0)


def test_another_user_neither_reads_the_password_nor_connects(start, tmp_path):
    run = start("--actors", "1")
    run.wait_for_updates(1)
    password = (run.run_dir / "redis.password").read_text().strip()
    url = RunRecord.read(run.run_dir / "run.json").redis_url
    host, port = url.split("?")[0].removeprefix("redis://").split(":")
    assert host != "0.0.0.0"
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        os.chmod(folder, 0o755)
    for name in ("redis.password", "run.key", "job.yaml", "learner.sbatch", "actors.sbatch"):
        read = ["setpriv", f"--reuid={STRANGER}", "--clear-groups", "cat", str(run.run_dir / name)]
        done = subprocess.run(read, capture_output=True, text=True)
        assert (done.returncode, "Permission denied" in done.stderr) == (1, True), name
    with redis.Redis(host=host, port=int(port)) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    hidden = [password, (run.run_dir / "run.key").read_text().strip()]
    shown = [run.cluster.ask("scontrol", "show", "job", run.learner), *run.cluster.queue(what="%all")]
    shown += [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    shown += [path.read_bytes().decode(errors="replace") for path in (tmp_path / "slurm").rglob("*") if path.is_file()]
    assert not [text for text in shown if any(secret in text for secret in hidden)]
    run.stop_and_check(resumed=0)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (sets("slurm.learner_options=[--partition=mian]"), "sbatch: invalid partition specified: mian; "),
        (sets("slurm.learner_options=[--frobnicate]"), "sbatch: unrecognized option '--frobnicate'"),
        (sets("slurm.actor_options=[--gres=gpu:1]"), "sbatch: Invalid generic resource (gres) specification"),
        (sets("slurm.actor_options=[--mem=1T]"), "sbatch: "),
        (["--set", "learner.threads=5"], "sbatch: allocation failure: Requested node configuration is not available"),
        (["--actors", "100000"], "sbatch: allocation failure: Invalid job array specification"),
        (["--run-id", "taken"], "the run id taken is taken: your job "),
    ],
)
def test_what_slurm_refuses_is_one_line_and_leaves_nothing(bed, cluster, tmp_path, arguments, line):
    cluster.occupy("main", 1, 600, "--job-name=taken")
    done = bed.run("submit", "--on", "slurm", "--yes", *SLOW[:2], *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert line in done.stderr
    assert [entry.split("|")[0] for entry in cluster.queue()] == ["taken"]
    assert not (tmp_path / "runs").exists() or not [*(tmp_path / "runs").iterdir()]


def test_a_dry_run_is_the_same_at_every_call_and_submits_nothing(bed, cluster, tmp_path):
    dry = [bed.run("submit", "--on", "slurm", "--dry-run", "--run-id", RUN_ID, *SLOW) for _ in range(2)]
    assert {done.returncode for done in dry} == {0}
    assert dry[0].stdout == dry[1].stdout
    assert "# ---- learner.sbatch\n#!/bin/bash\n" in dry[0].stdout
    assert re.search(r"there: learner to start at \S+ using 1 processors on nodes n1 in partition main", dry[0].stderr)
    assert not cluster.queue()
    assert not (tmp_path / "runs").exists()


def test_without_slurm_there_is_one_line(tmp_path):
    bed = Bed("slurm", tmp_path, variables={"PATH": str(tmp_path)})
    done = bed.run("submit", "--on", "slurm", "--dry-run", *SLOW)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"distrl: error: sbatch is not on PATH: [^\n]*\n", done.stderr)
