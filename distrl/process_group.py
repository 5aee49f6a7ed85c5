"""The end of a process that leads a group of its own, and of every process that it has left in the group."""

import contextlib
import os
import signal
import subprocess


def has_ended(process: "subprocess.Popen[bytes]", *, wait: bool = False) -> bool:
    """Return whether a process has ended, which `end_group` reaps; until then no other process gets its number.

    Args:
        wait: Return only when it has.
    """
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return (process.wait() if wait else process.poll()) is not None
    how = os.WEXITED | os.WNOWAIT | (0 if wait else os.WNOHANG)
    try:
        return os.waitid(os.P_PID, process.pid, how) is not None
    except ChildProcessError:  # it is reaped: by the kernel where the parent ignores SIGCHLD
        return process.poll() is not None


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and what it has started, such as simulators and helpers of libraries; then reap it.

    A number that has been reaped may belong to another group by now, and gets no signal. A process that has made a
    session or a group of its own is not reached.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS refuses where only zombies are left
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()  # in case it has left its group
        process.wait()


def end_own_group(leader: int) -> None:
    """Kill the group that process `leader` leads, itself too.

    Nothing happens in a child of it, which inherits its calls, nor if it leads none.
    """
    if os.getpid() == os.getpgrp() == leader:
        os.killpg(leader, signal.SIGKILL)
