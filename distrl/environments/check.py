"""What `distrl env check` finds out about an environment, in a process of its own that may hang or crash.

Like the probe, that process answers in lines of JSON on a private copy of its standard output, and sends whatever the
environment says to standard error. Every line is a `Finding`; a `Stage` comes before everything that can take long.
"""

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, TypeAdapter

from distrl.config.environment import EnvironmentConfig
from distrl.errors import DistrlError, MissingExtraError
from distrl.types import Array, ArraySpec, EnvSpec

if TYPE_CHECKING:
    from distrl.environments.random_actions import RandomActions
    from distrl.environments.vector import VectorEnvironment

EPISODES = 3
EPISODE_S = 5.0
"""An episode that has not ended by then is cut short; at the latest after half of what a stage may take."""
SPEED_S = 1.0
"""For how long a back end steps when it is measured; at most half of what a stage may take."""
_ACTIONS = 64
_ALONE_S = 5.0


class _Finding(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Stage(_Finding):
    """What comes next, in words that follow "while"."""

    kind: Literal["stage"] = "stage"
    doing: str


class Spaces(_Finding):
    """The environment could be made: what the network gets and gives, and which back end `vectorization` selects."""

    kind: Literal["spaces"] = "spaces"
    spec: EnvSpec
    vectorization: str


class Processed(_Finding):
    """What observations are after one step of `environment.preprocessing`; "environment": before the first."""

    kind: Literal["processed"] = "processed"
    step: str
    observations: dict[str, ArraySpec]


class Seen(_Finding):
    """The first observation of that name: as text, or in a file if files were asked for."""

    kind: Literal["seen"] = "seen"
    name: str
    text: str = ""
    path: Path | None = None


End = Literal["terminated", "truncated", "terminated and truncated", "cut short"]


_ENDS: dict[tuple[bool, bool], End] = {
    (True, False): "terminated",
    (False, True): "truncated",
    (True, True): "terminated and truncated",
}


class Episode(_Finding):
    """One episode with random actions.

    Attributes:
        end: Of both flags, those that ended it; "cut short" without one.
        total: The return: the undiscounted sum of the environment's own rewards.
        odd: What should not be: numbers outside the bounds of their space.
    """

    kind: Literal["episode"] = "episode"
    length_steps: int
    total: float
    end: End
    odd: tuple[str, ...] = ()


class Speed(_Finding):
    """Steps per second of all environments together, or why there are none."""

    kind: Literal["speed"] = "speed"
    vectorization: str
    steps_per_s: float | None = None
    reason: str = ""


class Failure(_Finding):
    """An error that ended the examination; `detail` is the environment's own traceback."""

    kind: Literal["failure"] = "failure"
    message: str
    detail: str
    exit_code: int


Finding = Annotated[Stage | Spaces | Processed | Seen | Episode | Speed | Failure, Discriminator("kind")]
FINDING: TypeAdapter[Finding] = TypeAdapter(Finding)


class Request(_Finding):
    """What the examining process is to do.

    Attributes:
        config: The environment. With `count` its `vectorization` is measured, otherwise it is looked at closely.
        action_mask: `NetworkParameters.action_mask`: random actions are drawn from what it allows.
        count: Environments that step together, or None.
        pictures: Directory and beginning of the name of image files; None: no file is written.
        stage_timeout_s: The process ends if one stage takes longer.
    """

    config: EnvironmentConfig
    action_mask: str | None = None
    count: int | None
    pictures: Path | None
    stage_timeout_s: float


def look(
    config: EnvironmentConfig,
    pictures: Path | None = None,
    episode_s: float = EPISODE_S,
    action_mask: str | None = None,
) -> Iterator[Finding]:
    """Find spaces, the first observation, and three episodes with random actions.

    Args:
        pictures: An image named "x" becomes the file `<pictures>-x.png`; None: its size is all that is told.
        episode_s: An episode that has not ended by then is cut short.
        action_mask: As `Request.action_mask`.

    Raises:
        ConfigError: The environment cannot be made, or the mask does not fit its action.
        EnvironmentFailedError: It fails in reset, step or close.
    """
    # Here, because the parent is the command line, which never imports gymnasium.
    import numpy as np

    from distrl.environments.preprocessing.pipeline import Pipeline
    from distrl.environments.random_actions import RandomActions
    from distrl.environments.vector import VectorEnvironment

    yield Stage(doing="making the environment")
    environment = VectorEnvironment(config, 1)
    yield Spaces(spec=environment.spec, vectorization=environment.vectorization)
    if config.preprocessing:
        for name, specs in Pipeline.of(environment.spec).trace:
            yield Processed(step=name, observations=specs)
    yield Stage(doing="resetting")
    observations = environment.reset(seed=0)
    for name, rows in observations.items():
        yield _seen(name, environment.spec.observations[name], rows[0], pictures)
    for number in range(1, EPISODES + 1):
        yield Stage(doing=f"stepping through episode {number} of {EPISODES} with random actions")
        draw = RandomActions(environment.spec, np.random.default_rng(number), action_mask)
        episode, observations = _episode(environment, draw, observations, episode_s)
        yield episode
    yield Stage(doing="closing the environment")
    environment.close()


def speed(
    config: EnvironmentConfig, count: int, for_s: float = SPEED_S, action_mask: str | None = None
) -> Iterator[Finding]:
    """Measure steps per second of `count` environments under `config.vectorization`, with random actions.

    A step that only resets counts for nothing, as in training. Actions are drawn beforehand unless there is a mask.

    Raises:
        ConfigError: The environment cannot be stepped in that way.
        EnvironmentFailedError: It fails in reset, step or close.
    """
    import numpy as np

    from distrl.environments.random_actions import RandomActions
    from distrl.environments.vector import VectorEnvironment

    yield Stage(doing=f"making {count} environments ({config.vectorization})")
    environment = VectorEnvironment(config, count)
    draw = RandomActions(environment.spec, np.random.default_rng(0), action_mask)
    yield Stage(doing=f"resetting {count} environments ({config.vectorization})")
    observations = environment.reset(seed=0)
    actions = [draw(observations) for _ in range(_ACTIONS)]
    yield Stage(doing=f"stepping {count} environments ({config.vectorization})")
    observations = environment.step(actions[0]).observations  # the first of all steps may do what no other does
    steps, calls, start = 0, 0, time.perf_counter()
    while (took_s := time.perf_counter() - start) < for_s:
        step = environment.step(actions[calls % _ACTIONS] if draw.mask is None else draw(observations))
        observations = step.observations
        steps += int(step.valid.sum())
        calls += 1
    yield Speed(vectorization=config.vectorization, steps_per_s=steps / took_s)
    yield Stage(doing=f"closing {count} environments ({config.vectorization})")
    environment.close()


def _episode(
    environment: "VectorEnvironment",
    draw: "RandomActions",
    observations: dict[str, Array],
    longest_s: float,
) -> tuple[Episode, dict[str, Array]]:
    """Play one episode from `observations`; the step that resets is not counted. Return the last observations too."""
    length_steps, total, odd = 0, 0.0, set[str]()
    end: End = "cut short"
    give_up_at = time.monotonic() + longest_s
    while time.monotonic() < give_up_at:
        step = environment.step(draw(observations))
        observations = step.observations
        odd |= set(_odd(environment.spec, observations))
        if not step.valid[0]:
            continue
        length_steps += 1
        total += float(step.raw_rewards[0])
        if step.terminated[0] or step.truncated[0]:
            end = _ENDS[bool(step.terminated[0]), bool(step.truncated[0])]
            break
    return Episode(length_steps=length_steps, total=total, end=end, odd=tuple(sorted(odd))), observations


def _odd(spec: EnvSpec, observations: dict[str, Array]) -> Iterator[str]:
    for name, rows in observations.items():
        low, high = spec.observations[name].low, spec.observations[name].high
        if (low is not None and rows.min() < low) or (high is not None and rows.max() > high):
            yield f"observation '{name}' leaves its bounds {low} … {high}"


def _seen(name: str, spec: ArraySpec, observation: Array, pictures: Path | None) -> Seen:
    from distrl.environments.pictures import bars, picture, write_png

    image = picture(spec, observation)
    if image is None:
        return Seen(name=name, text=bars(observation))
    if pictures is None:
        height, width = image.shape[:2]
        return Seen(name=name, text=f"an image of {width} x {height}; --pictures DIR saves it")
    path = pictures.with_name(f"{pictures.name}-{name.replace('/', '-')}.png")
    try:
        write_png(path, image)
    except MissingExtraError as error:
        return Seen(name=name, text=f"no image: {error}")
    return Seen(name=name, path=path)


def _main() -> int:
    """The child: reads a request from standard input, answers on what was standard output."""
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    request = Request.model_validate_json(sys.stdin.read())
    faulthandler.enable()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        for finding in _examined(request):
            if isinstance(finding, Stage):
                _arm(request.stage_timeout_s)
            _tell(answer, finding)
    except DistrlError as error:
        detail = "" if error.__cause__ is None else "".join(traceback.format_exception(error.__cause__))
        _tell(answer, Failure(message=str(error), detail=detail, exit_code=error.exit_code))
        return error.exit_code
    finally:
        if request.config.vectorization == "async":
            from distrl.environments.vectors.fork_server import remove_traces

            remove_traces()
    return 0


def _examined(request: Request) -> Iterator[Finding]:
    half_s = request.stage_timeout_s / 2
    if request.count is None:
        return look(request.config, request.pictures, min(EPISODE_S, half_s), request.action_mask)
    return speed(request.config, request.count, min(SPEED_S, half_s), request.action_mask)


def _arm(stage_timeout_s: float) -> None:
    """Writes where it hangs before the parent ends this process; ends by itself if the parent no longer lives."""
    faulthandler.cancel_dump_traceback_later()
    faulthandler.dump_traceback_later(0.9 * stage_timeout_s)
    signal.setitimer(signal.ITIMER_REAL, stage_timeout_s + _ALONE_S)


def _tell(answer: IO[str], finding: Any) -> None:
    print(json.dumps(finding.model_dump(mode="json")), file=answer)


if __name__ == "__main__":
    # Not sys.exit: threads that the environment started could keep the process from ending.
    os._exit(_main())
