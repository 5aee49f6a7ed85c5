"""Tries an environment in a process of its own before anything is launched: import, spaces, one episode.

An environment may print, hang, crash or call os._exit. The child therefore answers on a private copy of its standard
output and sends the environment's own output, from Python and from C, to standard error. The answer is lines of JSON:
`{"stage": …}` before each thing that can fail, `{"spec": …}` after the first step, and `{"error": …, "detail": …}`.

An environment that fails after its first step is tried once more, with other seeds. What fails in the same way is
refused. What does not may pass in training, where an actor that ends is started again.
"""

import contextlib
import faulthandler
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from pydantic import ValidationError

from distrl.config.environment import EnvironmentConfig
from distrl.config.remote_environment import RemoteParameters
from distrl.environments.remote.connection import is_remote, parse_address
from distrl.errors import ConfigError, DistrlError
from distrl.types import EnvSpec
from distrl.user_classes import search_path

# The child writes where it hangs shortly before the parent ends it.
_WHERE_IT_HANGS_AT = 0.9
_DETAIL_BYTES = 20_000
_PATIENCE_S = 2.0
EPISODE_S = 1.0
"""The episode of a trial is cut short after this long, or half of the time that is left, if that is less."""


class ProbeError(ConfigError):
    """The environment cannot be started.

    Attributes:
        detail: The environment's own traceback or output; empty where the message says it all.
    """

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


@dataclass(frozen=True)
class _Trial:
    """The outcome of one subprocess.

    Attributes:
        spec: None where not even the first step was made.
        failure: None where the episode ended, or was cut short.
    """

    spec: EnvSpec | None
    failure: ProbeError | None


def probe(config: EnvironmentConfig, *, action_mask: str | None = None, timeout_s: float | None = None) -> EnvSpec:
    """Return the environment's spec, found out in a subprocess that imports neither TensorFlow nor Keras nor JAX.

    The subprocess has this process's `sys.path` and working directory, as actors will. It plays one episode with random
    actions, for at most `EPISODE_S`.

    Args:
        config: The environment, as actors will make it.
        action_mask: `NetworkParameters.action_mask`: random actions are drawn from what it allows.
        timeout_s: The subprocess and whatever it started are killed after this long; None: `step_timeout_s`, and for a
            remote environment also as long as its own time-outs may take, so that it is these that say what is wrong.

    Raises:
        ProbeError: A ConfigError in one line, with the environment's own traceback in `detail`.
    """
    timeout_s = _limit_s(config) if timeout_s is None else timeout_s
    first = _try(config, action_mask, timeout_s, seed=0)
    if first.failure is None and first.spec is not None:
        return first.spec
    assert first.failure is not None
    if first.spec is None:
        raise first.failure
    if str(_try(config, action_mask, timeout_s, seed=1).failure) == str(first.failure):
        raise first.failure
    print(f"{first.failure}; a second trial did not fail in that way: going on", file=sys.stderr, flush=True)
    return first.spec


def _try(config: EnvironmentConfig, action_mask: str | None, timeout_s: float, seed: int) -> _Trial:
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as output:
        exit_code = _run_child(config, action_mask, timeout_s, seed, answer, output)
        lines = _read(answer).splitlines()
        last: dict[str, Any] = json.loads(lines[-1]) if lines else {"stage": "start"}
        given = next((json.loads(line)["spec"] for line in lines if line.startswith('{"spec"')), None)
        spec = None if given is None else EnvSpec.from_json(given)
        if exit_code == 0 and spec is not None:
            return _Trial(spec, None)
        if "error" in last:
            return _Trial(spec, ProbeError(last["error"], last["detail"]))
        how = _died(config, last["stage"], exit_code, timeout_s)
        return _Trial(spec, ProbeError(how, _read(output)[-_DETAIL_BYTES:]))


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
        with contextlib.suppress(OSError):  # a terminal that takes no more is no reason to stop
            print(f"{_doing(config)} …", file=sys.stderr, flush=True)
        timeout_s -= _PATIENCE_S
    child.wait(timeout=timeout_s)


def _doing(config: EnvironmentConfig) -> str:
    if not is_remote(config.id):
        return f"trying out {config.id}"
    address = config.id.partition("://")[2]
    return f"reaching {address}" if config.id.startswith("tcp://") else f"waiting for an environment to dial {address}"


def _run_child(
    config: EnvironmentConfig,
    action_mask: str | None,
    timeout_s: float,
    seed: int,
    answer: IO[bytes],
    output: IO[bytes],
) -> int | None:
    """Exit code of the probing process (negative: a signal), or None if it had to be killed."""
    now = time.monotonic()  # the same for every process of a machine, and nobody sets it
    dump_at = now + _WHERE_IT_HANGS_AT * timeout_s
    times = {"dump_at": dump_at, "end_at": now + timeout_s + 0.5, "episode_s": EPISODE_S}
    # -P: the working directory must not shadow the standard library. Files, not pipes: a process that the environment
    # left behind would hold a pipe open. A session of its own: so that such a process can be killed with it.
    with tempfile.TemporaryFile() as request:
        asked = {"config": config.model_dump(mode="json"), "action_mask": action_mask, "seed": seed, **times}
        request.write(json.dumps(asked).encode())
        request.seek(0)
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "distrl.environments.probe"],
            stdin=request,
            stdout=answer,
            stderr=output,
            env={**os.environ, "PYTHONPATH": search_path()},
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
        _try_out(EnvironmentConfig.model_validate(request["config"]), request, answer)
    except DistrlError as error:
        detail = "" if error.__cause__ is None else "".join(traceback.format_exception(error.__cause__))
        print(json.dumps({"error": str(error), "detail": detail}), file=answer)
        return error.exit_code
    finally:
        if request["config"]["vectorization"] == "async":
            from distrl.environments.vectors.fork_server import remove_traces

            remove_traces()
    return 0


def _try_out(config: EnvironmentConfig, request: Mapping[str, Any], answer: IO[str]) -> None:
    # Here, because the parent is the command line, which never imports gymnasium.
    import numpy as np

    from distrl.environments.random_actions import RandomActions
    from distrl.environments.vector import VectorEnvironment

    def at(stage: str) -> None:
        print(json.dumps({"stage": stage}), file=answer)

    at("import and construction")
    environment = VectorEnvironment(config, 1)
    draw = RandomActions(environment.spec, np.random.default_rng(request["seed"]), request["action_mask"])
    at("reset")
    observations = environment.reset(seed=request["seed"])
    until = time.monotonic() + request["episode_s"]
    for number in itertools.count(1):
        at(f"step {number}" if number > 1 else "step")
        step = environment.step(draw(observations))
        observations = step.observations
        if number == 1:
            print(json.dumps({"spec": environment.spec.to_json()}), file=answer)
            # Making it may have taken nearly all of the time. An episode is no reason to be killed.
            until = min(until, 0.5 * (time.monotonic() + request["end_at"]))
        if step.ended[0] or time.monotonic() >= until:
            break
    at("close")
    environment.close()


if __name__ == "__main__":
    # Not sys.exit: threads that the environment started could keep the process from ending.
    os._exit(_main())
