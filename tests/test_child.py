"""Functions in a process of their own: what they report arrives, and however they end, nothing of them is left."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distrl.child import Child, ending
from tests.faults.training import alive
from tests.waiting import wait_until

FUNCTIONS = """
import os, signal, subprocess, sys
from distrl.errors import ConfigError, EnvironmentFailedError

def answer(request, parent):
    print("noise")
    os.system("echo native noise")
    parent.say(given=request, variable=os.environ.get("GIVEN"), removed=os.environ.get("REMOVED"))

def arguments(request, parent):
    parent.say(arguments=sys.argv)

def refuse(request, parent):
    parent.say(stage="first")
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise EnvironmentFailedError("in one line") from error

def leave(request, parent):
    left = subprocess.Popen(["sleep", "600"])
    parent.say(pid=left.pid)

def hang(request, parent):
    parent.say(pid=subprocess.Popen(["sleep", "600"]).pid)
    signal.pause()

def exit_at_once(request, parent):
    os._exit(7)

def half_a_line(request, parent):
    parent.say(whole=1)
    parent._answer.write('{"half":')
    parent._answer.flush()
    signal.pause()

def crash(request, parent):
    os.abort()

def hold_the_interpreter(request, parent):
    parent.limit(0.1)
    parent.say(pid=os.getpid())
    signal.pause()
"""


@pytest.fixture(autouse=True)
def _functions(tmp_path, monkeypatch):
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))


def child(name, request=None, timeout_s=60.0, **options):
    return Child(f"functions:{name}", request, timeout_s=timeout_s, **options)


def gone(pid: int) -> bool:
    """Killed processes of a dead parent stay zombies until init reaps them."""
    return wait_until(lambda: not alive(pid))


def test_the_answer_is_apart_from_all_other_output(monkeypatch):
    monkeypatch.setenv("REMOVED", "here")
    with child("answer", {"a": [1, None]}, variables={"GIVEN": "yes", "REMOVED": None}) as running:
        assert running.wait(60.0) == 0
        assert running.messages() == [{"given": {"a": [1, None]}, "variable": "yes", "removed": None}]
        assert running.messages() == []
        assert set(running.output().splitlines()) == {"noise", "native noise"}


def test_an_error_of_distrl_s_own_is_a_message_with_its_cause():
    with child("refuse") as running:
        assert running.wait(60.0) == 3
        stage, error = running.messages()
    assert stage == {"stage": "first"}
    assert (error["error"], error["exit_code"]) == ("in one line", 3)
    assert "ZeroDivisionError" in error["detail"]
    assert "EnvironmentFailedError" not in error["detail"]


@pytest.mark.parametrize(("name", "exit_code", "output"), [("exit_at_once", 7, ""), ("crash", -6, "in crash")])
def test_a_function_that_ends_its_process(name, exit_code, output):
    with child(name) as running:
        assert running.wait(60.0) == exit_code
        assert running.messages() == []
        assert output in running.output()


def test_a_function_that_does_not_exist_is_a_traceback():
    with child("missing") as running:
        assert running.wait(60.0) == 1
        assert "has no attribute 'missing'" in running.output()


@pytest.mark.parametrize("name", ["leave", "hang"])
def test_processes_left_behind_are_killed(name):
    with child(name, timeout_s=5.0) as running:
        assert running.wait(30.0 if name == "leave" else 5.0) == {"leave": 0, "hang": None}[name]
        (message,) = running.messages()
        hung = running.output()
    assert ("in hang" in hung) == (name == "hang")  # where
    assert gone(message["pid"])


def test_only_whole_lines_are_messages():
    with child("half_a_line") as running:
        messages = wait_until(running.messages)
        assert messages == [{"whole": 1}]
        assert running.wait(0.3) is None
        assert running.messages() == []


def test_a_child_that_outlives_its_parent_ends_by_itself():
    program = """
import os
from distrl.child import Child
from tests.waiting import wait_until
child = Child("functions:hold_the_interpreter", None, timeout_s=60.0)
messages = wait_until(child.messages)
print(messages[0]["pid"], flush=True)
os._exit(0)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert gone(int(done.stdout))


def test_a_process_that_dies_before_it_reads_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with child("answer", "x" * 10_000_000) as running:
        assert running.wait(60.0) == 1
        assert running.messages() == []


def test_files_in_the_working_directory_do_not_shadow_the_standard_library(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    Path("json.py").write_text("raise SystemExit('shadowed')")
    with child("answer") as running:
        assert running.wait(60.0) == 0


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (3, "ended its process in step with exit code 3"),
        (-6, "crashed in step: SIGABRT"),
        (None, "hung in step: killed after 60 s"),
    ],
)
def test_the_end_of_a_child_in_words(exit_code, words):
    assert ending(exit_code, "in step", 60.0) == words


def test_what_the_interpreter_prints_at_its_start_is_no_answer(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import os\nprint('{\"from\": \"site\"}')\nos.system('echo native')\n")
    with Child("functions:answer", {"a": 1}, timeout_s=60.0) as child:
        assert child.wait(60.0) == 0
        assert child.messages() == [{"given": {"a": 1}, "variable": None, "removed": None}]
        assert {'{"from": "site"}', "native", "native noise"} <= set(child.output().splitlines())


def test_code_of_the_users_sees_a_program_without_arguments():
    with Child("functions:arguments", None, timeout_s=60.0) as child:
        assert child.wait(60.0) == 0
        (message,) = child.messages()
    (program,) = message["arguments"]
    assert program.endswith("child.py")
