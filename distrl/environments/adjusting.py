"""Parameters of environments that change between episodes: keyword arguments that are also attributes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium

from distrl.config.curriculum import ParameterValue, is_parameter
from distrl.config.secrets import is_secret
from distrl.environments.observation_spaces import of_environment


def adjustable(single: gymnasium.Env[Any, Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of keyword arguments that the environment also has as attributes which can be set.

    Secrets are left out, as settings that may change are shown; so are names with a dot, which no path can hold.
    """
    own = single.unwrapped
    return tuple(
        name
        for name, value in kwargs.items()
        if is_parameter(value) and not is_secret(name) and "." not in name and _is_settable(own, name)
    )


def _is_settable(own: object, name: str) -> bool:
    declared = getattr(type(own), name, None)
    return declared.fset is not None if isinstance(declared, property) else hasattr(own, name)


def adjust(single: gymnasium.Env[Any, Any], values: Mapping[str, ParameterValue]) -> None:
    """Set attributes of the environment beneath its wrappers, in their order."""
    for name, value in values.items():
        setattr(single.unwrapped, name, value)


class Adjusting:
    """Lets each row take the newest values when its next episode begins, and never within one.

    Attributes:
        pending: Whether a row has not taken them yet.

    Args:
        adjust: Set attributes of a row's environment.
        values: Name -> value with which all environments were made.
    """

    def __init__(
        self, adjust: Callable[[int, Mapping[str, ParameterValue]], None], rows: int, values: Mapping[str, Any]
    ) -> None:
        self._adjust = adjust
        self._wanted = dict(values)
        self._taken = [self._wanted] * rows
        self.pending = False

    def change(self, values: Mapping[str, ParameterValue]) -> None:
        """Let next episodes begin with these values; names that the environment cannot change are left out."""
        wanted = {name: values.get(name, value) for name, value in self._wanted.items()}
        if wanted != self._wanted:
            self._wanted, self.pending = wanted, True

    def begin(self, rows: Sequence[int]) -> None:
        """Set the newest values in rows whose next episode is about to begin; raise what the environment raises."""
        for row in rows:
            taken = self._taken[row]
            if changed := {name: value for name, value in self._wanted.items() if value != taken[name]}:
                try:
                    self._adjust(row, changed)
                except Exception as error:
                    raise of_environment(error, row)  # noqa: B904 (the same exception)
            self._taken[row] = self._wanted
        self.pending = any(taken is not self._wanted for taken in self._taken)
