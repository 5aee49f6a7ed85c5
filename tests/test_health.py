"""Heartbeats in files: who writes them, and what a probe makes of them."""

import os
import signal
import subprocess
import sys
import time

import pytest

from distrl import health
from distrl.errors import ConfigError
from distrl.health import Beats, ages_s, beating, judge, opened, probe, quick_probe
from tests.faults.arguments import environment
from tests.faults.training import WAIT_S
from tests.waiting import wait_until

pytestmark = pytest.mark.row("D70")

CHILD = """
import signal, sys
from distrl.health import beating
with beating(sys.argv[1]):
    print(flush=True)
    signal.pause()
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv(health.DIRECTORY_VARIABLE, str(tmp_path / "health"))
    return tmp_path / "health"


@pytest.fixture
def start(directory):
    started = []

    def start(kind):
        command = [sys.executable, "-P", "-c", CHILD, kind]
        started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(DISTRL_HEALTH_DIR=str(directory)))
        )
        assert started[-1].stdout.readline() == b"\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def write(directory, kind, age_s, pid=1):
    """Leave a heartbeat of that age in a file of its own, and hold its lock."""
    beats = Beats(directory, kind)
    text = f"{time.monotonic() - age_s:024.3f}"
    (directory / f"{kind}.{os.getpid()}").rename(directory / f"{kind}.{pid}")
    (directory / f"{kind}.{pid}").write_text(text)
    return beats


def test_without_the_variable_nothing_is_written_and_nothing_judged(tmp_path, monkeypatch):
    monkeypatch.delenv(health.DIRECTORY_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with opened("learner") as beats, beating("learner"):
        assert beats is None
    assert list(tmp_path.iterdir()) == []
    assert quick_probe([]) is None  # so that the command line reports it
    with pytest.raises(ConfigError, match="set DISTRL_HEALTH_DIR"):
        probe(None, 30.0)


def test_a_process_has_heartbeats_until_it_is_done(directory):
    with beating("learner"):
        first = ages_s(directory)
        assert first.keys() == {"learner"}
        name = directory / f"learner.{os.getpid()}"
        text = name.read_text()
        wait_until(lambda: name.read_text() != text, "the next heartbeat")
        assert float(name.read_text()) > float(text)
    assert list(directory.iterdir()) == []
    assert judge(directory, None, 30.0) == (False, f"no process of distrl has a heartbeat in {directory}")


def test_a_stopped_process_is_found_and_a_killed_one_is_no_longer_there(directory, start):
    child = start("actors")
    assert judge(directory, "actors", 5.0)[0]
    child.send_signal(signal.SIGSTOP)
    wait_until(lambda: not judge(directory, None, 2.0)[0], "the probe fails")
    assert judge(directory, None, 2.0)[1].startswith("no heartbeat within 2 s: actors ")
    child.send_signal(signal.SIGCONT)
    wait_until(lambda: judge(directory, None, 2.0)[0], "the probe passes")
    child.kill()
    child.wait(WAIT_S)
    assert [path.name for path in directory.iterdir()] == [f"actors.{child.pid}"]
    assert ages_s(directory) == {}


def test_a_file_of_an_earlier_container_with_the_same_process_number_does_not_count(directory):
    directory.mkdir()
    (directory / f"learner.{os.getpid()}").write_text(f"{time.monotonic() - 999:024.3f}")
    assert ages_s(directory) == {}
    with opened("learner"):
        assert judge(directory, "learner", 5.0)[0]


def test_one_of_several_actors_is_enough_and_each_kind_is_judged(directory):
    files = [write(directory, "actor", 60.0, pid=1), write(directory, "actor", 2.0, pid=2)]
    assert judge(directory, None, 30.0) == (True, "heartbeats: actor 2.0 s ago")
    files.append(write(directory, "actors", 60.0))
    assert judge(directory, None, 30.0) == (False, "no heartbeat within 30 s: actors 60.0 s ago")
    assert judge(directory, "actor", 30.0)[0]
    assert judge(directory, "learner", 30.0) == (False, f"no learner has a heartbeat in {directory}")
    del files


def test_a_directory_that_cannot_be_read_is_reported(directory):
    directory.write_text("")  # as root reads all directories, one that is none
    assert judge(directory, None, 30.0) == (False, f"{directory} cannot be read: Not a directory")


@pytest.mark.parametrize("name", ["learner.x", "other.1", "learner", "learner.2"])
def test_other_files_are_ignored(directory, name):
    directory.mkdir()
    (directory / name).write_text("no time")
    assert ages_s(directory) == {}


def test_a_directory_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"DISTRL_HEALTH_DIR .*/file/health: Not a directory; name one"):
        Beats(tmp_path / "file" / "health", "learner")


def test_a_link_in_place_of_the_file_is_not_followed(directory, tmp_path):
    directory.mkdir()
    (directory / f"learner.{os.getpid()}").symlink_to(tmp_path / "target")
    with pytest.raises(ConfigError, match="symbolic links"):
        Beats(directory, "learner")
    assert not (tmp_path / "target").exists()


def test_a_heartbeat_that_cannot_be_written_ends_nothing_and_is_logged_once(directory, caplog):
    beats = Beats(directory, "learner")
    os.close(beats._file)
    beats._file = os.open(directory / f"learner.{os.getpid()}", os.O_RDONLY)
    beats.beat()
    beats.beat()
    assert [record.message.split(":")[0] for record in caplog.records] == [f"no heartbeat in {beats._path}"]
    beats.close()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 0),
        (["--role", "learner"], 0),
        (["--role=learner", "--within", "20"], 0),
        (["--role", "actor"], 1),
        (["--role", "boss"], None),
        (["--within", "soon"], None),
        (["--within", "-1"], None),
        (["--within", "nan"], None),
        (["--help"], None),
        (["more"], None),
    ],
)
def test_the_quick_probe_leaves_all_that_is_not_plain_to_the_command_line(directory, arguments, code, capsys):
    with opened("learner"):
        assert quick_probe(arguments) == code
    said = capsys.readouterr().out
    assert said.count("\n") == (0 if code is None else 1)


def test_the_probe_imports_neither_the_command_line_nor_the_configuration(directory):
    program = (
        "import sys; from distrl.__main__ import main; sys.argv[1:] = ['health']; code = main()\n"
        "heavy = {'typer', 'pydantic', 'numpy', 'redis', 'distrl.config', 'distrl.apps.commands'}\n"
        "heavy &= sys.modules.keys()\n"
        "sys.exit(f'{code} {heavy}')"
    )
    command, told = [sys.executable, "-P", "-c", program], environment(DISTRL_HEALTH_DIR=str(directory))
    with opened("learner"):
        done = subprocess.run(command, env=told, capture_output=True, text=True)
    assert (done.stderr, done.stdout.split(":")[0]) == ("0 set()\n", "heartbeats")
