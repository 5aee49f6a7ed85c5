import io
import json
import os
import signal
from pathlib import Path

import pytest

import distrl
from distrl.apps.commands import main
from distrl.apps.config.configuration import load
from distrl.apps.jobs.record import JobRecord
from distrl.apps.jobs.target import JobState, LogLine, Plan
from distrl.apps.jobs.targets import TARGETS
from distrl.errors import ConfigError
from distrl.roles.plan import RoleNeed

ON = ["--preset", "cartpole-impala", "--on", "place"]


class Place:
    """A target that takes every job and has a log of two lines; `log` may raise instead."""

    name = "place"

    def __init__(self):
        self.jobs, self.end, self.error = [], JobState("ended", "well", 0), None
        self.available, self.signal = "120 idle", None

    def plan(self, job):
        return Plan([RoleNeed("learner", 1, 1)], self.available, "1 MB", ["a"], {"script": "#!/bin/sh\n"}, ["b"])

    def submit(self, job, record, report):
        self.jobs.append(job)
        if self.signal is not None:
            os.kill(os.getpid(), self.signal)
        report("learner 4711")
        record.write(address="head", handles={"learner": "4711"})

    def state(self, record):
        return self.end

    def log(self, record, *, follow):
        assert follow
        yield LogLine(1000.0, "learner", "one\x1b[2J")
        if self.error is not None:
            raise self.error
        yield LogLine(1001.0, "job", "two")


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(distrl.__file__).parent.parent))
    monkeypatch.delenv("DISTRL_REDIS_URL", raising=False)
    return tmp_path


@pytest.fixture
def place(monkeypatch):
    place = Place()
    monkeypatch.setitem(TARGETS, "place", lambda: place)
    return place


def run(capsys, *arguments):
    code = main.main(["submit", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def answer(monkeypatch, text):
    terminal = io.StringIO(text)
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)


def test_a_job_is_planned_submitted_and_followed_to_its_end(capsys, place, workplace):
    code, out, err = run(capsys, *ON, "--yes", "--run-id", "pong", "--actors", "3")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "plan  run pong on place · learner 1 × 1 CPU"
    assert lines[3:7] == [
        "      not protected: a",
        "      note: b",
        "✓ learner 4711",
        "distrl jobs · distrl logs -f pong · distrl scale N pong · distrl stop pong",
    ]
    assert [line[20:] for line in lines[7:]] == ["learner   one?[2J", "job       two"]
    (job,) = place.jobs
    assert (job.run_id, job.run_dir, job.loaded.config.actors.count) == ("pong", workplace / "runs" / "pong", 3)
    assert JobRecord.read(job.run_dir).handles == {"learner": "4711"}


@pytest.mark.parametrize(
    ("end", "code", "error"),
    [
        (JobState("failed", "the environment\nkeeps failing", 3), 3, "the environment keeps failing"),
        (JobState("gone", "killed"), 1, "pong on place is gone: killed; distrl status pong"),
    ],
)
def test_the_exit_code_is_that_of_the_run(capsys, place, end, code, error):
    place.end = end
    assert run(capsys, *ON, "--yes", "--run-id", "pong")[::2] == (code, f"distrl: error: {error}\n")


def test_ctrl_c_detaches_and_says_so(capsys, place):
    place.error = KeyboardInterrupt()
    code, out, err = run(capsys, *ON, "--yes", "--run-id", "pong")
    assert code == 130
    assert err == "\ndetached: pong goes on; distrl logs -f pong · distrl stop pong\n"
    assert "two" not in out


def test_a_target_that_does_not_answer_any_more_is_no_refused_submission(capsys, place):
    place.error = ConfigError("the server at head: refused")
    code, _, err = run(capsys, *ON, "--yes", "--run-id", "pong")
    line = "distrl: error: the server at head: refused; the job was submitted: distrl status pong\n"
    assert (code, err) == (1, line)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_of_a_submission_waits_for_its_end(capsys, place, workplace, number):
    place.signal = number
    before = signal.signal(number, signal.default_int_handler)  # pytest itself may run under nohup
    try:
        code, out, err = run(capsys, *ON, "--yes", "--run-id", "pong")
    finally:
        signal.signal(number, before)
    assert (code, err) == (130, "\ndetached: pong goes on; distrl logs -f pong · distrl stop pong\n")
    assert JobRecord.read(workplace / "runs" / "pong").handles == {"learner": "4711"}
    assert "one" not in out


def test_detached_and_elsewhere(capsys, place, workplace):
    code, out, _ = run(capsys, *ON, "--yes", "--run-id", "pong", "--run-dir", "elsewhere", "--detach")
    assert code == 0
    assert out.splitlines()[-1].endswith(f"distrl stop {workplace}/elsewhere")


@pytest.mark.parametrize(("typed", "jobs", "code"), [("\n", 1, 0), ("y\n", 1, 0), ("n\n", 0, 130)])
def test_a_terminal_is_asked(capsys, place, monkeypatch, workplace, typed, jobs, code):
    answer(monkeypatch, typed)
    assert run(capsys, *ON, "--detach")[0] == code
    assert len(place.jobs) == jobs
    assert (workplace / "runs").exists() == bool(jobs)


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_without_a_terminal_nothing_is_asked(capsys, place, monkeypatch, workplace, arguments):
    if not arguments:
        monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, _, err = run(capsys, *ON, *arguments)
    assert code == 2
    assert err.startswith("distrl: error: nothing is submitted without your consent")
    assert err.endswith(": add --yes\n")
    assert err.count("\n") == 1
    assert (place.jobs, (workplace / "runs").exists()) == ([], False)


def test_json_is_one_object_with_the_id(capsys, place):
    code, out, err = run(capsys, *ON, "--yes", "--json")
    told = json.loads(out)
    assert (code, err, told["run_id"]) == (0, "", place.jobs[0].run_id)
    assert (told["address"], told["handles"], told["unprotected"]) == ("head", {"learner": "4711"}, ["a"])


SECRET = ["--set", "environment.kwargs={api_key: s3cret}"]


@pytest.mark.row("D49")
def test_a_dry_run_prints_the_same_bytes_without_secrets_and_makes_nothing(capsys, place, workplace):
    code, first, err = run(capsys, *ON, *SECRET, "--dry-run")
    place.available = "3 idle"
    assert run(capsys, *ON, *SECRET, "--dry-run")[1] == first
    assert code == 0
    assert err.startswith("plan  run cartpole-v1-impala-xxxxxx on place")
    assert first.startswith("# ---- job.yaml\n")
    assert first.endswith("# ---- script\n#!/bin/sh\n")
    assert "s3cret" not in first
    assert [*workplace.iterdir()] == []
    code, out, err = run(capsys, *ON, *SECRET, "--dry-run", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["files"]["script"] == "#!/bin/sh\n"
    assert "idle" not in out
    assert "s3cret" not in out
    assert json.loads(out)["notes"] == ["b"]
    assert "      note: b\n" in run(capsys, *ON, *SECRET, "--dry-run")[2]


def test_a_dry_run_shows_a_configuration_that_is_one(capsys, workplace):
    _, out, _ = run(capsys, "--preset", "cartpole-ppo", "--on", "here", "--run-id", "a", "--dry-run")
    shown = out.partition("# ---- job.yaml\n")[2].partition("# ---- ")[0]
    (workplace / "shown.yaml").write_text(shown)
    assert load(file=workplace / "shown.yaml").config == load("cartpole-ppo").config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--on", "here"], "what to train? For example: distrl submit --preset cartpole-impala --on here"),
        (["--preset", "cartpole-impala", "--on", "mars"], f"unknown target mars: the targets are {', '.join(TARGETS)}"),
        ([*ON, "--set", "kubernetes.namespace=a"], "kubernetes.namespace (from flag --set) has no use with --on place"),
        ([*ON, "--run-id", "a/b"], "run id 'a/b'"),
        ([*ON, "--run-id", "taken"], "the run id taken is taken: "),
        ([*ON, "--run-dir", "runs/taken"], "runs/taken is taken: it exists and is no empty directory; choose another"),
        ([*ON, "--set", "actors.cuont=3"], "unknown key actors.cuont"),
        (["--preset", "cartpole-impala", "--on", "here", "--address", "http://h"], "--address http://h has no use"),
        (
            [*ON, "--set", "slurm.actor_options=[--mem=1G]"],
            "slurm.actor_options (from flag --set) has no use with --on place; leave it out",
        ),
        (["nowhere.yaml", "--on", "here"], "file nowhere.yaml does not exist"),
    ],
)
def test_bad_input_is_one_line_and_makes_nothing(capsys, place, workplace, arguments, message):
    (workplace / "runs" / "taken").mkdir(parents=True)
    (workplace / "runs" / "taken" / "run.json").write_text("{}")
    code, out, err = run(capsys, *arguments, "--yes")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert place.jobs == []
    assert [path.name for path in (workplace / "runs").iterdir()] == ["taken"]


def test_a_job_carries_the_weights_to_begin_with_by_an_absolute_path(capsys, place, workplace):
    assert run(capsys, *ON, "--init-from", "runs/first@20", "--yes", "--detach")[0] == 0
    (job,) = place.jobs
    assert load(file=job.run_dir / "job.yaml").config.learner.init_from == f"{workplace}/runs/first@20"
