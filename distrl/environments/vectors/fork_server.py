"""The fork server that workers of `async_vector` come from: it outlives its actor, and cleans up behind it.

An actor that is killed cannot remove the directory of the fork server's socket. The fork server ends by itself once the
actor and all workers have ended, and removes it then. For that it leaves the actor's process group, which may be killed
as a whole; workers return to it. Python's resource tracker, which removes the semaphores of a process that was killed,
stays out of that group, too.
"""

import atexit
import multiprocessing
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker, util

_DIRECTORY_VARIABLE = "DISTRL_FORK_SERVER_DIRECTORY"
_SAFE_PATH_VARIABLE, _FOR_FORK_SERVER = "PYTHONSAFEPATH", "distrl"
"""As -P does: multiprocessing starts interpreters by -c, for which the working directory would shadow the library."""


def ensure_running(module: str) -> None:
    """Start the server unless it runs. It imports `module` once, and each worker is a copy of it."""
    os.environ.setdefault(_SAFE_PATH_VARIABLE, _FOR_FORK_SERVER)
    multiprocessing.get_context("forkserver").set_forkserver_preload([__name__, module])
    os.environ[_DIRECTORY_VARIABLE] = util.get_temp_dir()
    try:
        with _in_parents_group():
            resource_tracker.ensure_running()
        forkserver.ensure_running()
    finally:
        del os.environ[_DIRECTORY_VARIABLE]
        _forget_safe_path()


@contextmanager
def _in_parents_group() -> Iterator[None]:
    """While the block runs, a role that leads a process group is in its parent's, if the two have one session."""
    moved = False
    if os.getpgrp() == os.getpid() and not os.isatty(0):  # a command in a terminal is that terminal's job
        with suppress(OSError):  # another session, or this process leads its own
            os.setpgid(0, os.getpgid(os.getppid()))
            moved = True
    try:
        yield
    finally:
        if moved:
            os.setpgid(0, 0)


def join_parents_group() -> None:
    """Put a worker into the actor's process group, so that a signal to the group reaches it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    assert parent.pid is not None
    os.setpgid(0, os.getpgid(parent.pid))


def remove_traces() -> None:
    """Remove the fork server's directory, in a process that ends by os._exit, which skips Python's own cleaning."""
    shutil.rmtree(util.get_temp_dir(), ignore_errors=True)


def _forget_safe_path() -> None:
    """Keep a variable that is not the user's from the environment's children."""
    if os.environ.get(_SAFE_PATH_VARIABLE) == _FOR_FORK_SERVER:
        del os.environ[_SAFE_PATH_VARIABLE]


def _in_fork_server(directory: str) -> None:
    os.setpgid(0, 0)
    _forget_safe_path()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)


if _DIRECTORY_VARIABLE in os.environ:  # it is being imported there
    _in_fork_server(os.environ.pop(_DIRECTORY_VARIABLE))
