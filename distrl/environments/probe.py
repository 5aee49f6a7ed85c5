"""Try an environment in a child process before anything is launched: import, spaces, one episode.

The child reports `{"stage": …}` before each thing that can fail, and `{"spec": …}` after the first step.

An environment that fails after its first step is tried once more, with other seeds. If it fails in the same way, it is
refused. Otherwise it may pass in training, where the supervisor restarts an actor that ends.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from distrl.child import Child, Parent, ending, to_stderr, with_detail
from distrl.config.curriculum import check_adjustable
from distrl.config.environment import EnvironmentConfig
from distrl.config.remote_environment import RemoteParameters
from distrl.config.schedules import Progress
from distrl.environments.remote.connection import is_remote, parse_address
from distrl.errors import ConfigError, DistrlError
from distrl.files import read_small
from distrl.types import EnvSpec

_PATIENCE_S = 2.0
_POLL_S = 0.05
MADE = "reset"
"""The first stage after import and construction."""
EPISODE_S = 1.0
"""The episode of a trial is cut short after this long, or half of the time that is left, if that is less."""


def probe(
    config: EnvironmentConfig,
    *,
    action_mask: str | None = None,
    making_s: float | None = None,
    timeout_s: float | None = None,
    filmed: bool = False,
    report: Callable[[str], None] = to_stderr,
) -> EnvSpec:
    """Return the environment's spec: from `spec_file`, or found out in a subprocess without a numeric framework.

    The subprocess has this process's `sys.path` and working directory, as actors will. It plays one episode with random
    actions, for at most `EPISODE_S`.

    Args:
        config: The environment, as actors will make it.
        action_mask: `NetworkParameters.action_mask`: random actions are drawn from what it allows.
        making_s: The subprocess and whatever it started are killed if import and construction take longer; None: as
            `timeout_s`.
        timeout_s: The same for all that follows; None: `step_timeout_s`, and for a remote environment also as long as
            its own time-outs may take, so that it is these that say what is wrong.
        filmed: Whether the environment must also be one that can be filmed.
        report: Takes one line on what takes long, or is odd.

    Raises:
        ConfigError: In one line, with the environment's own traceback or output as a note.
    """
    if config.spec_file is not None:
        given = given_spec(config.id, Path(config.spec_file))
        check_adjustable(config.id, config.curriculum, given.adjustable, "environment.curriculum")
        return given
    timeout_s = _limit_s(config) if timeout_s is None else timeout_s
    limits_s = timeout_s if making_s is None else making_s, timeout_s
    attempt = partial(_try, config, action_mask, limits_s, filmed=filmed, report=report)
    spec, failure = attempt(seed=0)
    if failure is not None:
        if spec is None or str(attempt(seed=1)[1]) == str(failure):
            raise failure
        report(f"{failure}; a second trial did not fail in that way: going on")
    assert spec is not None
    return spec


def given_spec(environment: str, path: Path) -> EnvSpec:
    """Return the spec in a file that another host has written; actors compare it with their environment.

    Raises:
        ConfigError: The file cannot be read, or is of another environment.
    """
    how = f"write it where the environment is: distrl env check {environment} --json"
    try:
        spec = EnvSpec.from_json(read_small(path).decode())
    except OSError as error:
        raise ConfigError(f"environment.spec_file {path} cannot be read: {error.strerror}; {how}") from error
    except ValueError as error:  # neither UTF-8 nor a spec
        raise ConfigError(f"environment.spec_file {path} holds no spec of an environment; {how}") from error
    if spec.id != environment:
        raise ConfigError(f"environment.spec_file {path} is of {spec.id}, the run of {environment}; {how}")
    return spec


def _try(
    config: EnvironmentConfig,
    action_mask: str | None,
    limits_s: tuple[float, float],
    *,
    seed: int,
    filmed: bool,
    report: Callable[[str], None],
) -> tuple[EnvSpec | None, ConfigError | None]:
    """Return the spec once the first step was made, and the error unless the episode ended or was cut short."""
    request = {
        "config": config.model_dump(mode="json"),
        "action_mask": action_mask,
        "seed": seed,
        "filmed": filmed,
        "episode_s": EPISODE_S,
        "timeout_s": limits_s[1],
    }
    function, variables = "distrl.environments.probe:try_out", config.variables
    with Child(function, request, timeout_s=limits_s[0], variables=variables) as child:
        exit_code, messages, limit_s = _wait(child, config, limits_s, report)
        output = child.output()
    notices = [message["notice"] for message in messages if "notice" in message]
    for notice in notices if seed == 0 else ():  # a second trial would repeat them
        report(notice)
    last = next((message for message in reversed(messages) if "notice" not in message), {"stage": "start"})
    spec = next((EnvSpec.from_json(message["spec"]) for message in messages if "spec" in message), None)
    if exit_code == 0 and spec is not None:
        return spec, None
    if "error" in last:
        return spec, with_detail(ConfigError(last["error"]), last["detail"])
    ended = ending(exit_code, f"in {last['stage']}", limit_s)
    if exit_code is None and limit_s == limits_s[0] != limits_s[1]:
        ended += " (half of learner.stall_timeout_s)"
    return spec, with_detail(ConfigError(f"environment {config.id} {ended}"), output)


def _limit_s(config: EnvironmentConfig) -> float:
    if not is_remote(config.id):
        return config.step_timeout_s
    try:
        given = RemoteParameters.model_validate(config.kwargs)
        connect_s = given.first_connection_s(dial=parse_address(config.id).dial)
    except (ValidationError, ConfigError):
        return config.step_timeout_s  # the subprocess says what is wrong
    return config.step_timeout_s + connect_s + given.give_up_s + given.message_timeout_s


def _wait(
    child: Child, config: EnvironmentConfig, limits_s: tuple[float, float], report: Callable[[str], None]
) -> tuple[int | None, list[dict[str, Any]], float]:
    """Wait for the child's exit code, and report what takes so long.

    Args:
        limits_s: Of making the environment, and of all that follows.

    Returns:
        The exit code, None when the time is over; all messages; and the limit that held at the end.
    """
    began = since = time.monotonic()
    limit_s, made, told, messages = limits_s[0], False, False, list[dict[str, Any]]()
    while True:
        now = time.monotonic()
        exit_code = child.wait(min(_POLL_S, max(since + limit_s - now, 0.0)))
        messages += child.messages()
        if exit_code is not None or time.monotonic() >= since + limit_s:
            return exit_code, messages, limit_s
        if not made and any(message.get("stage") == MADE for message in messages):
            made, since, limit_s = True, time.monotonic(), limits_s[1]
        if not told and now - began >= _PATIENCE_S:
            told = True
            report(f"{_doing(config)} …")


def _doing(config: EnvironmentConfig) -> str:
    if not is_remote(config.id):
        return f"trying out {config.id}"
    address = config.id.partition("://")[2]
    return f"reaching {address}" if config.id.startswith("tcp://") else f"waiting for an environment to dial {address}"


def try_out(request: Mapping[str, Any], parent: Parent) -> None:
    """Play one episode; runs in the child."""
    config = EnvironmentConfig.model_validate(request["config"])
    with contextlib.ExitStack() as cleanup:
        if config.vectorization == "async":
            from distrl.environments.vectors.fork_server import remove_traces

            cleanup.callback(remove_traces)
        _play(config, request, parent)


def _play(config: EnvironmentConfig, request: Mapping[str, Any], parent: Parent) -> None:
    # Here, because the parent is the command line, which never imports gymnasium.
    import numpy as np

    from distrl.environments.given import given_environment
    from distrl.environments.info_metrics import unseen
    from distrl.environments.random_actions import RandomActions, require_a_choice
    from distrl.environments.vector import VectorEnvironment

    parent.say(stage="import and construction")
    if config.spaces is not None:
        parent.say(spec=given_environment(config)[0].spec.to_json())
        return
    if request["filmed"]:
        _try_to_film(config, request["seed"])
    environment = VectorEnvironment(config, 1)
    environment.change(config.parameters_at(Progress()))
    draw = RandomActions(environment.spec, np.random.default_rng(request["seed"]), request["action_mask"])
    infos = environment.watch_infos()
    for notice in environment.notices:
        parent.say(notice=notice)
    parent.limit(request["timeout_s"])
    parent.say(stage=MADE)
    observations = environment.reset(seed=request["seed"])
    until = time.monotonic() + request["episode_s"]
    for number in itertools.count(1):
        parent.say(stage=f"step {number}" if number > 1 else "step")
        require_a_choice(environment.spec, request["action_mask"], observations)
        step = environment.step(draw(observations))
        observations = step.observations
        if number == 1:
            parent.say(spec=environment.spec.to_json())
            # Making it may have taken nearly all of the time. An episode is no reason to be killed.
            until = min(until, 0.5 * (time.monotonic() + parent.gives_up_at))
        if step.ended[0] or time.monotonic() >= until:
            break
    for line in unseen(environment.metrics, infos, ended=bool(step.ended[0])):
        parent.say(notice=f"environment {config.id}: {line}")
    parent.say(stage="close")
    environment.close()


def _try_to_film(config: EnvironmentConfig, seed: int) -> None:
    import numpy as np

    from distrl.environments.films import Recorder, renderable
    from distrl.environments.vector import VectorEnvironment

    try:
        environment = VectorEnvironment(renderable(config), 1)
        environment.reset(seed=seed)
        with TemporaryDirectory() as folder, Recorder(environment, Path(folder) / "film.webm", 1) as recorder:
            recorder.watch(np.array([True]), np.array([True]))
    except DistrlError as error:
        raise ConfigError(f"evaluation.films: {error}") from error.__cause__  # the environment's own, if it has failed
    environment.close()
