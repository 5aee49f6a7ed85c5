"""Asks a class of the user's own, in a process of its own, what it declares and whether its parameters are right.

The command line and the actors import no numeric framework, and the class does. Before anything is launched, a
subprocess imports it, checks the section `algorithm` against the class' `Parameters`, makes an instance, and answers
with the whole section: every key, and what all roles must know of the class (`config/algorithms/external.py`).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from typing import IO, Any

from pydantic import ValidationError

from distrl.config import RunConfig
from distrl.config.algorithms import ExternalAlgorithmParameters
from distrl.config.load import LoadedConfig
from distrl.errors import ConfigError, DistrlError
from distrl.roles.framework import import_framework, require_framework
from distrl.user_classes import search_path

_TIMEOUT_S = 300.0  # nearly all of what it takes is the framework's import
_DETAIL_BYTES = 20_000


class ExternalAlgorithmError(ConfigError):
    """The class cannot be used.

    Attributes:
        detail: Its own traceback or output; empty where the message says it all.
    """

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


def settled(loaded: LoadedConfig, *, timeout_s: float = _TIMEOUT_S) -> LoadedConfig:
    """The configuration with all that a class of the user's own says; every other one as it is.

    The subprocess has this process's `sys.path` and working directory, as the learner will.

    Raises:
        ConfigError: In one line: the class cannot be imported or is no algorithm, a key is unknown, a value is wrong,
            `algorithm.declared` is not what the class says, or the configuration does not go with it.
        MissingExtraError: The framework is not installed.
    """
    given = loaded.config.algorithm
    if not isinstance(given, ExternalAlgorithmParameters):
        return loaded
    require_framework(loaded.config.learner.backend)
    section = ExternalAlgorithmParameters.model_validate(_ask(loaded, given.name, timeout_s))
    if given.declared not in (None, section.declared):
        raise ConfigError(
            f"algorithm.declared is not what {given.name} says of itself: "
            f"{section.declared!r}; leave algorithm.declared out"
        )
    declared = dict.fromkeys(_below("algorithm.declared", section.model_dump(mode="json")["declared"]), given.name)
    return loaded.with_algorithm(section.model_dump(mode="json"), declared)


def _below(path: str, value: Any) -> Iterable[str]:
    """Dotted paths of the values of a tree."""
    if not (isinstance(value, dict) and value):
        return [path]
    return [leaf for key, inner in value.items() for leaf in _below(f"{path}.{key}", inner)]


def _ask(loaded: LoadedConfig, name: str, timeout_s: float) -> Any:
    """What the subprocess answers: the section."""
    request = {"config": loaded.config.model_dump(mode="json", exclude_unset=True), "origins": loaded.origins}
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as output:
        end_at = time.monotonic() + timeout_s + 0.5  # the same for every process of a machine, and nobody sets it
        asked.write(json.dumps(request | {"end_at": end_at}).encode())
        asked.seek(0)
        # -P: the working directory must not shadow the standard library. Files, not pipes, and a session of its own:
        # what the class may have started must not keep this process waiting.
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "distrl.launch.external_algorithm"],
            stdin=asked,
            stdout=answer,
            stderr=output,
            env={
                **os.environ,
                "PYTHONPATH": search_path(),
                "CUDA_VISIBLE_DEVICES": "",
                "TF_CPP_MIN_LOG_LEVEL": "3",
            },
            start_new_session=True,
        )
        ended = _end_of(child, timeout_s)
        told = _read(answer)
        if told:
            message: dict[str, Any] = json.loads(told)
            if "error" in message:
                raise ExternalAlgorithmError(message["error"], message["detail"])
            return message["algorithm"]
        raise ExternalAlgorithmError(f"algorithm {name} {ended} when it was tried out", _read(output)[-_DETAIL_BYTES:])


def _end_of(child: subprocess.Popen[bytes], timeout_s: float) -> str:
    """How the subprocess ended, in words; nothing of it is left."""
    try:
        child.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return f"hung, and was killed after {timeout_s:g} s,"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    code = child.returncode
    return f"ended its process with exit code {code}" if code >= 0 else f"crashed with {signal.Signals(-code).name}"


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _main() -> int:
    """The child: reads the request from standard input, answers on what was standard output."""
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # where the class may print
    request = json.load(sys.stdin)
    # The kernel ends this process even if the class holds the interpreter and the parent, who would, was killed.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(0.1, request["end_at"] - time.monotonic()))
    loaded = LoadedConfig(RunConfig.model_validate(request["config"]), request["origins"])
    try:
        import_framework(loaded.config.learner.backend)
        from distrl.algorithms.external import tried_out  # here: the parent is the command line, which has no Keras

        section = tried_out(loaded)
    except DistrlError as error:
        cause = None if isinstance(error.__cause__, ValidationError) else error.__cause__  # of which the line says all
        detail = "" if cause is None else "".join(traceback.format_exception(cause))
        print(json.dumps({"error": str(error), "detail": detail}), file=answer)
        return error.exit_code
    print(json.dumps({"algorithm": section.model_dump(mode="json")}), file=answer)
    return 0


if __name__ == "__main__":
    # Not sys.exit: threads that the class started could keep the process from ending.
    os._exit(_main())
