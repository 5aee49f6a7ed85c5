"""A process with a lifeline ends with its parent, also when that was killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.training import alive
from tests.waiting import wait_until

CHILD = """
import sys
from distrl.roles.lifeline import watch_lifeline
import signal
signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), sys.exit(0)))
watch_lifeline()
print('up', flush=True)
signal.pause()
"""

HELPED = """
import signal, subprocess, sys
from distrl.roles import lifeline
signal.signal(signal.SIGTERM, lambda *_: {ending})
lifeline.GRACE_S = {grace_s}
lifeline.watch_lifeline()
print(subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']).pid, flush=True)
while True:
    signal.pause()
"""

PARENT = """
import os, signal, subprocess, sys
from distrl.roles.lifeline import LIFELINE_VARIABLE, Lifeline
line = Lifeline()
environment = {**os.environ, LIFELINE_VARIABLE: str(line.read_fd)}
out = open(sys.argv[2], 'wb')
child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], env=environment, pass_fds=(line.read_fd,), stdout=out,
                         process_group=0)
signal.pause()
"""


def test_a_child_is_asked_to_end_when_its_parent_was_killed(tmp_path: Path):
    out = tmp_path / "out"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD, str(out)])
    try:
        wait_until(lambda: out.exists() and "up" in out.read_text())
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_until(lambda: "asked" in out.read_text())


@pytest.mark.parametrize(("ending", "grace_s"), [("sys.exit(0)", 3600), ("None", 0.1)], ids=["in order", "by force"])
def test_what_a_child_has_started_ends_with_it(tmp_path: Path, ending: str, grace_s: float):
    out, code = tmp_path / "out", HELPED.format(ending=ending, grace_s=grace_s)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, code, str(out)])
    try:
        wait_until(lambda: out.exists() and out.read_text().endswith("\n"))
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not alive(int(out.read_text())))


def test_the_guard_removes_its_directory_at_the_end_of_the_pipe(tmp_path: Path):
    directory = tmp_path / "private"
    (directory / "deep").mkdir(parents=True)
    guard = subprocess.Popen([sys.executable, "-m", "distrl.roles.lifeline", str(directory)], stdin=subprocess.PIPE)
    assert directory.exists()
    assert guard.stdin is not None
    guard.stdin.close()
    assert guard.wait(timeout=60) == 0
    assert not os.path.exists(directory)


def test_the_guard_ends_whoever_still_works_in_the_directory_and_nobody_else(tmp_path: Path):
    stubborn = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); file = open(sys.argv[1], 'w')\n"
    stubborn += "print('open', flush=True); signal.pause()"
    directories = [tmp_path / "private", tmp_path / "private2"]
    processes = []
    for directory in directories:
        directory.mkdir()
        command = [sys.executable, "-c", stubborn, str(directory / "log")]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        assert processes[-1].stdout.readline() == b"open\n"
    try:
        with (directories[0] / "own").open("w"):  # the parent of the guard is not its business
            command = [sys.executable, "-m", "distrl.roles.lifeline", str(directories[0])]
            assert subprocess.run(command, input=b"", timeout=60, check=False).returncode == 0
        assert processes[0].wait(timeout=60) == -signal.SIGKILL
        assert processes[1].poll() is None
        assert [directory.exists() for directory in directories] == [False, True]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
