"""Data sets of a run, before the launch: whether those that it reads fit, and whether it can record one."""

from collections.abc import Mapping
from typing import Any

from distrl.child import Parent, answer_of
from distrl.config import RunConfig
from distrl.learner.replay_set_up import filled_with_data
from distrl.types import EnvSpec

MEASURE_S = 1_800.0
"""Longest time to open the data; all rewards are read for `data.sets.best`."""


def fitted(config: RunConfig, spec: EnvSpec) -> tuple[RunConfig, str | None]:
    """Return the configuration of a memory that the learner fills with the run's data, and a line on the data.

    If the run has no data, or a memory of actors' steps too, it is the configuration as it is.

    Raises:
        ConfigError: A data set cannot be read, or does not fit the environment or the run.
    """
    if not config.data.sets:
        return config, None
    names = ", ".join(each.name for each in config.data.sets)
    found = _answer("measure", config, spec, f"data set {names}")
    note = f"data: {found['episodes']:,} episodes, {found['steps']:,} steps of {names}"
    if found["memory_steps"] is not None:
        note += f", {found['replay']['capacity_steps']:,} of them in memory at a time"
    return filled_with_data(config, found["rows"], found["replay"]) if config.learns_from_data else config, note


def check_recording(config: RunConfig, spec: EnvSpec, *, new: bool) -> None:
    """Refuse a new run whose recording cannot begin; a run that goes on may have recorded before.

    Raises:
        ConfigError: See `UnrollRecording`.
    """
    if new and config.recording.name is not None:
        _answer("try_recording", config, spec, f"recording {config.recording.name}")


def try_recording(request: Mapping[str, Any], parent: Parent) -> None:
    """Begin the recording and give it up; runs in the child."""
    from distrl.data.unroll_recording import UnrollRecording  # here: it brings gymnasium

    UnrollRecording(*_asked(request)).abandon()
    parent.say()


def check_off_policy(config: RunConfig, spec: EnvSpec) -> None:
    """Refuse `evaluation.off_policy` whose data lacks what the estimators need.

    Raises:
        ConfigError: See `beside.check`.
    """
    if config.evaluation.off_policy.estimators:
        _answer("try_off_policy", config, spec, "evaluation.off_policy")


def try_off_policy(request: Mapping[str, Any], parent: Parent) -> None:
    """Look through the data; runs in the child."""
    from distrl.data.off_policy import beside  # here: it brings gymnasium

    beside.check(*_asked(request))
    parent.say()


def _answer(function: str, config: RunConfig, spec: EnvSpec, what: str) -> dict[str, Any]:
    """Return what a function of this module reports in a child."""
    asked = config.model_dump(mode="json", exclude_unset=True, include={*RunConfig.model_fields})
    request = {"config": asked, "spec": spec.to_json()}
    return answer_of(f"distrl.launch.recorded_data:{function}", request, what, MEASURE_S)


def _asked(request: Mapping[str, Any]) -> tuple[RunConfig, EnvSpec]:
    return RunConfig.model_validate(request["config"]), EnvSpec.from_json(request["spec"])


def measure(request: Mapping[str, Any], parent: Parent) -> None:
    """Report the size of the data; runs in the child."""
    from distrl.data.playing import Playing  # here: it brings gymnasium, and the parent is the command line

    playing = Playing(*_asked(request))
    parent.say(
        episodes=playing.episodes,
        steps=playing.steps,
        rows=playing.blocks.rows,
        replay=playing.replay,
        memory_steps=playing.memory_steps,
    )
