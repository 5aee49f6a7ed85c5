"""Settings that may change while a run trains, under the paths that `--set` takes, and their checks."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from distrl.config.curriculum import ParameterValue, is_parameter, like
from distrl.config.exploration import EpsilonByEpisode, EpsilonLadder
from distrl.config.launch import LOG_LEVELS
from distrl.config.load import validated
from distrl.config.presets import nearest
from distrl.config.run import RunConfig
from distrl.config.schedules import Progress
from distrl.errors import ConfigError

Value = float | int | str | None
"""A setting's value; true and false are numbers to the type checker."""
KWARGS, _STAGES = "environment.kwargs.", "environment.curriculum"
Kind = Literal["number", "count", "choice", "whole", "switch", "text"]

_STRENGTHS: Mapping[str, tuple[str, str]] = {
    "epsilon_greedy": ("epsilon", "probability of a random action"),
    "member": ("epsilon", "probability of a random action"),
    "ucb": ("epsilon", "probability of a random action"),
    "boltzmann": ("temperature", "temperature of the softmax that actions are drawn from"),
    "gaussian_noise": ("stddev", "standard deviation of the noise on actions"),
    "truncated_gaussian_noise": ("stddev", "standard deviation of the noise on actions"),
    "ornstein_uhlenbeck": ("sigma", "volatility of the noise on actions"),
    "constant_noise": ("value", "what is added to actions"),
    "parameter_noise": ("stddev", "standard deviation of the noise on weights"),
}
"""Kind of exploration -> the number that sets its strength, and its meaning."""


@dataclass(frozen=True)
class Parameter:
    """One setting that may change.

    Attributes:
        path: Dotted path in the configuration.
        value: Current value; None for a schedule or a rule of the curriculum, which a value would replace.
        meaning: One line.
        choices: All values of a choice.
    """

    path: str
    kind: Kind
    value: Value
    meaning: str
    choices: tuple[str, ...] = ()


def steerable(config: RunConfig, adjustable: Collection[str] = ()) -> list[Parameter]:
    """Return the settings that may change in this run; they depend on its algorithm, exploration and environment.

    Args:
        adjustable: `EnvSpec.adjustable` of the run's environment.
    """
    found = []
    if config.network.optimizer_type != "LBFGS":
        rate = config.network.learning_rate
        found.append(Parameter("network.learning_rate", "number", rate, "learning rate; a schedule is scaled by it"))
    algorithm = config.algorithm
    for name, meaning in algorithm.live.items():
        found.append(Parameter(f"algorithm.{name}", "number", getattr(algorithm, name), meaning))
    if algorithm.curiosity is not None:
        meaning = "factor of intrinsic rewards beside the environment's"
        found.append(Parameter("algorithm.curiosity.weight", "number", algorithm.curiosity.weight, meaning))
    if algorithm.max_staleness_updates is not None and not algorithm.rounds:
        meaning = "updates that an unroll's weights may be old"
        found.append(Parameter(_STALENESS, "count", algorithm.max_staleness_updates, meaning))
    exploring = config.exploring
    if exploring is not None and exploring.kind in _STRENGTHS:
        name, meaning = _STRENGTHS[exploring.kind]
        strength = getattr(exploring, name)
        now = strength if isinstance(strength, float) else getattr(strength, "value", None)
        found.append(Parameter(f"exploration.{name}", "number", now, meaning))
    found += _of_environment(config, adjustable)
    found.append(
        Parameter("launch.log_level", "choice", config.launch.log_level, "lowest level that roles log", LOG_LEVELS)
    )
    return found


_KINDS: Mapping[type, Kind] = {bool: "switch", int: "whole", float: "number", str: "text"}


def _of_environment(config: RunConfig, adjustable: Collection[str]) -> list[Parameter]:
    """Return the keyword arguments of the environment that may change, and the stages of rules by a metric."""
    environment = config.environment
    found = [
        Parameter(stage_path(name), "count", rule.stage, f"stage of {name}'s rule, 0 to {len(rule.values) - 1}")
        for name, rule in environment.metric_rules.items()
    ]
    for name, value in environment.kwargs.items():
        if name in adjustable and is_parameter(value):
            now = None if name in environment.curriculum else value
            meaning = f"keyword argument {name} of the environment, from the next episodes on"
            found.append(Parameter(f"{KWARGS}{name}", _KINDS[type(value)], now, meaning))
    return found


def exploration_strength(config: RunConfig, changed: Mapping[str, Value], progress: Progress) -> float | None:
    """Return the present epsilon, temperature or size of noise; None if the run has none, or not one for all actors.

    Args:
        changed: Dotted path -> value of the settings that operators changed.
        progress: How far the training is, for a schedule.
    """
    exploring = config.exploring
    if exploring is None or exploring.kind not in _STRENGTHS:
        return None
    name = _STRENGTHS[exploring.kind][0]
    strength: Any = changed.get(f"exploration.{name}", getattr(exploring, name))
    if isinstance(strength, int | float):
        return float(strength)
    return None if isinstance(strength, EpsilonLadder | EpsilonByEpisode) else float(strength.at(progress))


_STALENESS = "algorithm.max_staleness_updates"
LARGEST = 1e30
"""Largest number: the learner computes in float32, which ends near 3e38."""


def stage_path(name: str) -> str:
    """Return the setting with the stage of a keyword argument's rule by a metric."""
    return f"{_STAGES}.{name}.stage"


def steered_so_far(
    config: RunConfig,
    settings: Mapping[str, Value],
    before: Mapping[str, Value] | None = None,
    adjustable: Collection[str] = (),
) -> tuple[RunConfig, dict[str, Value], list[str]]:
    """Apply as many of the settings as are compatible, in the order of their paths.

    The settings come from Redis, where two operators may have put values that contradict each other.

    Args:
        before: Settings in force until now, kept where a new one is refused.
        adjustable: As for `steerable`.

    Returns:
        The configuration, the settings in force, and one line for each refused one.
    """
    held: dict[str, Value] = {}
    problems = []
    for path, value in sorted(settings.items()):
        for candidate in (value, (before or {}).get(path)):
            try:
                steered(config, {**held, path: candidate}, adjustable)
            except ConfigError as error:
                problems += [str(error)] if candidate is value else []
            else:
                held[path] = candidate
                break
    return steered(config, held, adjustable), held, problems


def steered(config: RunConfig, settings: Mapping[str, Value], adjustable: Collection[str] = ()) -> RunConfig:
    """Return the configuration with these values.

    Args:
        settings: Dotted path -> value. A value of a keyword argument of the environment replaces its rule.
        adjustable: As for `steerable`.
    """
    if not settings:
        return config
    tree = config.model_dump(mode="json")
    known = {parameter.path: parameter for parameter in steerable(config, adjustable)}
    for path, value in sorted(settings.items()):  # stages before values, which replace whole rules
        if path not in known:
            raise ConfigError(f"{path} cannot change while the run goes on; {nearest(path, [*known])}")
        if value is None:
            raise ConfigError(f"{path}: null cannot be set while the run goes on; give a value")
        if isinstance(value, float) and abs(value) > LARGEST:
            raise ConfigError(f"{path}: {value:g} is beyond {LARGEST:g}; the learner computes in float32")
        section, _, name = path.rpartition(".")
        if section == "exploration":
            assert config.exploring is not None  # or it would not be known
            tree["exploration"] = _explored(config, name, value)
        elif f"{section}." == KWARGS:
            tree["environment"]["kwargs"][name] = _like_configured(config, name, value)
            tree["environment"]["curriculum"].pop(name, None)
        else:
            place = tree
            for part in section.split("."):
                place = place[part]
            place[name] = value
    return validated(type(config), tree, dict.fromkeys(settings, "the request"))


def _explored(config: RunConfig, name: str, value: Value) -> dict[str, Any]:
    """Return the section `exploration` with a constant in place of a number or a schedule."""
    exploring = config.exploring
    assert exploring is not None
    # A bare number would do for a schedule, too; but then a mapping would pass, and Redis holds plain values alone.
    is_number = isinstance(getattr(exploring, name), float)
    return exploring.model_dump(mode="json") | {name: value if is_number else {"kind": "constant", "value": value}}


def _like_configured(config: RunConfig, name: str, value: Value) -> ParameterValue:
    try:
        return like(config.environment.kwargs[name], value)
    except ValueError as error:
        raise ConfigError(f"{KWARGS}{name}: {error}") from None
