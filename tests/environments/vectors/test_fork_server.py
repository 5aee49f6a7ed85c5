"""An actor that is killed, alone or with its whole process group, leaves no directory, process or semaphore behind."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until

STARTER = """
import gc, os, signal, sys
from multiprocessing import synchronize
from distrl.config.environment import EnvironmentConfig
from distrl.environments.vector import VectorEnvironment

environment = VectorEnvironment(EnvironmentConfig(vectorization="async"), 1)
(worker,) = environment.vector.processes
print(worker.pid, os.getpgid(worker.pid) == os.getpgid(0), "DISTRL_FORK_SERVER_DIRECTORY" in os.environ)
assert "PYTHONSAFEPATH" not in os.environ
locks = [one for one in gc.get_objects() if isinstance(one, synchronize.SemLock)]
semaphores = ["/dev/shm/sem." + lock._semlock.name.strip("/") for lock in locks]
print(os.getpgid(0) == os.getpid(), *semaphores, flush=True)
signal.pause()
"""


def is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("kill", [os.killpg, pytest.param(os.kill, marks=pytest.mark.long)])
def test_nothing_is_left_of_an_actor_that_is_killed(kill) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # a short path, as the names of sockets must be
        actor = subprocess.Popen(
            [sys.executable, "-c", STARTER],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": directory},
            process_group=0,
        )
        assert actor.stdout is not None
        pid, in_its_group, in_environment = actor.stdout.readline().split()
        assert (in_its_group, in_environment) == ("True", "False")
        leads_its_group, *semaphores = actor.stdout.readline().split()
        assert leads_its_group == "True"
        assert semaphores
        assert all(map(os.path.exists, semaphores))
        worker = psutil.Process(int(pid))
        server = worker.parent()
        assert server is not None
        assert [path.name[:5] for path in Path(directory).iterdir()] == ["pymp-"]
        kill(actor.pid, signal.SIGKILL)
        actor.wait()
        actor.stdout.close()
        wait_until(lambda: os.listdir(directory) == [])
        wait_until(lambda: not any(is_running(process) for process in (worker, server)))
        wait_until(lambda: not any(map(os.path.exists, semaphores)))
