"""Tries an environment in a process of its own before anything is launched: import, spaces, one reset, one step.

An environment may print, hang, crash or call os._exit. The child therefore answers on a private copy of its standard
output and sends the environment's own output, from Python and from C, to standard error. Each line of the answer is
JSON: `{"stage": …}` before each thing that can fail, then `{"spec": …}` or `{"error": …, "detail": …}`.
"""

import contextlib
import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

import distrl
from distrl.config.environment import EnvironmentConfig
from distrl.config.remote_environment import RemoteParameters
from distrl.environments.remote_connection import is_remote, parse_address
from distrl.errors import ConfigError, DistrlError
from distrl.types import EnvSpec

# The child writes where it hangs shortly before the parent ends it.
_WHERE_IT_HANGS_AT = 0.9
_DETAIL_BYTES = 20_000
_PATIENCE_S = 2.0


class ProbeError(ConfigError):
    """The environment cannot be started.

    Attributes:
        detail: The environment's own traceback or output; empty where the message says it all.
    """

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


def probe(config: EnvironmentConfig, *, timeout_s: float | None = None) -> EnvSpec:
    """Returns the environment's spec, found out in a subprocess that imports neither TensorFlow nor Keras nor JAX.

    The subprocess has this process's `sys.path` and working directory, as actors will.

    Args:
        config: The environment, as actors will make it.
        timeout_s: The subprocess and whatever it started are killed after this long; None: `step_timeout_s`, and for a
            remote environment also as long as its own time-outs may take, so that it is these that say what is wrong.

    Raises:
        ProbeError: A ConfigError in one line, with the environment's own traceback in `detail`.
    """
    timeout_s = _limit_s(config) if timeout_s is None else timeout_s
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as output:
        exit_code = _run_child(config, timeout_s, answer, output)
        lines = [json.loads(line) for line in _read(answer).splitlines()]
        last: dict[str, Any] = lines[-1] if lines else {"stage": "start"}
        if exit_code == 0 and "spec" in last:
            return EnvSpec.from_json(last["spec"])
        if "error" in last:
            raise ProbeError(last["error"], last["detail"])
        raise ProbeError(_died(config, last["stage"], exit_code, timeout_s), _read(output)[-_DETAIL_BYTES:])


def _limit_s(config: EnvironmentConfig) -> float:
    if not is_remote(config.id):
        return config.step_timeout_s
    try:
        given = RemoteParameters.model_validate(config.kwargs)
        connect_s = given.first_connection_s(dial=parse_address(config.id).dial)
    except (ValidationError, ConfigError):
        return config.step_timeout_s  # the subprocess says what is wrong
    return config.step_timeout_s + connect_s + given.give_up_s + given.message_timeout_s


def _wait(child: subprocess.Popen[bytes], config: EnvironmentConfig, timeout_s: float) -> None:
    """Waits for the end; says what for, if it takes longer.

    Raises:
        TimeoutExpired: It has not ended in time.
    """
    if timeout_s > _PATIENCE_S:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=_PATIENCE_S)
            return
        print(f"{_doing(config)} …", file=sys.stderr, flush=True)
        timeout_s -= _PATIENCE_S
    child.wait(timeout=timeout_s)


def _doing(config: EnvironmentConfig) -> str:
    if not is_remote(config.id):
        return f"trying out {config.id}"
    address = config.id.partition("://")[2]
    return f"reaching {address}" if config.id.startswith("tcp://") else f"waiting for an environment to dial {address}"


def _run_child(config: EnvironmentConfig, timeout_s: float, answer: IO[bytes], output: IO[bytes]) -> int | None:
    """Exit code of the probing process (negative: a signal), or None if it had to be killed."""
    now = time.monotonic()  # the same for every process of a machine, and nobody sets it
    dump_at = now + _WHERE_IT_HANGS_AT * timeout_s
    times = {"dump_at": dump_at, "end_at": now + timeout_s + 0.5}
    search_path = [str(Path(distrl.__file__).parent.parent), *(entry or os.getcwd() for entry in sys.path)]
    # -P: the working directory must not shadow the standard library. Files, not pipes: a process that the environment
    # left behind would hold a pipe open. A session of its own: so that such a process can be killed with it.
    with tempfile.TemporaryFile() as request:
        request.write(json.dumps({"config": config.model_dump(mode="json"), **times}).encode())
        request.seek(0)
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "distrl.environments.probe"],
            stdin=request,
            stdout=answer,
            stderr=output,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(search_path)},
            start_new_session=True,
        )
    try:
        _wait(child, config, timeout_s)
        return child.returncode
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _died(config: EnvironmentConfig, stage: str, exit_code: int | None, timeout_s: float) -> str:
    if exit_code is None:
        return f"environment {config.id} hung in {stage}: killed after {timeout_s:g} s"
    if exit_code < 0:
        return f"environment {config.id} crashed in {stage}: {signal.Signals(-exit_code).name}"
    return f"environment {config.id} ended its process in {stage} with exit code {exit_code}"


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _main() -> int:
    """The child: reads a request from standard input, answers on what was standard output."""
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    request = json.load(sys.stdin)
    faulthandler.enable()
    # The kernel ends this process even if the environment holds the interpreter and the parent, who would, was killed.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(0.1, request["end_at"] - time.monotonic()))
    faulthandler.dump_traceback_later(max(0.1, request["dump_at"] - time.monotonic()))
    try:
        spec = _try_out(EnvironmentConfig.model_validate(request["config"]), answer)
    except DistrlError as error:
        detail = "" if error.__cause__ is None else "".join(traceback.format_exception(error.__cause__))
        print(json.dumps({"error": str(error), "detail": detail}), file=answer)
        return error.exit_code
    finally:
        if request["config"]["vectorization"] == "async":
            from distrl.environments.fork_server import remove_traces

            remove_traces()
    print(json.dumps({"spec": spec.to_json()}), file=answer)
    return 0


def _try_out(config: EnvironmentConfig, answer: IO[str]) -> EnvSpec:
    # Here, because the parent is the command line, which never imports gymnasium.
    import numpy as np

    from distrl.environments.spaces import random_actions
    from distrl.environments.vector import VectorEnvironment

    print(json.dumps({"stage": "import and construction"}), file=answer)
    environment = VectorEnvironment(config, 1)
    print(json.dumps({"stage": "reset"}), file=answer)
    environment.reset(seed=0)
    print(json.dumps({"stage": "step"}), file=answer)
    environment.step(random_actions(environment.spec.actions, 1, np.random.default_rng(0)))
    print(json.dumps({"stage": "close"}), file=answer)
    environment.close()
    return environment.spec


if __name__ == "__main__":
    # Not sys.exit: threads that the environment started could keep the process from ending.
    os._exit(_main())
