"""Roles as processes: what they are started with, and that nothing of them survives a kill or the launcher."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from distrl.launch.processes import ProcessLauncher
from distrl.roles.lifeline import LIFELINE_VARIABLE
from distrl.roles.plan import Role
from distrl.roles.trust import Trust
from tests.launched_run import run_in
from tests.waiting import wait_until

URL = "redis://me@host:6379"
ROLE = """#!/bin/sh
echo "arguments: $@"
env
sleep 60 &
echo "child: $!"
sleep 60 &
echo "x ERROR distrl: error: what is wrong"
trap 'echo asked; kill $!; exit 7' TERM
echo ready
wait
"""


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def launched(tmp_path, monkeypatch, run_key):
    """(launcher, log directory); every role is the script above."""
    script = tmp_path / "role.sh"
    script.write_text(ROLE)
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    told = []
    launcher = ProcessLauncher(run_in(tmp_path, URL, run_key), report=told.append)
    handles = []

    def start(role):
        handles.append(launcher.start(role))

        def log():
            return os.pread(handles[-1]._log.fileno(), 65536, 0).decode()

        wait_until(lambda: "ready" in log())
        return handles[-1], log()

    start.told = told
    yield start
    for handle in handles:
        handle.kill()
    launcher.close()


def test_an_actor_has_one_thread_no_gpu_and_no_secret_in_its_arguments(launched, run_key, monkeypatch):
    monkeypatch.setenv("DISTRL_REDIS_URL", "redis://me:secret@host:6379")
    handle, log = launched(Role("actor", 3))
    assert f"arguments: -P -m distrl actor --redis-url {URL} --run-id r1 --id 3\n" in log
    lines = log.splitlines()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        assert f"{name}=1" in lines
    assert "CUDA_VISIBLE_DEVICES=" in lines
    assert "DISTRL_REDIS_URL=redis://me:secret@host:6379" in lines  # inherited
    assert f"DISTRL_RUN_KEY={run_key}" in lines
    assert any(line.startswith(f"{LIFELINE_VARIABLE}=") for line in lines)
    assert handle.poll() is None


def test_an_actor_may_import_what_the_operator_allows_and_writes_its_log_where_it_should(
    tmp_path, run_key, monkeypatch
):
    run = run_in(tmp_path, URL, run_key)
    allowed = replace(run.address, trust=Trust(allowed=frozenset({"b:C", "a:B"})))
    (tmp_path / "elsewhere").mkdir()
    launcher = ProcessLauncher(replace(run, address=allowed), log_dir=tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "executable", "/bin/echo")
    handle = launcher.start(Role("actor", 0))
    wait_until(lambda: handle.poll() is not None)
    launcher.close()
    log = (tmp_path / "elsewhere" / "actor-0.log").read_text()
    assert log.endswith(" --id 0 --allow a:B --allow b:C\n")


@pytest.mark.parametrize("url", [URL, "unix:///run/redis.sock"])
def test_roles_share_weights_that_cross_a_network_until_the_launcher_closes(tmp_path, run_key, url):
    launcher = ProcessLauncher(run_in(tmp_path, url, run_key))
    shared = launcher._environment(Role("actor", 0))["DISTRL_HOST_WEIGHTS"]
    assert Path(shared).is_dir() if url == URL else shared == ""
    launcher.close()
    assert shared == "" or not Path(shared).exists()


def test_the_learner_has_its_threads_and_the_gpus_there_are(launched, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    _, log = launched(Role("learner"))
    assert f"arguments: -P -m distrl learner --redis-url {URL} --run-id r1\n" in log
    assert "OMP_NUM_THREADS=3" in log.splitlines()
    assert "CUDA_VISIBLE_DEVICES=0" in log.splitlines()
    assert "TF_CPP_MIN_LOG_LEVEL=" in log


def test_a_role_is_asked_first_and_its_code_is_told(launched, tmp_path):
    handle, _ = launched(Role("actor", 0))
    handle.terminate()
    wait_until(lambda: handle.poll() is not None)
    assert handle.poll() == 7
    assert (tmp_path / "logs" / "actor-0.log").read_text().endswith("asked\n")


def test_a_kill_takes_along_what_the_environment_has_started(launched):
    handle, log = launched(Role("actor", 0))
    child = int(log.split("child: ")[1].split()[0])
    assert runs(child)
    handle.kill()
    assert handle.poll() == -9
    wait_until(lambda: not runs(child))
    handle.kill()  # once more does nothing


@pytest.mark.parametrize("how", ["crashed", "in order"])
def test_what_an_environment_has_started_does_not_outlive_an_actor_that_ended_by_itself(launched, how):
    handle, log = launched(Role("actor", 0))
    child = int(log.split("child: ")[1].split()[0])
    os.kill(handle._process.pid, signal.SIGKILL if how == "crashed" else signal.SIGTERM)
    wait_until(lambda: handle.poll() is not None)
    assert handle.poll() == (-9 if how == "crashed" else 7)
    wait_until(lambda: not runs(child))


def test_a_number_that_has_been_reaped_gets_no_signal(launched, monkeypatch):
    handle, _ = launched(Role("actor", 0))
    os.killpg(handle._process.pid, signal.SIGKILL)
    handle._process.wait()
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("it may be another group's by now"))
    assert handle.poll() == -9
    handle.kill()


@pytest.mark.parametrize("role", [Role("actor", 0), Role("learner")])
def test_a_role_whose_log_cannot_be_opened_runs_and_tells_its_error_and_the_user_is_told_once(launched, tmp_path, role):
    (tmp_path / "logs" / role.log_name).mkdir()
    for _ in range(2):
        handle, log = launched(role)
        assert "arguments: -P -m distrl" in log
        handle.terminate()
        wait_until(lambda handle=handle: handle.poll() is not None)
        assert (handle.poll(), handle.error) == (7, "what is wrong")
    (told,) = launched.told
    assert told.startswith(f"{role.name} runs without a log ([Errno 21] Is a directory")


def test_an_error_that_was_logged_is_known_although_the_log_was_removed(launched, tmp_path):
    handle, _ = launched(Role("actor", 0))
    (tmp_path / "logs" / "actor-0.log").unlink()
    handle.terminate()
    wait_until(lambda: handle.poll() is not None)
    assert handle.error == "what is wrong"


def test_ctrl_c_passes_a_role_by_and_its_niceness_counts_beside_the_others(launched):
    """It comes to a whole process group, and Linux weighs niceness within one session."""
    handle, _ = launched(Role("actor", 0))
    assert os.getpgid(handle._process.pid) == handle._process.pid
    assert os.getsid(handle._process.pid) == os.getsid(0)
