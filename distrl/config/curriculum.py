"""Curriculum: rules by which keyword arguments of the environment change while a run trains."""

import json
import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from distrl.config.schedules import AnySchedule, ConstantSchedule, Progress, check_spelled_out, constant, parts
from distrl.config.section import Section
from distrl.errors import ConfigError

ParameterValue = bool | int | float | str
RETURN, SUCCESS = "episode_return", "success"
EPISODE_RESULTS = (RETURN, SUCCESS)
"""Results of every episode that a rule can go by, beside the keys of `environment.metrics`."""


class StagesRule(Section):
    """One value after the other, each from a number of environment steps of all actors on."""

    kind: Literal["stages"] = "stages"
    values: tuple[ParameterValue, ...] = Field(min_length=1)
    """The values, in order."""
    at_env_steps: tuple[Annotated[int, Field(ge=1)], ...]
    """Environment steps at which the second value begins, the third, and so on."""

    @model_validator(mode="after")
    def _every_change_has_its_steps(self) -> Self:
        if len(self.at_env_steps) != len(self.values) - 1:
            raise ValueError(
                f"at_env_steps has {len(self.at_env_steps)} numbers for {len(self.values)} values; it needs one for "
                "each value but the first"
            )
        if list(self.at_env_steps) != sorted({*self.at_env_steps}):
            raise ValueError(f"at_env_steps: {[*self.at_env_steps]} must increase")
        return self

    def at(self, progress: Progress) -> ParameterValue:
        """Return the value when the training has come so far."""
        return self.values[bisect_right(self.at_env_steps, progress.env_steps)]


class MetricRule(Section):
    """The next value whenever the mean of a metric over enough episodes with the present value is high enough."""

    kind: Literal["by_metric"] = "by_metric"
    values: tuple[ParameterValue, ...] = Field(min_length=1)
    """The values, in order; each is a stage."""
    metric: str
    """`episode_return`; `success`: 1 or 0 by `is_success` in the environment's info; or a key of
    `environment.metrics`, which goes before these two."""
    above: float = Field(allow_inf_nan=False)
    """Least mean of the metric that leads to the next value."""
    episodes: int = Field(100, ge=1, le=10_000)
    """Number of episodes in that mean: the newest ones that began with the present value."""
    stage: int = Field(0, ge=0)
    """Stage with which the run begins, from 0; the learner and operators change it while the run trains."""

    @model_validator(mode="after")
    def _begins_within_the_values(self) -> Self:
        if self.stage >= len(self.values):
            raise ValueError(f"stage: {self.stage} is not among the {len(self.values)} values; they count from 0")
        return self

    def at(self, progress: Progress) -> ParameterValue:
        """Return the present value; progress does not matter."""
        return self.values[self.stage]


_ByKind = Annotated[AnySchedule | StagesRule | MetricRule, Field(discriminator="kind")]
CurriculumRule = Annotated[_ByKind, BeforeValidator(constant, json_schema_input_type=float | _ByKind)]


def is_parameter(value: object) -> bool:
    """Return whether a keyword argument's value is one that can change: a number, true or false, or a text."""
    return isinstance(value, bool | int | float | str)


def like(configured: ParameterValue, value: Any) -> ParameterValue:
    """Return a value as the type of the configured one; an int becomes a float where that is a float.

    Raises:
        ValueError: It has another type, or is not finite.
    """
    if isinstance(configured, float) and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if type(value) is type(configured) and not isinstance(configured, float):
        return value
    kind = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a text"}[type(configured)]
    real = f"; write {configured}.0 there for real numbers" if type(configured) is int else ""
    raise ValueError(f"{_shown(value)} must be {kind}, as {_shown(configured)} is{real}")


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)


def value_at(rule: CurriculumRule, configured: ParameterValue, progress: Progress) -> ParameterValue:
    """Return the value in force when the training has come so far; schedules of whole numbers are rounded down."""
    value = rule.at(progress)
    if type(configured) is int and isinstance(value, float):
        return math.floor(round(value, 9))  # 2.9999999999 is 3 that was computed
    return like(configured, value)


def check_rule(name: str, rule: CurriculumRule, kwargs: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
    """Refuse a rule for a keyword argument that there is not, or with values or a metric that do not fit.

    Raises:
        ValueError: In one line.
    """
    if name not in kwargs:
        known = f"it has {', '.join(map(repr, kwargs))}" if kwargs else "there are none"
        raise ValueError(
            f"curriculum.{name}: {name!r} is not in environment.kwargs; {known}; give its first value there"
        )
    configured = kwargs[name]
    if not is_parameter(configured):
        raise ValueError(
            f"curriculum.{name}: only numbers, true or false, and texts can change, not {_shown(configured)}"
        )
    if isinstance(rule, StagesRule | MetricRule):
        for value in rule.values:
            try:
                like(configured, value)
            except ValueError as error:
                raise ValueError(f"curriculum.{name}.values: {error}") from None
    elif type(configured) not in (int, float):
        raise ValueError(
            f"curriculum.{name}.kind: {rule.kind} is for numbers, and environment.kwargs.{name} is "
            f"{_shown(configured)}; use stages or by_metric"
        )
    else:
        check_spelled_out(f"curriculum.{name}", rule)
        constants = [part.value for part in parts(rule) if isinstance(part, ConstantSchedule)]
        if type(configured) is int and (odd := [value for value in constants if not value.is_integer()]):
            raise ValueError(f"curriculum.{name}: {odd[0]:g} must be a whole number, as {configured} is")
    if isinstance(rule, MetricRule) and rule.metric not in (*metrics, *EPISODE_RESULTS):
        known = ", ".join((*metrics, *EPISODE_RESULTS))
        raise ValueError(
            f"curriculum.{name}.metric: {rule.metric!r} is none of {known}; declare it in environment.metrics"
        )


def check_adjustable(environment: str, names: Iterable[str], adjustable: Collection[str], where: str) -> None:
    """Refuse to change keyword arguments that an environment can only be made with.

    Args:
        adjustable: `EnvSpec.adjustable` of the environment.
        where: First part of the setting's path, for the message.

    Raises:
        ConfigError: In one line.
    """
    for name in names:
        if name not in adjustable:
            raise ConfigError(
                f"{where}.{name}: environment {environment} cannot change {name} between episodes; that needs an "
                f"attribute {name} which can be set, and environment.vectorization sync or async"
            )
