"""Baselines: policies that learn nothing, for comparison."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from distrl.errors import ConfigError
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
    if (flat != np.floor(flat)).any() or (flat < 0).any() or (flat >= choices).any():
        allowed = ", ".join(f"0 … {n - 1}" for n in np.atleast_1d(choices))
        raise ConfigError(f"constant policy: action {name} takes {allowed}, not {value!r}")
    return flat.astype(array.dtype)


def _choices(spec: ActionSpec) -> Array:
    """How many choices each number has."""
    if isinstance(spec, DiscreteSpec):
        return np.array(spec.n)
    return np.full(spec.n, 2) if isinstance(spec, MultiBinarySpec) else np.array(getattr(spec, "choices", ()))
