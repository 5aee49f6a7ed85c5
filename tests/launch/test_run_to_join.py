"""The run of a directory: found anew at each launch, and over when its summary says so."""

import json
import socket

import pytest

from distrl.errors import ConfigError, MissingRunError, RunKeyError
from distrl.launch.run_to_join import RunOfDirectory
from distrl.roles.trust import Trust, new_key
from distrl.runs.directories import RunRecord, open_run
from distrl.runs.run_directory import write_run_json
from tests.run_folders import make_run


def changed(folder, **fields):
    """Change fields of run.json."""
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | fields))


def test_each_launch_has_its_address_and_key(tmp_path):
    run = RunOfDirectory(tmp_path)
    with pytest.raises(MissingRunError, match=r"no run in .* yet"):
        run.address()
    write_run_json(tmp_path, "r", "first", "redis://one:1", own=True)
    assert run.address() == (f"redis://one:1?password_file={tmp_path}/redis.password", "r")
    assert not run.moved()
    write_run_json(tmp_path, "r", "second", "redis://two:2")
    assert run.moved()
    assert run.address() == ("redis://two:2", "r")
    assert not run.moved()
    with pytest.raises(RunKeyError, match=r"run.key .* cannot be read"):
        run.trust()
    key = new_key()
    (tmp_path / "run.key").write_text(key)
    (tmp_path / "run.key").chmod(0o600)
    assert run.trust() == Trust(key)


def test_a_launch_that_was_left_is_not_joined_again(tmp_path):
    run = RunOfDirectory(tmp_path)
    write_run_json(tmp_path, "r", "first", "redis://one:1")
    run.address()
    assert run.leave_launch("SIGTERM")
    assert run.leave_launch("its keys are removed")
    with pytest.raises(MissingRunError, match="has ended"):
        run.address()
    write_run_json(tmp_path, "r", "second", "redis://one:1")
    assert run.address()
    assert not run.leave_launch("asked")


@pytest.mark.parametrize(
    ("reason", "code", "is_end", "is_launch_end"),
    [
        ("asked", 0, True, True),
        ("mean_return", 0, True, True),
        ("SIGTERM", 0, False, True),
        ("SIGTERM", 143, False, True),
        ("stalled", 4, False, False),
        ("Ctrl-C", 130, False, False),
    ],
)
def test_the_end_is_that_of_a_run_which_another_launch_would_not_continue(
    tmp_path, reason, code, is_end, is_launch_end
):
    folder = make_run(tmp_path / "run", summary={"stop_reason": reason, "exit_code": code})
    run = RunOfDirectory(folder)
    assert run.ended() == (reason if is_end else None)
    assert run.launch_ended() == (reason if is_launch_end else None)
    changed(folder, launch="another")
    assert run.ended() is run.launch_ended() is None


@pytest.mark.parametrize(
    ("url", "host", "says"),
    [
        (None, "", "one process without Redis"),
        ("unix:///r.sock", "another", "is on host another alone; launch the run"),
    ],
)
def test_a_run_that_no_other_host_reaches(tmp_path, url, host, says):
    write_run_json(tmp_path, "r", "first", url)
    changed(tmp_path, host=host)
    with pytest.raises(ConfigError, match=says):
        RunOfDirectory(tmp_path).address()


def test_a_link_does_not_send_another_file_as_the_password(tmp_path):
    """Another user may have made the directory."""
    write_run_json(tmp_path, "r", "first", "redis://theirs", own=True)
    (tmp_path / "redis.password").symlink_to("/etc/hostname")
    with pytest.raises(ConfigError, match="is a link"):
        RunRecord.read(tmp_path / "run.json")


@pytest.mark.parametrize(("url", "state"), [("redis://h:1", "running"), ("unix:///r.sock", "gone")])
def test_a_command_of_another_host_is_taken_to_run_if_its_redis_can_say_so(tmp_path, url, state):
    write_run_json(tmp_path, "r", "first", url)
    assert open_run(tmp_path).state == "running"
    changed(tmp_path, pid=2**22 + 1)
    assert open_run(tmp_path).state == "gone"
    changed(tmp_path, host=f"not-{socket.gethostname()}")
    assert open_run(tmp_path).state == state
