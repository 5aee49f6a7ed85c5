"""`distrl env check`: examine an environment in child processes, which may hang, crash or take long.

One child looks at it closely. Each back end is then measured in another child, so that one that hangs is a line of the
report and not its end. A child reports `Finding`s; a `Stage` comes before everything that can take long.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Discriminator, TypeAdapter

from distrl.child import Child, Parent, ending, with_detail
from distrl.config.action_masks import mask_of
from distrl.config.environment import EnvironmentConfig, Vectorization
from distrl.config.section import Section
from distrl.errors import ConfigError, DistrlError, EnvironmentFailedError, MissingExtraError
from distrl.types import Array, ArraySpec, EnvSpec

if TYPE_CHECKING:
    from distrl.environments.random_actions import RandomActions
    from distrl.environments.vector import VectorEnvironment

EPISODES = 3
EPISODE_S = 5.0
"""Longest duration of an episode, at most half of a stage's time-out; longer ones are cut short."""
SPEED_S = 1.0
"""Duration of the measurement of one back end, at most half of a stage's time-out."""
_ACTIONS = 64
BACK_ENDS: tuple[str, ...] = tuple(name for name in get_args(Vectorization) if name != "auto")
SLOW_S = 2.0
"""A stage that takes longer is reported as progress."""
START_S = 60.0
"""Longest time for the child to start; nothing of the environment has run by then."""
_POLL_S = 0.05
DONE = "ending"
"""The last stage. Without it a process that ends with 0 was ended by the environment."""


class Stage(Section):
    """The next thing to happen, in words that follow "while"."""

    kind: Literal["stage"] = "stage"
    doing: str


class CheckedSpaces(Section):
    """The environment could be made: its spec, and the back end that `vectorization` selects.

    Attributes:
        mask: The observation that masks the action; None: there is none.
    """

    kind: Literal["spaces"] = "spaces"
    spec: EnvSpec
    vectorization: str
    mask: str | None = None


class Notice(Section):
    """A line on how the environment was made."""

    kind: Literal["notice"] = "notice"
    text: str


class Infos(Section):
    """Keys of the infos of all steps.

    Attributes:
        numbers: Those that `environment.metrics` can name.
        others: Those whose values are no single numbers, or whose names cannot be a metric's.
    """

    kind: Literal["infos"] = "infos"
    numbers: tuple[str, ...]
    others: tuple[str, ...]


class Processed(Section):
    """Observations after one step of `environment.preprocessing`; "environment": before the first."""

    kind: Literal["processed"] = "processed"
    step: str
    observations: dict[str, ArraySpec]


class FirstObservation(Section):
    """The first observation of that name: as text, or in a file on request."""

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


class CheckedEpisode(Section):
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


class Speed(Section):
    """Steps per second of all environments together, or why there are none."""

    kind: Literal["speed"] = "speed"
    vectorization: str
    steps_per_s: float | None = None
    reason: str = ""


Finding = Annotated[
    Stage | CheckedSpaces | Notice | Infos | Processed | FirstObservation | CheckedEpisode | Speed,
    Discriminator("kind"),
]
FINDING: TypeAdapter[Finding] = TypeAdapter(Finding)


class CheckRequest(Section):
    """The task of one child.

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


def check_environment(
    config: EnvironmentConfig,
    *,
    environments: int | None,
    pictures: Path | None,
    timeout_s: float,
    progress: Callable[[str], None],
    action_mask: str | None = None,
) -> Iterator[Finding]:
    """Find spaces, the first observation, three episodes, and the speed of every back end, in this order.

    Args:
        environments: How many step together where speed is measured; None: it is not measured.
        pictures: Directory of image files, which are named after the environment; None: no files.
        timeout_s: Longest time of one stage, such as a reset or an episode; then its process is killed.
        progress: Takes the name of a stage that takes longer than two seconds, once.
        action_mask: As `CheckRequest.action_mask`.

    Raises:
        ConfigError: The environment cannot be made.
        EnvironmentFailedError: It raises, hangs or crashes once it is made. A back end that does so is no error.
    """
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in config.id)
    prefix = None if pictures is None else pictures / name

    def request(vectorization: str, count: int | None) -> CheckRequest:
        chosen = config.model_copy(update={"vectorization": vectorization})
        return CheckRequest(
            config=chosen, action_mask=action_mask, count=count, pictures=prefix, stage_timeout_s=timeout_s
        )

    yield from _findings(request(config.vectorization, None), progress)
    for back_end in BACK_ENDS if environments is not None else ():
        try:
            yield from _findings(request(back_end, environments), progress)
        except DistrlError as error:
            yield Speed(vectorization=back_end, reason=str(error).removeprefix(f"environment {config.id}: "))


def _findings(request: CheckRequest, progress: Callable[[str], None]) -> Iterator[Finding]:
    function, variables = "distrl.environments.check:examine", request.config.variables
    with Child(function, request.model_dump(mode="json"), timeout_s=START_S, variables=variables) as child:
        yield from _watch(request, child, progress)


def _watch(request: CheckRequest, child: Child, progress: Callable[[str], None]) -> Iterator[Finding]:
    stage, since, reported, made, limit_s = "starting", time.monotonic(), False, False, START_S
    while True:
        exit_code = child.wait(0.0)  # before its messages are read: so none that it wrote is missed
        for message in child.messages():
            if "error" in message:
                raise _failed(message["error"], message["detail"], message["exit_code"] == ConfigError.exit_code)
            finding = FINDING.validate_python(message)
            if isinstance(finding, Stage):
                stage, since, reported, limit_s = finding.doing, time.monotonic(), False, request.stage_timeout_s
                continue
            made = True
            yield finding
        if exit_code == 0 and stage == DONE:
            return
        waited_s = time.monotonic() - since
        if exit_code is not None or waited_s > limit_s:
            hint = "; --timeout gives it longer" if exit_code is None else ""
            ended = f"environment {request.config.id} {ending(exit_code, f'while {stage}', limit_s)}{hint}"
            raise _failed(ended, child.output(), not made)
        if not reported and waited_s > SLOW_S:
            progress(f"{stage} …")
            reported = True
        time.sleep(_POLL_S)


def _failed(message: str, detail: str, cannot_be_made: bool) -> DistrlError:
    return with_detail(ConfigError(message) if cannot_be_made else EnvironmentFailedError(message), detail)


def examine(request: dict[str, Any], parent: Parent) -> None:
    """Do what a `CheckRequest` says; runs in the child."""
    asked = CheckRequest.model_validate(request)
    half_s = asked.stage_timeout_s / 2
    if asked.count is None:
        findings = look(asked.config, asked.pictures, min(EPISODE_S, half_s), asked.action_mask)
    else:
        findings = speed(asked.config, asked.count, min(SPEED_S, half_s), asked.action_mask)
    with contextlib.ExitStack() as cleanup:
        if asked.config.vectorization == "async":
            from distrl.environments.vectors.fork_server import remove_traces

            cleanup.callback(remove_traces)
        for finding in findings:
            if isinstance(finding, Stage):
                parent.limit(asked.stage_timeout_s)
            parent.say(**finding.model_dump(mode="json"))
    parent.say(**Stage(doing=DONE).model_dump(mode="json"))


def look(
    config: EnvironmentConfig,
    pictures: Path | None = None,
    episode_s: float = EPISODE_S,
    action_mask: str | None = None,
) -> Iterator[Finding]:
    """Find spaces, the first observation, and three episodes with random actions.

    Args:
        pictures: An image named "x" becomes the file `<pictures>-x.png`; None: only its size is reported.
        episode_s: An episode that has not ended by then is cut short.

    Raises:
        ConfigError: The environment cannot be made, or the mask does not fit its action.
        EnvironmentFailedError: It fails in reset, step or close.
    """
    # Here, because the parent is the command line, which never imports gymnasium.
    import numpy as np

    from distrl.environments.info_metrics import keys_by_use
    from distrl.environments.preprocessing.pipeline import Pipeline
    from distrl.environments.random_actions import RandomActions
    from distrl.environments.vector import VectorEnvironment

    yield Stage(doing="making the environment")
    environment = VectorEnvironment(config, 1)
    mask = mask_of(environment.spec, action_mask)
    yield CheckedSpaces(spec=environment.spec, vectorization=environment.vectorization, mask=mask)
    for text in environment.notices:
        yield Notice(text=text)
    if environment.spec.unprocessed is not None:
        for name, specs in Pipeline.of(environment.spec).trace:
            yield Processed(step=name, observations=specs)
    yield Stage(doing="resetting")
    infos = environment.watch_infos()
    observations = environment.reset(seed=0)
    for name, rows in observations.items():
        yield _seen(name, environment.spec.observations[name], rows[0], pictures)
    for number in range(1, EPISODES + 1):
        yield Stage(doing=f"stepping through episode {number} of {EPISODES} with random actions")
        draw = RandomActions(environment.spec, np.random.default_rng(number), action_mask)
        episode, observations = _episode(environment, draw, observations, episode_s)
        yield episode
    numbers, others = keys_by_use(infos)
    yield Infos(numbers=tuple(numbers), others=tuple(others))
    yield Stage(doing="closing the environment")
    environment.close()


def speed(
    config: EnvironmentConfig, count: int, for_s: float = SPEED_S, action_mask: str | None = None
) -> Iterator[Finding]:
    """Measure steps per second of `count` environments under `config.vectorization`, with random actions.

    A step that only resets counts for nothing, as in training. Actions are drawn beforehand unless there is a mask.
    Errors are those of `look`.
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
) -> tuple[CheckedEpisode, dict[str, Array]]:
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
    return CheckedEpisode(length_steps=length_steps, total=total, end=end, odd=tuple(sorted(odd))), observations


def _odd(spec: EnvSpec, observations: dict[str, Array]) -> Iterator[str]:
    for name, rows in observations.items():
        low, high = spec.observations[name].low, spec.observations[name].high
        if (low is not None and rows.min() < low) or (high is not None and rows.max() > high):
            yield f"observation '{name}' leaves its bounds {low} … {high}"


def _seen(name: str, spec: ArraySpec, observation: Array, pictures: Path | None) -> FirstObservation:
    from distrl.environments.pictures import bars, picture, write_png

    image = picture(spec, observation)
    if image is None:
        return FirstObservation(name=name, text=bars(observation))
    if pictures is None:
        height, width = image.shape[:2]
        return FirstObservation(name=name, text=f"an image of {width} x {height}; --pictures DIR saves it")
    path = pictures.with_name(f"{pictures.name}-{name.replace('/', '-')}.png")
    try:
        write_png(path, image)
    except MissingExtraError as error:
        return FirstObservation(name=name, text=f"no image: {error}")
    return FirstObservation(name=name, path=path)
