import json
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from distrl import __version__
from distrl.apps.commands import main
from distrl.apps.doctor import machine as machine_doctor
from distrl.apps.doctor import redis
from distrl.apps.doctor import run as run_doctor
from distrl.apps.doctor.findings import Finding
from distrl.memory_backend.backend import connect
from distrl.memory_backend.keys import RunKeys
from distrl.runs.directories import Run
from tests.run_folders import summary

GOOD = Finding("ok", "cores", "8")
ODD = Finding("warning", "memory", "1.0 GB free", "fewer actors")
BAD = Finding("error", "Redis", "is gone", "start it")


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISTRL_REDIS_URL", raising=False)
    return tmp_path


@pytest.fixture
def machine(monkeypatch):
    """Findings about the machine, which tests change, and the Redis that was examined."""
    found, asked = [GOOD], []
    monkeypatch.setattr(machine_doctor, "examine_machine", lambda runs: iter(found))
    monkeypatch.setattr(redis, "examine_redis", lambda url: iter(asked.append(url) or ()))
    return found, asked


def run(capsys, *arguments):
    code = main.main(["doctor", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def make_run(folder, pid, redis_url="redis://h:1/0"):
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"run_id": "r1", "redis_url": redis_url, "pid": pid}))
    return str(folder)


@pytest.mark.parametrize(
    ("more", "code", "end"),
    [
        ([], 0, "no problems, no warnings"),
        ([ODD], 0, "no problems, 1 warning"),
        ([ODD, BAD, BAD], 1, "2 problems, 1 warning"),
    ],
)
def test_problems_are_exit_1(machine, capsys, more, code, end):
    machine[0].extend(more)
    found, out, _ = run(capsys)
    assert found == code
    assert out.splitlines()[0] == "ok   cores               8"
    assert out.splitlines()[-1] == end
    if ODD in more:
        assert "warn memory              1.0 GB free\n                         fewer actors\n" in out


def test_as_json(machine, capsys):
    machine[0].append(BAD)
    code, out, _ = run(capsys, "--json")
    assert code == 1
    assert json.loads(out)[1] == {"health": "error", "name": "Redis", "found": "is gone", "advice": "start it"}


def test_a_given_redis_is_the_one_that_is_examined(machine, capsys):
    run(capsys, "--redis-url", "redis://there:1")
    assert machine[1] == ["redis://there:1"]


def test_so_is_the_one_that_train_would_take(machine, capsys, monkeypatch):
    monkeypatch.setenv("DISTRL_REDIS_URL", "redis://:secret@elsewhere:1")
    run(capsys)
    assert machine[1] == ["redis://elsewhere:1"]


def test_a_run_whose_redis_is_gone_is_a_problem(machine, capsys, workplace):
    where = make_run(workplace / "a", os.getpid(), redis_url=f"unix://{workplace}/nowhere.sock")
    code, out, _ = run(capsys, where, "--json")
    assert code == 1
    assert [one["health"] for one in json.loads(out)] == ["error"]


def test_a_run_in_one_process(capsys, workplace):
    code, out, _ = run(capsys, make_run(workplace / "a", os.getpid(), redis_url=None))
    assert code == 0
    assert "in one process without Redis" in out


def test_a_running_job_is_looked_at_with_its_redis(machine, capsys, monkeypatch, workplace):
    opened = []

    @contextmanager
    def opened_backend(found):
        opened.append(found.record.run_id)
        yield "backend"

    monkeypatch.setattr(Run, "backend", opened_backend)
    monkeypatch.setattr(
        run_doctor, "examine_run", lambda backend, run_id: iter([Finding("ok", "run", f"{run_id} of {backend}")])
    )
    code, out, _ = run(capsys, make_run(workplace / "a", os.getpid()))
    assert (code, opened, machine[1]) == (0, ["r1"], ["redis://h:1/0"])
    assert "r1 of backend" in out
    run(capsys, "--run-id", "r1", "--redis-url", "redis://there:1")
    assert machine[1][1:] == ["redis://there:1"]


def test_a_run_whose_process_is_gone_is_a_problem_and_says_how_to_go_on(capsys, workplace):
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    folder = make_run(workplace / "a", process.pid)
    code, out, _ = run(capsys, folder)
    assert code == 1
    assert "does not run" in out
    assert "distrl train --resume" not in out  # there is no checkpoint yet
    (workplace / "a" / "checkpoints" / "ckpt-1").mkdir(parents=True)
    assert "go on with distrl train --resume" in run(capsys, folder)[1]


def test_a_run_that_has_ended(capsys, workplace):
    where = make_run(workplace / "a", 1)
    summary().write(workplace / "a" / "summary.json")
    assert run(capsys, where)[0] == 0


def test_wrong_words_are_exit_2(capsys, workplace):
    code, _, err = run(capsys, str(workplace / "nothing"))
    assert code == 2
    assert "is not a run's directory" in err
    assert run(capsys, make_run(workplace / "a", os.getpid()), "--run-id", "r1")[0] == 2


def test_a_name_of_any_length_stands_apart_from_what_was_found(machine, capsys):
    machine[0].append(Finding("ok", "Redis' persistence", "append-only file"))
    assert "Redis' persistence  append-only file" in run(capsys)[1]


@pytest.mark.redis
def test_a_run_that_redis_does_not_have_is_not_said_to_end_by_itself(machine, capsys, redis_url):
    code, told, _ = run(capsys, "--redis-url", redis_url, "--run-id", "nope")
    assert code == 1
    assert "no run nope at " in told
    assert "check the run id, and host and namespace in the URL" in told
    assert "ends by itself" not in told


@pytest.mark.redis
def test_a_run_of_another_version_is_a_problem_that_names_both(machine, capsys, redis_url):
    backend = connect(redis_url, "other", name="test", give_up_s=1.0)
    backend.create('{"launch": "x"}')
    backend.engine.call("HSET", RunKeys("other").run, "distrl_version", "0.0.9")
    try:
        code, told, err = run(capsys, "--redis-url", redis_url, "--run-id", "other")
    finally:
        backend.delete()
        backend.close()
    assert (code, err) == (1, "")
    assert "run other of distrl 0.0.9 is not described as this distrl does (run_id: Field required)" in told
    assert f", which is {__version__}; use one version of distrl for all roles" in told
    assert "ends by itself" not in told
