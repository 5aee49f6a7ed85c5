"""Roles as operating-system processes: each is `python -m distrl ROLE`, as anyone can start it by hand."""

import os
import signal
import subprocess
import sys

from distrl.launch.head_start import HeadStart
from distrl.launch.lifeline import LIFELINE_VARIABLE, Lifeline
from distrl.launch.plan import Role, RoleHome

REDIS_URL_VARIABLE = "DISTRL_REDIS_URL"


class ProcessHandle:
    """One started role."""

    def __init__(self, role: Role, process: subprocess.Popen[bytes]) -> None:
        self.role = role
        self._process = process

    def poll(self) -> int | None:
        """The exit code (negative: the signal), None while running."""
        return self._process.poll()

    def terminate(self) -> None:
        """Asks for a clean end; the role finishes what it is doing."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends the role at once, and whatever processes its environment has started in its group."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class ProcessLauncher:
    """Starts roles as child processes with one numeric thread each and no GPU but for the learner.

    They get process groups of their own, so that Ctrl-C reaches the supervisor alone and it can end them in order; not
    sessions, each of which Linux would give the same share of the cores, whatever `give_way` asks for.

    Args:
        head_start: An interpreter that is on its way already, for the first learner.
    """

    def __init__(self, home: RoleHome, head_start: HeadStart | None = None) -> None:
        self._home = home
        self._head_start = head_start
        self._lifeline = Lifeline()

    def start(self, role: Role) -> ProcessHandle:
        if role.kind == "learner" and (learner := self._started_before(role)) is not None:
            return ProcessHandle(role, learner)
        command = [sys.executable, "-m", "distrl", role.kind, "--run-id", self._home.run_id]
        if role.kind == "actor":
            command += ["--id", str(role.id)]
        with (self._home.log_dir / role.log_name).open("ab") as log:
            process = subprocess.Popen(  # our own interpreter and arguments
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(role),
                pass_fds=(self._lifeline.read_fd,),
                process_group=0,
            )
        return ProcessHandle(role, process)

    def close(self) -> None:
        """Lets go of the lifeline; whatever role is still alive ends by itself."""
        self._lifeline.close()

    def _started_before(self, role: Role) -> "subprocess.Popen[bytes] | None":
        if self._head_start is None:
            return None
        home = self._home
        return self._head_start.become_learner(
            redis_url=home.redis_url, run_id=home.run_id, log=home.log_dir / role.log_name
        )

    def _environment(self, role: Role) -> dict[str, str]:
        return {
            **os.environ,
            # In the environment rather than in the arguments, where everyone on the machine could read a password.
            REDIS_URL_VARIABLE: self._home.redis_url,
            LIFELINE_VARIABLE: str(self._lifeline.read_fd),
            "PYTHONUNBUFFERED": "1",
            **self._home.variables(role),
        }
