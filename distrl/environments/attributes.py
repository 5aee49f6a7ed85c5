"""Attributes of users' environments, checked where distrl reads them."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from gymnasium import Space

from distrl.errors import ConfigError, one_line

_NO_LIMIT = -1
"""As gymnasium writes it in `max_episode_steps`."""


def stated(env_id: str, by: object) -> tuple[float | None, int | None]:
    """Return (reward threshold, maximum steps of an episode) from attributes; None for a missing or infinite one.

    Raises:
        ConfigError: One is no number, or the maximum is not whole or below 1.
    """
    threshold, most = (_number(env_id, by, name) for name in ("reward_threshold", "max_episode_steps"))
    if most is None or most == _NO_LIMIT:
        return threshold, None
    if most < 1 or most != int(most):
        raise wrong(env_id, "max_episode_steps", most, "a whole number from 1 on, or None")
    return threshold, int(most)


def check(env_id: str, by: object, kinds: Mapping[str, type]) -> None:
    """Raise ConfigError unless an object has these attributes, each of its kind."""
    for name, kind in kinds.items():
        value = _read(env_id, by, name)
        if not isinstance(value, kind):
            raise wrong(env_id, name, value, _WORDS[kind])


def wrong(env_id: str, name: str, value: Any, wanted: str) -> ConfigError:
    """Return the error of an attribute that is not what distrl needs."""
    shown = one_line(repr(value))[:60]
    return ConfigError(f"environment {env_id}: its attribute {name} is {shown}, it must be {wanted}")


_WORDS = {Space: "a space of gymnasium", Mapping: "a dict", Integral: "a whole number"}


def _number(env_id: str, by: object, name: str) -> float | None:
    value = _read(env_id, by, name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise wrong(env_id, name, value, "a number, or None")
    try:
        number = float(value)
    except OverflowError:
        raise wrong(env_id, name, value, "a number that float64 holds, or None") from None
    return number if math.isfinite(number) else None


def _read(env_id: str, by: object, name: str) -> Any:
    try:
        return getattr(by, name, None)
    except Exception as error:  # a property of the user's may raise anything
        told = one_line(error)[:200]
        raise ConfigError(
            f"environment {env_id}: its attribute {name} cannot be read: {type(error).__name__}: {told}"
        ) from error
