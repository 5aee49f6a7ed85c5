"""Roles as operating-system processes: each is `python -m distrl ROLE`, which also works by hand."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from distrl.launch.fleet import last_error
from distrl.launch.head_start import HeadStart
from distrl.memory_backend.host_weights import HOST_WEIGHTS_VARIABLE, SharedDirectory
from distrl.process_group import end_group, has_ended
from distrl.role_kinds import KINDS
from distrl.roles.description import LaunchedRun
from distrl.roles.lifeline import LIFELINE_VARIABLE, Lifeline
from distrl.roles.plan import Role
from distrl.roles.trust import KEY_VARIABLE


class ProcessHandle:
    """One started role, which leads a process group of its own.

    Its output goes to `log`, from byte `log_start` on; the handle closes the log when the role has ended.
    """

    waits_for = None

    def __init__(self, role: Role, process: subprocess.Popen[bytes], log: IO[bytes], log_start: int) -> None:
        self.role = role
        self.error: str | None = None
        self._process = process
        self._log = log
        self._log_start = log_start

    def poll(self) -> int | None:
        """Return the exit code (negative: the signal), None while running."""
        if not self._log.closed and has_ended(self._process):
            self._finish()
        return self._process.returncode

    def terminate(self) -> None:
        if not self._log.closed and not has_ended(self._process):
            os.kill(self._process.pid, signal.SIGTERM)  # not terminate(), which may reap it before `end_group`

    def kill(self) -> None:
        if not self._log.closed:
            self._finish()

    def _finish(self) -> None:
        end_group(self._process)
        self.error = last_error(self._log, self._log_start)
        self._log.close()


class ProcessLauncher:
    """Starts roles as child processes with one numeric thread each.

    They get process groups of their own, so that Ctrl-C reaches the supervisor alone and it can end them in order; not
    sessions, each of which Linux would give the same share of the cores, whatever `give_way` asks for.

    Args:
        report: Takes one line for the user.
        log_dir: Folder of the logs; by default the one in the run's directory, which another host may not have.
    """

    def __init__(
        self,
        run: LaunchedRun,
        head_start: HeadStart | None = None,
        report: Callable[[str], None] = lambda text: None,
        log_dir: Path | None = None,
    ) -> None:
        self._run = run
        self._log_dir = run.log_dir if log_dir is None else log_dir
        self._head_start = head_start
        self._report = report
        self._without_log: set[Role] = set()
        self._lifeline = Lifeline()
        # A unix socket has both ends on this host, where no network is saved.
        self._weights = None if run.address.redis_url.startswith("unix:") else SharedDirectory()

    def start(self, role: Role) -> ProcessHandle:
        log, path = self._open_log(role)
        log_start = os.fstat(log.fileno()).st_size
        if role.kind == "learner" and (learner := self._started_before(path)) is not None:
            return ProcessHandle(role, learner, log, log_start)
        address = self._run.address
        command = [sys.executable, "-P", "-m", "distrl", role.kind]
        command += ["--redis-url", address.redis_url, "--run-id", address.run_id]
        if KINDS[role.kind].numbered:
            command += ["--id", str(role.id)]
        allowed = () if KINDS[role.kind].needs_key else sorted(self._run.address.trust.allowed)
        for name in allowed:
            command += ["--allow", name]
        process = subprocess.Popen(  # our own interpreter and arguments
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=self._environment(role),
            pass_fds=(self._lifeline.read_fd,),
            process_group=0,
        )
        return ProcessHandle(role, process, log, log_start)

    def close(self) -> None:
        """Close the lifeline; roles that are still alive end by themselves, and share no weights any longer."""
        self._lifeline.close()
        if self._weights is not None:
            self._weights.close()

    def _open_log(self, role: Role) -> tuple[IO[bytes], Path | None]:
        """Open the role's log; where that fails, report it and use an unnamed temporary file."""
        path = self._log_dir / role.log_name
        try:
            return path.open("a+b"), path
        except OSError as error:
            if role not in self._without_log:
                self._without_log.add(role)
                self._report(f"{role.name} runs without a log ({error}); only the error that ends it is shown")
            return tempfile.TemporaryFile(), None

    def _started_before(self, log: Path | None) -> "subprocess.Popen[bytes] | None":
        if self._head_start is None:
            return None
        if log is None:  # it opens its log by name
            self._head_start.close()
            return None
        return self._head_start.become_learner(self._run.address, log)

    def _environment(self, role: Role) -> dict[str, str]:
        return {
            **os.environ,
            # In the environment rather than in the arguments, which every user of the machine can read.
            KEY_VARIABLE: self._run.address.trust.key or "",
            LIFELINE_VARIABLE: str(self._lifeline.read_fd),
            HOST_WEIGHTS_VARIABLE: "" if self._weights is None else str(self._weights.path),
            "PYTHONUNBUFFERED": "1",
            **self._run.variables(role),
        }
