"""Baselines: policies that learn nothing, for comparison."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from distrl.errors import ConfigError, one_line
from distrl.types import ActionSpec, Array, BoxSpec, DiscreteSpec, MultiBinarySpec


class MemorylessPolicy:
    """Chooses actions with `draw`, a function from observations to actions, name -> [B, ...] each."""

    def __init__(self, draw: Callable[[Mapping[str, Array]], dict[str, Array]]) -> None:
        self._draw = draw

    def initial_state(self, batch: int) -> dict[str, Array]:
        """Return no state."""
        return {}

    def choose(
        self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return (actions name -> [B, ...], {}) for observations name -> [B, ...]."""
        return self._draw(observations), {}


class ConstantPolicy(MemorylessPolicy):
    """The same actions at every step.

    Args:
        values: Action -> a number, or nested lists of numbers, as many as the action has; choices are counted from 0.

    Raises:
        ConfigError: An action has no value or an impossible one, or a value is of no action.
    """

    def __init__(self, specs: Mapping[str, ActionSpec], values: Mapping[str, Any]) -> None:
        if unknown := sorted(values.keys() - specs.keys()):
            raise ConfigError(f"constant policy: there is no action {unknown[0]}; there are {', '.join(specs)}")
        if missing := [name for name in specs if name not in values]:
            raise ConfigError(
                f"constant policy: action {missing[0]} has no value; each of {', '.join(specs)} needs one"
            )
        actions = {name: _action(name, spec, values[name]) for name, spec in specs.items()}

        def draw(observations: Mapping[str, Array]) -> dict[str, Array]:
            rows = len(next(iter(observations.values())))
            return {name: np.repeat(action[None], rows, axis=0) for name, action in actions.items()}

        super().__init__(draw)


class OwnPolicy(MemorylessPolicy):
    """A function of the user's, or an instance of a class of the user's that can be called.

    It gets the observations, [B, ...], and returns the actions, [B, ...]; where there are several, name -> array.
    Choices are counted from 0.

    Args:
        function: A class is called without arguments first.
        what: Its name, for messages.

    Raises:
        ConfigError: It is no function. While it acts: it raises, or returns something else than allowed actions.
    """

    def __init__(self, function: Any, specs: Mapping[str, ActionSpec], what: str) -> None:
        self._what = what
        chooses = self._result(function) if isinstance(function, type) else function
        if not callable(chooses):
            raise ConfigError(f"{what}: it is {chooses!r}, which is no function")

        def draw(observations: Mapping[str, Array]) -> dict[str, Array]:
            (first, *others) = observations.values()
            given = dict(observations) if others else first
            returned = self._result(chooses, given)
            chosen = returned if isinstance(returned, Mapping) else {next(iter(specs)): returned}
            if chosen.keys() != specs.keys():
                raise ConfigError(f"{what}: it returns actions {', '.join(map(str, chosen))}, not {', '.join(specs)}")
            return {name: self._checked(name, spec, chosen[name], len(first)) for name, spec in specs.items()}

        super().__init__(draw)

    def _result(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:  # whatever the user's code raises
            reason = one_line(f"{type(error).__name__}: {error}")
            raise ConfigError(f"{self._what}: it raises {reason[:300]}") from error

    def _checked(self, name: str, spec: ActionSpec, value: Any, rows: int) -> Array:
        array, wanted = spec.array, (rows, *spec.array.shape)
        try:
            given = np.array(value, np.float64)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{self._what}: action {name} is no array of numbers: {error}") from error
        if given.shape != wanted:
            raise ConfigError(f"{self._what}: action {name} has shape {given.shape}, {rows} observations need {wanted}")
        if not np.isfinite(given).all():
            raise ConfigError(f"{self._what}: action {name} is not finite")
        if not isinstance(spec, BoxSpec) and not _are_choices(given, spec):
            allowed = ", ".join(f"0 … {n - 1}" for n in np.atleast_1d(_choices(spec)))
            raise ConfigError(f"{self._what}: action {name} takes {allowed}, not {given.tolist()}"[:300])
        return given.astype(array.dtype)


def _are_choices(values: Array, spec: ActionSpec) -> bool:
    return not bool(((values != np.floor(values)) | (values < 0) | (values >= _choices(spec))).any())


def _action(name: str, spec: ActionSpec, value: Any) -> Array:
    """The value as `ActionSpec.array` says."""
    array = spec.array
    try:
        given = np.array(value, np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"constant policy: action {name} takes numbers, not {value!r}") from error
    size = int(np.prod(array.shape, dtype=int))
    if given.size != size or not np.isfinite(given).all():
        raise ConfigError(
            f"constant policy: action {name} takes {size} finite number{'s' * (size != 1)}, not {value!r}"
        )
    flat = given.reshape(array.shape)
    if isinstance(spec, BoxSpec):
        return flat.astype(array.dtype)
    choices = _choices(spec)
    if not _are_choices(flat, spec):
        allowed = ", ".join(f"0 … {n - 1}" for n in np.atleast_1d(choices))
        raise ConfigError(f"constant policy: action {name} takes {allowed}, not {value!r}")
    return flat.astype(array.dtype)


def _choices(spec: ActionSpec) -> Array:
    """How many choices each number has."""
    if isinstance(spec, DiscreteSpec):
        return np.array(spec.n)
    return np.full(spec.n, 2) if isinstance(spec, MultiBinarySpec) else np.array(getattr(spec, "choices", ()))
