"""The commands for a running job, on jobs that were submitted."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import distrl
from distrl.apps.commands import main
from distrl.apps.jobs.record import JobRecord
from distrl.apps.jobs.target import JobState
from distrl.apps.jobs.targets import TARGETS
from distrl.data_store.opening import open_objects
from distrl.errors import ConfigError


class Place:
    """A target that keeps what it was asked for, or refuses."""

    starts_actors = False

    def __init__(self):
        self.asked, self.now, self.error = [], JobState("waiting", "Resources"), None
        self.did = None

    def state(self, record):
        if self.error is not None:
            raise self.error
        return self.now

    def scale(self, record, actors, *, force):
        self.asked.append(("scale", record.run_id, record.address, actors, force))

    def autoscale(self, record, least, most, *, off):
        self.asked.append(("autoscale", record.run_id, least, most, off))

    def stop(self, record, *, now):
        self.asked.append(("stop", record.run_id, record.address, now))
        return self.did


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


@pytest.fixture
def job(workplace, place):
    folder = workplace / "runs" / "pong"
    folder.mkdir(parents=True)
    told = {"run_id": "pong", "target": "place", "address": "head", "run_dir": str(folder), "store": None}
    JobRecord.model_validate({**told, "actors": 2, "submitted": 1.0, "handles": {}}).write(folder)
    return folder


def run(capsys, *arguments):
    code = main.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("command", "asked", "told"),
    [
        (["scale", "5", "pong"], ("scale", "pong", "head", 5, False), "requested 5 actors; "),
        (["scale", "1", "--force", "runs/pong"], ("scale", "pong", "head", 1, True), "requested 1 actor; "),
        (["stop"], ("stop", "pong", "head", False), "stop requested\n"),
        (["stop", "--now", "--run", "pong"], ("stop", "pong", "head", True), "killed\n"),
        (["stop", "--address", "tunnel", "pong"], ("stop", "pong", "tunnel", False), "stop requested\n"),
    ],
)
def test_the_target_is_asked(capsys, place, job, command, asked, told):
    code, out, err = run(capsys, *command)
    assert (code, err, place.asked) == (0, "", [asked])
    assert out.startswith(told)


def test_the_record_in_the_store_has_the_number_of_actors(capsys, place, job, workplace):
    store = f"file://{workplace}/store"
    JobRecord.read(job).model_copy(update={"store": store}).write(job)
    assert run(capsys, "scale", "5", "pong")[0] == 0
    assert open_objects(store).get("pong/job.json") == (job / "job.json").read_bytes()
    assert JobRecord.read(job).actors == 5


def test_a_number_of_actors_ends_the_autoscaling_of_a_target_that_starts_them(capsys, place, job):
    place.starts_actors = True
    assert run(capsys, "scale", "5", "pong")[0] == 0
    assert [asked[0] for asked in place.asked] == ["scale"]  # it has not begun
    (job / "run.json").write_text("{}")
    assert run(capsys, "scale", "5", "pong")[0] == 0
    assert place.asked[1:] == [("autoscale", "pong", None, None, True), ("scale", "pong", "head", 5, False)]


def test_answers_as_json(capsys, place, job):
    assert json.loads(run(capsys, "scale", "5", "pong", "--json")[1]) == {"run_id": "pong", "actors": 5}
    assert json.loads(run(capsys, "jobs", "--json")[1])[0]["actors"] == 5
    assert "distrl status pong shows them" in run(capsys, "scale", "6", "pong", "--address", "tunnel")[1]
    (facts,) = json.loads(run(capsys, "jobs", "--json")[1])
    assert (facts["actors"], facts["address"]) == (6, "head")
    stopped = {"run_id": "pong", "now": False}
    assert json.loads(run(capsys, "stop", "pong", "--json")[1]) == {**stopped, "did": "stop requested"}
    place.did = "its release was removed, as it had not begun"
    assert json.loads(run(capsys, "stop", "pong", "--json")[1]) == {**stopped, "did": place.did}
    facts = json.loads(run(capsys, "status", "pong", "--json")[1])
    assert (facts["run_id"], facts["job"]["state"], facts["job"]["reason"]) == ("pong", "waiting", "Resources")


def test_status_of_a_job_that_waits_and_of_one_whose_target_is_silent(capsys, place, job):
    assert run(capsys, "status", "pong") == (0, "pong on place waits: Resources\n", "")
    place.error = ConfigError("the head does not answer")
    assert run(capsys, "status") == (0, "pong on place cannot be asked for: the head does not answer\n", "")


def test_a_job_that_has_not_begun_cannot_be_steered(capsys, place, job):
    for command in (["pause"], ["checkpoint"], ["set", "network.learning_rate=1"]):
        code, out, err = run(capsys, *command)
        assert (code, out) == (2, "")
        assert err.startswith("distrl: error: pong on place has not begun, or not on this host: distrl status ")


def test_an_address_is_for_jobs_alone(capsys, workplace):
    (workplace / "first").mkdir()
    (workplace / "first" / "run.json").write_text(json.dumps({"run_id": "r1", "redis_url": None, "pid": os.getpid()}))
    code, _, err = run(capsys, "stop", "first", "--address", "head")
    assert (code, err) == (
        2,
        "distrl: error: --address head is for jobs, which distrl submit has submitted\n",
    )


def test_a_run_that_train_began_is_killed_by_its_process(capsys, workplace):
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        (workplace / "first").mkdir()
        record = {"run_id": "r1", "redis_url": "unix:///nowhere/redis.sock", "pid": process.pid}
        (workplace / "first" / "run.json").write_text(json.dumps(record))
        assert run(capsys, "stop", "first", "--now") == (0, "killed\n", "")
        assert process.wait() == -signal.SIGKILL
    code, _, err = run(capsys, "stop", "first", "--now")
    assert (code, err) == (2, f"distrl: error: r1 does not run; distrl status {workplace}/first shows how it ended\n")
    code, _, err = run(capsys, "stop", "--now", "--run-id", "r1", "--redis-url", "redis://h")
    assert (code, err.count("\n")) == (2, 1)
    assert "--now kills processes, which --redis-url does not name" in err
