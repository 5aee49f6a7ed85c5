"""Private directories are removed once all their owners have ended, and nothing else is."""

import os
import stat
import subprocess
import sys

import psutil
import pytest

from distrl.memory_backend.private_directory import (
    LOCK_NAME,
    join_private_directory,
    leave_private_directory,
    make_private_directory,
    remove_abandoned,
)

OWNER = """
import signal, subprocess, sys
from pathlib import Path
from distrl.memory_backend.private_directory import make_private_directory
directory, lock = make_private_directory(Path(sys.argv[1]))
other = subprocess.Popen(["sleep", "1000"], pass_fds=[lock], stdout=subprocess.DEVNULL)
print(directory.name, other.pid, flush=True)
signal.pause()
"""


def test_a_directory_is_removed_when_its_last_owner_was_killed(tmp_path):
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with owner:
        name, pid = owner.stdout.readline().split()
        directory, other = tmp_path / name, psutil.Process(int(pid))
        (directory / "deep").mkdir()
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        remove_abandoned(tmp_path)
        owner.kill()
        owner.wait()
        remove_abandoned(tmp_path)
        assert directory.exists()  # the other one owns it, too
        other.kill()
        psutil.wait_procs([other], timeout=20)
        mine, lock = make_private_directory(tmp_path)
        assert list(tmp_path.iterdir()) == [mine]
        os.close(lock)


def test_what_is_not_known_to_be_abandoned_stays(tmp_path):
    for name in ("distrl-without-lock", "distrl-elsewhere", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "distrl-elsewhere" / LOCK_NAME).write_text("another-host")
    (tmp_path / "other" / LOCK_NAME).write_text(os.uname().nodename)
    (tmp_path / "distrl-file").touch()
    (tmp_path / "distrl-link").symlink_to(tmp_path / "other")
    before = sorted(tmp_path.rglob("*"))
    remove_abandoned(tmp_path)
    remove_abandoned(tmp_path / "nowhere")
    assert sorted(tmp_path.rglob("*")) == before


JOINED = """
import signal, sys
from pathlib import Path
from distrl.memory_backend.private_directory import join_private_directory
print(join_private_directory("x", Path(sys.argv[1]))[0].name, flush=True)
signal.pause()
"""


def test_a_joined_directory_is_removed_by_the_last_that_leaves_it(tmp_path):
    command = [sys.executable, "-c", JOINED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        directory = tmp_path / other.stdout.readline().strip()
        mine, lock = join_private_directory("x", tmp_path)
        assert mine == directory
        assert stat.S_IMODE(mine.stat().st_mode) == 0o700
        leave_private_directory(mine, lock)
        remove_abandoned(tmp_path)
        assert directory.exists()  # the other process uses it
        other.kill()
        other.wait()
    mine, lock = join_private_directory("x", tmp_path)
    leave_private_directory(mine, lock)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_others_may_enter_is_not_joined(tmp_path):
    (tmp_path / "distrl-x").mkdir(mode=0o755)
    with pytest.raises(PermissionError, match="is not a private directory of this user"):
        join_private_directory("x", tmp_path)
