"""The data of a run before the launch: whether it fits, and the memory of a run that learns from nothing else."""

from collections.abc import Mapping
from typing import Any

from distrl.child import Parent, answer_of
from distrl.config import RunConfig
from distrl.config.load import LoadedConfig
from distrl.types import EnvSpec

MEASURE_S = 1_800.0
"""Longest time to open the data; all rewards are read for `data.sets.best`."""


def fitted(loaded: LoadedConfig, spec: EnvSpec) -> tuple[LoadedConfig, str | None]:
    """Return the configuration with a replay memory that holds the run's data, and a line on these; or as it is.

    Raises:
        ConfigError: A data set cannot be read, or does not fit the environment or the run.
    """
    config = loaded.config
    if config.data is None:
        return loaded, None
    asked = config.model_dump(mode="json", exclude_unset=True, include={*RunConfig.model_fields})
    names = ", ".join(each.name for each in config.data.sets)
    request = {"config": asked, "spec": spec.to_json()}
    function = "distrl.launch.recorded_data:measure"
    found = answer_of(function, request, f"data set {names}", MEASURE_S)
    note = f"data: {found['episodes']:,} episodes, {found['steps']:,} steps of {names}"
    if not config.learns_from_data:  # the settings are of the actors and their memory
        return loaded, note
    section, replay = config.algorithm.model_dump(mode="json", exclude_unset=True), found["replay"]
    section["replay"] = {**section.get("replay", {}), **replay}
    # In one column for each row: a preset's many rows would be empty where there are few episodes.
    loaded = loaded.with_values({"actors": {"environments": found["rows"]}}, "data")
    return loaded.with_algorithm(section, {f"algorithm.replay.{name}": "data" for name in replay}), note


def measure(request: Mapping[str, Any], parent: Parent) -> None:
    """Report the size of the data; runs in the child."""
    from distrl.data.playing import Playing  # here: it brings gymnasium, and the parent is the command line

    playing = Playing(RunConfig.model_validate(request["config"]), EnvSpec.from_json(request["spec"]))
    parent.say(episodes=playing.episodes, steps=playing.steps, rows=playing.rows, replay=playing.replay)
