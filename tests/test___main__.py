"""Signals that arrive before a run has begun end the command with 130 and say nothing."""

import signal
import subprocess
import sys

import pytest

SENDER = """
import os, runpy, sys

class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == at:
            os.kill(os.getpid(), number)

at, number = sys.argv.pop(1), int(sys.argv.pop(1))
sys.meta_path.insert(0, Sender())
runpy.run_module("distrl", run_name="__main__", alter_sys=True)
"""
"""Runs `python -m distrl`, which gets a signal when it begins to import the module `at`."""

TRAIN = ("train", "--preset", "cartpole-impala", "--actors", "0")


def ended(at, number, *arguments, cwd, before=None):
    def prepare():  # a runner of tests may be one that ignores signals, as after nohup
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        if before is not None:
            before()

    command = [sys.executable, "-P", "-c", SENDER, at, str(int(number)), *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, preexec_fn=prepare)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("at", "number"),
    [
        *(("distrl.apps.commands.main", number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)),
        ("distrl.launch.training", signal.SIGINT),
        pytest.param("distrl.launch.training", signal.SIGTERM, marks=pytest.mark.long),
        pytest.param("distrl.launch.training", signal.SIGHUP, marks=pytest.mark.long),
    ],
)
def test_a_signal_before_the_run_has_begun_ends_the_command_with_130(tmp_path, number, at):
    assert ended(at, number, *TRAIN, cwd=tmp_path) == (130, "")
    assert [path.name for path in tmp_path.rglob("*") if path.name != "runs"] == []


def test_a_supervisor_sees_by_which_signal_a_role_ended_that_had_not_begun(tmp_path):
    assert ended("distrl.apps.commands.main", signal.SIGTERM, "actor", cwd=tmp_path) == (-signal.SIGTERM, "")


def test_after_nohup_a_terminal_may_close_at_any_time(tmp_path):
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    code, said = ended("distrl.apps.commands.main", signal.SIGHUP, "presets", cwd=tmp_path, before=ignore)
    assert (code, "cartpole-impala" in said) == (0, True)
