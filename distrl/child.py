"""Run a function in a process of its own, because it may hang, crash, print, or call os._exit.

The child is `python -m distrl.child module:function descriptor`. It reads a request as JSON from standard input and
answers with lines of JSON in the open file of that number: standard output and standard error belong to everybody's
code, from the start of the interpreter (`sitecustomize`) on. An error of distrl's own becomes the line
`{"error": …, "detail": …, "exit_code": …}`.
"""

import contextlib
import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from typing import IO, Any, TypeVar

from distrl.errors import ConfigError, DistrlError
from distrl.user_classes import hide_arguments, search_path

DETAIL_BYTES = 20_000
_WHERE_IT_HANGS_AT = 0.9
_ALONE_S = 5.0
Error = TypeVar("Error", bound=Exception)


class Child:
    """A child process. Leaving the context kills it and every process that it has started.

    The child has this process's `sys.path` and working directory.

    Args:
        function: module:function; called with the request and a `Parent`.
        request: Anything that JSON can hold.
        timeout_s: See `Parent.limit`. The caller waits and kills; this limit is for a child that outlives its caller.
        variables: Environment variables that differ from this process's; None removes one.
    """

    def __init__(
        self, function: str, request: Any, *, timeout_s: float, variables: Mapping[str, str | None] | None = None
    ) -> None:
        changed = {**os.environ, "PYTHONPATH": search_path(), **(variables or {})}
        self._read_bytes = 0
        self._files = contextlib.ExitStack()
        self._answer = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        self._output = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        with tempfile.TemporaryFile() as asked:
            asked.write(json.dumps({"began": time.monotonic(), "timeout_s": timeout_s, "request": request}).encode())
            asked.seek(0)
            # -P: the working directory must not shadow the standard library. Files, not pipes: a process that the
            # child left behind would hold a pipe open. A session of its own, so that such a process is killed with it.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "distrl.child", function, str(self._answer.fileno())],
                stdin=asked,
                stdout=self._output,
                stderr=self._output,
                pass_fds=[self._answer.fileno()],
                env={name: value for name, value in changed.items() if value is not None},
                start_new_session=True,
            )

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._files.close()

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit code (negative: a signal), or None if the child still runs after `timeout_s`."""
        try:
            return self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def messages(self) -> list[dict[str, Any]]:
        """Return the child's messages since the last call, without a line that it is still writing."""
        new = _read_from(self._answer, self._read_bytes)  # not by seek: both processes share the file's position
        whole = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def output(self) -> str:
        """Return the end of all other output, such as a stack of native code."""
        return _read_from(self._output, 0).decode(errors="replace")[-DETAIL_BYTES:]


def _read_from(file: IO[bytes], offset: int) -> bytes:
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size - offset, offset)


def ending(exit_code: int | None, doing: str, limit_s: float) -> str:
    """Return a phrase for the end of a child: a hang if it still runs (None), a crash, or an exit code."""
    if exit_code is None:
        return f"hung {doing}: killed after {limit_s:g} s"
    if exit_code < 0:
        return f"crashed {doing}: {signal.Signals(-exit_code).name}"
    return f"ended its process {doing} with exit code {exit_code}"


def answer_of(function: str, request: Any, what: str, timeout_s: float) -> dict[str, Any]:
    """Return the first message of a child that tries out code of the user's, without a GPU.

    Raises:
        ConfigError: The child reports an error, hangs, crashes or ends without a message; names `what` it tried.
    """
    variables = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    with Child(function, request, timeout_s=timeout_s, variables=variables) as child:
        exit_code = child.wait(timeout_s)
        messages, output = child.messages(), child.output()
    if not messages:
        raise with_detail(ConfigError(f"{what} {ending(exit_code, 'when it was tried out', timeout_s)}"), output)
    if "error" in messages[0]:
        raise with_detail(ConfigError(messages[0]["error"]), messages[0]["detail"])
    return messages[0]


def to_stderr(text: str) -> None:
    """Print one line to standard error; a terminal that takes no more is no reason to stop."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def with_detail(error: Error, detail: str) -> Error:
    """Note in the error a traceback or output that is printed below its line; empty: there is none."""
    if detail:
        error.add_note(detail)
    return error


class Parent:
    """The parent process, as the child sees it.

    Attributes:
        gives_up_at: Monotonic seconds, the same for all processes of a machine.
    """

    def __init__(self, answer: IO[str], began: float, timeout_s: float) -> None:
        self._answer = answer
        self.limit(timeout_s, began)

    def say(self, **message: Any) -> None:
        """Send one message."""
        print(json.dumps(message), file=self._answer)

    def limit(self, timeout_s: float, began: float | None = None) -> None:
        """Print where the child hangs shortly before `timeout_s` are over, and end it a few seconds after.

        The kernel ends it, even if the function holds the interpreter and the parent was killed.
        """
        now = time.monotonic()
        began = now if began is None else began
        self.gives_up_at = began + timeout_s
        faulthandler.cancel_dump_traceback_later()
        faulthandler.dump_traceback_later(max(0.1, began + _WHERE_IT_HANGS_AT * timeout_s - now))
        signal.setitimer(signal.ITIMER_REAL, max(0.1, self.gives_up_at - now) + _ALONE_S)


def _main(function: str, descriptor: str) -> int:
    os.set_inheritable(int(descriptor), False)
    answer = os.fdopen(int(descriptor), "w", buffering=1)
    asked = json.load(sys.stdin)
    faulthandler.enable()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    parent = Parent(answer, asked["began"], asked["timeout_s"])
    module, _, name = function.partition(":")
    try:
        getattr(importlib.import_module(module), name)(asked["request"], parent)
    except DistrlError as error:
        detail = "" if error.__cause__ is None else "".join(traceback.format_exception(error.__cause__))
        parent.say(error=str(error), detail=detail, exit_code=error.exit_code)
        return error.exit_code
    return 0


if __name__ == "__main__":
    # Not sys.exit: threads that the function started could keep the process from ending.
    os._exit(_main(*hide_arguments()))
