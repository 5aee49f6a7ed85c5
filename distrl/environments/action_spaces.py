"""Simple action spaces: the array that travels, and its conversion to the form that environments take."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from distrl.environments.observation_spaces import check_choices
from distrl.types import ActionSpec, Array, BoxSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec

SUPPORTED = (
    "Discrete, MultiDiscrete, MultiBinary, Box of real numbers, and Dict and Tuple of those at any depth are supported"
)

Writer = Callable[[Array], Array]


def action_spec(space: Space[Any]) -> ActionSpec:
    """Return the part of the space that learner and policy must know."""
    match space:
        case Discrete():
            check_choices(int(space.n))
            return DiscreteSpec(int(space.n), int(space.start))
        case MultiDiscrete() | Box() if 0 in space.shape:
            raise ValueError(f"its shape {space.shape} holds no number")
        case MultiDiscrete():
            choices, starts = space.nvec.ravel().tolist(), space.start.ravel().tolist()
            check_choices(sum(choices))
            shape = tuple(map(int, space.shape)) if len(space.shape) > 1 else None
            return MultiDiscreteSpec(tuple(choices), tuple(starts), shape)
        case MultiBinary():
            return MultiBinarySpec(tuple(map(int, space.shape)))
        case Box() if space.dtype.kind != "f":
            raise ValueError(f"it is a Box of {space.dtype.name}; whole numbers are a MultiDiscrete")
        case Box():
            return BoxSpec(tuple(map(int, space.shape)), _finite(space.low), _finite(space.high))
    raise ValueError(f"it is a {type(space).__name__}")


def array_writer(space: Space[Any]) -> Writer:
    """Return the function from actions [B, ...] as `ActionSpec.array` to fresh ones [B, *space.shape] of its dtype."""
    dtype, shape = space.dtype, space.shape or ()
    if isinstance(space, Discrete):
        return lambda actions: np.add(actions, space.start, dtype=dtype, casting="unsafe")
    if isinstance(space, MultiDiscrete):
        starts = space.start.ravel()
        return lambda actions: np.add(actions, starts, dtype=dtype, casting="unsafe").reshape(len(actions), *shape)
    if isinstance(space, Box):
        low, high = space.low.ravel(), space.high.ravel()
        # Neither limit can be left by the conversion: rounding keeps order, and the bounds are numbers of the dtype.
        return lambda actions: (
            np.minimum(np.maximum(actions, low), high).astype(dtype, copy=False).reshape(len(actions), *shape)
        )
    return lambda actions: actions.astype(dtype).reshape(len(actions), *shape)  # MultiBinary


def array_reader(space: Space[Any]) -> Writer:
    """Return the inverse of `array_writer`: from actions [N, *space.shape] to `ActionSpec.array`, [N, ...].

    It raises ValueError, with the first one, for an action outside the space. What lies beyond a Box's bounds by less
    than a millionth of their distance is rounding, and is cut to them.
    """
    start = getattr(space, "start", None)
    if isinstance(space, Box):
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        with np.errstate(invalid="ignore"):
            margin = np.nan_to_num(1e-6 * (high - low), posinf=0.0)

        def read_numbers(actions: Array) -> Array:
            given = np.asarray(actions)
            _require_all(given, (given >= low - margin) & (given <= high + margin), space)
            cut: Array = np.clip(given, low, high).reshape(len(given), -1).astype(np.float32)
            return cut

        return read_numbers
    choices: Any = 2
    if isinstance(space, Discrete):
        choices = space.n
    elif isinstance(space, MultiDiscrete):
        choices = space.nvec

    def read_choices(actions: Array) -> Array:
        given = np.asarray(actions)
        counted = given - (0 if start is None else start)
        _require_all(given, (counted >= 0) & (counted < choices) & (counted == np.floor(counted)), space)
        return counted.astype(np.int32).reshape(len(given), *action_spec(space).array.shape)

    return read_choices


def _require_all(actions: Array, within: Array, space: Space[Any]) -> None:
    if actions.shape[1:] != (space.shape or ()):
        raise ValueError(f"actions have shape {actions.shape[1:]}, not {space.shape or ()}")
    inside = within.reshape(len(actions), -1).all(axis=1)
    if not inside.all():
        step = int(np.flatnonzero(~inside)[0])
        raise ValueError(f"the action {actions[step].tolist()} of step {step + 1} is outside {space}")


def _finite(bounds: Array) -> tuple[float | None, ...]:
    """Flat; None where there is no bound."""
    return tuple(float(bound) if np.isfinite(bound) else None for bound in bounds.flat)
