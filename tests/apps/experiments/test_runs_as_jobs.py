"""Sweeps whose runs are jobs of a target that does as a test says; tests/cluster/test_jobs.py has real targets."""

import json
import os
import signal
from pathlib import Path

import pytest

from distrl.apps.config.configuration import load
from distrl.apps.experiments import running, runs_as_jobs
from distrl.apps.experiments.directory import SweepDirectory
from distrl.apps.experiments.running import run_sweep
from distrl.apps.experiments.runs_as_jobs import JobsTarget, RunsAsJobs, place_of
from distrl.apps.experiments.sweep import Sweep
from distrl.apps.jobs import targets
from distrl.apps.jobs.record import JobRecord
from distrl.apps.jobs.target import JobState, NoAnswerError
from distrl.config.load import validated
from distrl.errors import ConfigError
from distrl.runs.directories import run_directories
from distrl.runs.summary import Summary
from tests.apps.experiments.trainings import FACTS


class Cluster:
    """A target: each job has the next of its states at each look, and leaves a summary when it ends with code 0."""

    name = "ray"

    def __init__(self, **states):
        self.states = {name: [*its] for name, its in states.items()}
        self.submitted, self.withdrawn, self.leaves_summaries = [], [], True

    def submit(self, job, record, report):
        assert (job.wait, job.address) == (True, "there")
        name = job.run_dir.name
        self.submitted.append((name, job.loaded.config.seed, job.loaded.config.network.learning_rate))
        record.write(address="there", handles={"name": name})

    def withdraw(self, record):
        self.withdrawn.append(record.run_id)

    def state(self, record):
        name = record.handles["name"]
        states = self.states.get(name) or [JobState("ended", exit_code=0)]
        found = states.pop(0) if len(states) > 1 else states[0]
        if isinstance(found, Exception):
            raise found
        if found.state == "ended" and self.leaves_summaries:
            why = found.reason or "env_steps"
            facts = {"seed": 1, "env_steps": 100, "mean_return_100": 7.0, "stop_reason": why, "exit_code": 0}
            Summary(**FACTS, **facts).write(Path(record.run_dir) / "summary.json")
        return found


class Full(Cluster):
    def submit(self, job, record, report):
        if job.run_dir.name == "0002":
            raise ConfigError("the cluster is too small")
        super().submit(job, record, report)


RUNNING = JobState("running")


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """launch(cluster, **sweep) -> (ending, lines); the directory stays the same."""
    directory = SweepDirectory(tmp_path / "sweep")
    monkeypatch.setattr(running, "_POLL_S", 0.001)
    monkeypatch.setattr(runs_as_jobs, "LOOK_S", 0.0)

    def run(cluster, parallel=2, again=False, **tree):
        monkeypatch.setattr(targets, "TARGETS", {"ray": lambda: cluster})
        sweep = validated(Sweep, {"vary": {"network.learning_rate": [1e-3, 1e-4]}, "seeds": "1..2", **tree}, {})
        if not directory.exists:
            directory.create(sweep, load())
        said = []
        jobs = RunsAsJobs(directory, parallel, JobsTarget("ray", "there", cluster), said.append)
        return run_sweep(sweep, directory, parallel, said.append, again=again, elsewhere=jobs), said

    run.directory = directory
    return run


def states(directory):
    return [run["state"] for run in json.loads((directory.path / "sweep.json").read_text())["runs"]]


def test_every_run_is_submitted_once_with_its_settings_and_seed(launch):
    cluster = Cluster(**{"0001": [JobState("waiting"), RUNNING, JobState("ended", exit_code=0)]})
    ending, said = launch(cluster)
    assert cluster.submitted == [("0001", 1, 1e-3), ("0002", 2, 1e-3), ("0003", 1, 1e-4), ("0004", 2, 1e-4)]
    assert (ending.exit_code, ending.left, states(launch.directory)) == (0, 0, ["done"] * 4)
    assert said[:2] == ["[1/4] network.learning_rate=0.001 seed 1 …", "[2/4] network.learning_rate=0.001 seed 2 …"]
    assert place_of(launch.directory) == ("ray", "there")

    none = Cluster()
    assert (launch(none)[0].exit_code, none.submitted) == (0, [])


def test_no_more_than_those_that_are_wanted_are_under_way(launch):
    cluster = Cluster(**{"0001": [RUNNING] * 50 + [JobState("ended", exit_code=0)]})
    _, said = launch(cluster, parallel=1)
    ended = [line for line in said if "mean return" in line]
    assert ended[0].startswith("[1/4]")
    assert said.index(ended[0]) < said.index("[2/4] network.learning_rate=0.001 seed 2 …")


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (JobState("failed", "no such environment", 2), "no such environment"),
        (JobState("failed", "", 3), "exit code 3; see distrl logs "),
        (JobState("gone", "its node was taken"), "its node was taken"),
    ],
)
def test_a_job_that_fails_ends_nothing_but_itself_and_begins_anew_with_again(launch, state, told):
    ending, said = launch(Cluster(**{"0002": [RUNNING, state]}))
    assert states(launch.directory) == ["done", "failed", "done", "done"]
    assert (ending.exit_code, ending.left) == (1, 0)
    assert ending.runs[1].outcome.error.startswith(told)

    second = Cluster()
    ending, said = launch(second, again=True)
    assert ([name for name, *_ in second.submitted], ending.exit_code) == (["0002"], 0)
    kept = launch.directory.path / "set-aside/0002.1"
    assert f"run 0002 begins anew; {kept} has what it left" in said
    assert JobRecord.read(kept).handles == {"name": "0002"}


def test_a_directory_that_this_host_does_not_see_is_told(launch):
    cluster = Cluster()
    cluster.leaves_summaries = False
    ending, _ = launch(cluster)
    assert states(launch.directory) == ["failed"] * 4
    assert ending.runs[0].outcome.error.endswith("give --dir a path that this host shares with the cluster")


def test_a_stopped_job_begins_anew_with_the_next_launch(launch):
    _, said = launch(Cluster(**{"0001": [JobState("ended", "SIGTERM", 0)]}))
    assert states(launch.directory) == ["interrupted", "done", "done", "done"]
    assert any("stopped (SIGTERM); it begins anew with the next launch" in line for line in said)

    over = JobState("ended", "SIGTERM", 0)
    second = Cluster(**{"0001": [over, JobState("ended", exit_code=0)]})
    assert (launch(second)[0].exit_code, [name for name, *_ in second.submitted]) == (0, ["0001"])
    assert states(launch.directory) == ["done"] * 4


def test_a_stopped_job_that_its_target_has_begun_again_is_watched(launch):
    launch(Cluster(**{"0001": [JobState("ended", "SIGTERM", 0)]}))
    second = Cluster(**{"0001": [JobState("waiting"), RUNNING, JobState("ended", exit_code=0)]})
    assert (launch(second)[0].exit_code, second.submitted) == (0, [])
    assert states(launch.directory) == ["done"] * 4


@pytest.mark.parametrize("state", [JobState("waiting", "JobHeldUser"), JobState("gone"), RUNNING])
def test_a_submission_that_was_killed_is_withdrawn_and_made_again_unless_the_job_runs(launch, state):
    with pytest.raises(ConfigError, match="too small"):
        launch(Full())
    run_dir = launch.directory.path / "0002"
    run_dir.mkdir()
    told = {"run_id": "r2", "target": "ray", "address": "there", "run_dir": str(run_dir), "store": None, "actors": 2}
    JobRecord(**told, submitted=1.0, handles={"name": "0002"}, complete=False).write(run_dir)
    second = Cluster(**{"0002": [state, *[RUNNING] * (state is RUNNING), JobState("ended", exit_code=0)]})
    assert launch(second)[0].exit_code == 0
    begun_anew = [] if state is RUNNING else ["r2"]
    assert second.withdrawn == begun_anew
    assert ("0002" in [name for name, *_ in second.submitted]) is bool(begun_anew)
    assert states(launch.directory) == ["done"] * 4


def test_a_target_that_does_not_answer_is_asked_once_for_all_jobs(launch):
    class Silent(Cluster):
        def __init__(self):
            super().__init__()
            self.asked = []

        def state(self, record):
            self.asked.append(record.handles["name"])
            if len(self.asked) == 1:
                raise NoAnswerError("no answer from there")
            return super().state(record)

    cluster = Silent()
    ending, said = launch(cluster, budget={"runs": 2})
    assert (ending.exit_code, cluster.asked) == (0, ["0001", "0001", "0002"])
    assert any(line.endswith("on ray cannot be asked for: no answer from there") for line in said)


def test_a_target_that_does_not_answer_is_asked_again(launch):
    cluster = Cluster(**{"0001": [NoAnswerError("no answer"), RUNNING, NoAnswerError("no answer"), JobState("ended")]})
    assert launch(cluster)[0].exit_code == 0


def test_ctrl_c_leaves_the_jobs_and_the_next_launch_watches_them(launch):
    class Interrupted(Cluster):
        interrupted = False

        def state(self, record):
            if record.handles["name"] == "0002" and not self.interrupted:
                self.interrupted = True
                os.kill(os.getpid(), signal.SIGINT)
            return super().state(record)

    first = Interrupted(**{"0001": [RUNNING], "0002": [RUNNING]})
    ending, said = launch(first)
    assert (ending.exit_code, ending.left, states(launch.directory)) == (130, 4, ["running"] * 2)
    assert "Ctrl-C: 2 runs under way as jobs, which go on; distrl stop RUN ends one" in said

    second = Cluster(**{"0001": [RUNNING, JobState("ended", exit_code=0)]})
    ending, said = launch(second)
    assert ([name for name, *_ in second.submitted], ending.exit_code) == (["0003", "0004"], 0)
    assert states(launch.directory) == ["done"] * 4


def test_when_the_minutes_are_over_no_job_begins_and_those_under_way_end(launch):
    launch(Cluster(**{"0001": [RUNNING, JobState("ended", exit_code=0)]}), budget={"runs": 1})
    cluster = Cluster()
    ending, _ = launch(cluster, budget={"minutes": 1e-9})
    assert (cluster.submitted, ending.exit_code, states(launch.directory)) == ([], 0, ["done"])


def test_a_refused_job_ends_the_launch_and_the_next_one_submits_it(launch):
    with pytest.raises(ConfigError, match="the cluster is too small"):
        launch(Full(**{"0001": [RUNNING]}))
    second = Cluster()
    assert launch(second)[0].exit_code == 0
    assert [name for name, *_ in second.submitted] == ["0002", "0003", "0004"]


def test_the_target_is_known_before_the_first_job_even_if_that_is_refused(launch):
    class Full(Cluster):
        def submit(self, job, record, report):
            raise ConfigError("the cluster is too small")

    with pytest.raises(ConfigError, match="the cluster is too small"):
        launch(Full())
    assert place_of(launch.directory) == ("ray", "there")
    (launch.directory.path / "jobs.json").write_text("{")
    with pytest.raises(ConfigError, match=r"jobs\.json is damaged: .*; restore it, or remove it to train here"):
        place_of(launch.directory)


def test_what_was_set_aside_is_in_no_list_of_runs(launch):
    launch(Cluster(**{"0002": [JobState("gone", "its node was taken")]}))
    launch(Cluster(), again=True)
    for path in launch.directory.path.rglob("job.json"):
        path.with_name("run.json").touch()
    names = [path.name for path in run_directories(launch.directory.path, print)]
    assert names == ["0001", "0002", "0003", "0004"]
