"""A head start for the learner: a child imports the framework while the run is still being set up.

The import takes longer than everything else before the first update. The child then reads one line of JSON from its
standard input, which names the run to join; the same pipe is its lifeline."""

import atexit
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.networks.framework.lean_import import collector_at_rest
from distrl.roles.lifeline import LIFELINE_VARIABLE
from distrl.user_classes import hide_arguments

if TYPE_CHECKING:
    from distrl.config import RunConfig
    from distrl.roles.description import RunAddress


class HeadStart:
    """The parent's side; making it starts the child."""

    def __init__(self, framework: str, variables: Mapping[str, str]) -> None:
        self._given = False
        with tempfile.TemporaryFile() as said:  # the run has no log yet
            self._process = subprocess.Popen(  # our own interpreter and arguments
                [sys.executable, "-P", "-m", "distrl.launch.head_start", framework],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **variables},
                process_group=0,
            )

    def become_learner(self, address: "RunAddress", log: Path) -> "subprocess.Popen[bytes] | None":
        """Let the child join a run and write to `log`; None if it has done so before, or has ended."""
        assert self._process.stdin is not None
        if self._given or self._process.poll() is not None:
            return None
        run = {"redis_url": address.redis_url, "run_id": address.run_id, "run_key": address.trust.key}
        try:
            self._process.stdin.write(json.dumps({**run, "log": str(log.resolve())}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:  # it ends just now
            return None
        self._given = True
        return self._process

    def close(self) -> None:
        """End the child unless it has become the learner, which ends by itself."""
        assert self._process.stdin is not None
        if not self._given and self._process.poll() is None:  # the number of one that has ended may be another's
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with contextlib.suppress(BrokenPipeError):  # what could not be written above
            self._process.stdin.close()


@contextmanager
def head_start(config: "RunConfig") -> Iterator[HeadStart | None]:
    """While inside, a child imports the framework, or is the learner; None where the learner is no child process."""
    from distrl.roles.framework import require_framework, role_variables

    require_framework(config.learner.backend)
    if config.deterministic or config.launch.launcher != "process":
        yield None
        return
    started = HeadStart(config.learner.backend, role_variables(config.learner.threads, {}))
    try:
        yield started
    finally:
        started.close()


def main(framework: str) -> int:
    """Run the child; return the learner's exit code, or 0 if there was no run to join."""
    lifeline = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with collector_at_rest():
        # First what the learner needs besides, so that two threads never import at the same time what they share.
        from distrl.roles import plan, running, trust
    atexit.register(gc.freeze)  # as in apps/commands/main.py
    threading.Thread(target=_import, args=(framework,), name="framework", daemon=True).start()
    line = _read_line(lifeline)
    if not line:
        os._exit(0)  # not sys.exit, which would wait for the import
    run = json.loads(line)
    _log_to(run["log"])
    os.environ[LIFELINE_VARIABLE] = str(lifeline)
    os.environ[trust.KEY_VARIABLE] = run["run_key"]
    return running.run_here(plan.Role("learner"), redis_url=run["redis_url"], run_id=run["run_id"])


def _import(framework: str) -> None:
    from distrl.roles.framework import import_framework

    with contextlib.suppress(Exception):  # the learner imports it again, and reports the error
        import_framework(framework)


def _read_line(descriptor: int) -> bytes:
    """Read one line with its end; empty if the pipe ends before."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(descriptor, 65536)
        if not piece:
            return b""
        line += piece
    return line


def _log_to(path: str) -> None:
    """Send standard output and standard error to `path`, with all that they have got so far."""
    so_far = os.dup(2)
    with open(path, "ab") as log:
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
        log.write(os.pread(so_far, os.fstat(so_far).st_size, 0))
    os.close(so_far)


if __name__ == "__main__":
    sys.exit(main(*hide_arguments()))
