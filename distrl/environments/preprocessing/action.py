"""Steps for actions: a space for the policy, and the map from its actions to the environment's.

Actions travel as `ActionSpec.array` says, choices counted from 0.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from distrl.config.preprocessing import ActionStep, DiscretizeBoxStep, MapBoxStep, MapDiscreteStep, MaskBoxStep
from distrl.environments.preprocessing.fit import MOST_NUMBERS, Fitted, UnfitError, as_dtype, finite
from distrl.types import ActionSpec, Array, ArraySpec, BoxSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec

_MOST_ACTIONS = 1_000_000
_MOST_CHOICES = 64
"""At once: as many axes as an array of NumPy may have, whose places combinations are."""
_Number = TypeVar("_Number", int, float)


class FittedAction(NamedTuple):
    """The policy's action, and the function from it to the environment's: [B, ...] -> [B, ...]."""

    spec: ActionSpec
    apply: Callable[[Array], Array]


def fit(step: ActionStep, given: ActionSpec) -> FittedAction:
    """Fit one step to an action."""
    if isinstance(step, MapDiscreteStep):
        return _map_discrete(step, given)
    if not isinstance(given, BoxSpec):
        raise UnfitError("it is no box")
    if isinstance(step, DiscretizeBoxStep):
        return _discretize_box(step, given)
    if isinstance(step, MaskBoxStep):
        return _mask_box(step, given)
    assert isinstance(step, MapBoxStep)  # there are no others
    return _map_box(step, given)


def _discretize_box(step: DiscretizeBoxStep, given: BoxSpec) -> FittedAction:
    """Evenly spaced values of every number, bounds included; one choice for each combination."""
    low, high = _bounds(given)
    counts = _each(step.bins, given, "bins")
    total = _counted(counts)
    values = [np.linspace(*ends) for ends in zip(low, high, counts, strict=True)]
    if step.whole_bins:
        values = [np.trunc(bins) for bins in values]

    def apply(choices: Array) -> Array:
        places = np.unravel_index(choices, counts)
        return np.stack([bins[place] for bins, place in zip(values, places, strict=True)], axis=1).astype(np.float32)

    return FittedAction(DiscreteSpec(total), apply)


def _mask_box(step: MaskBoxStep, given: BoxSpec) -> FittedAction:
    """The same numbers in narrower bounds, to which they are cut."""
    low, high = _limits(step, given)
    for index, (own_low, own_high) in enumerate(zip(given.low, given.high, strict=True)):
        too_low = own_low is not None and low[index] < as_dtype(own_low, "float32")
        if too_low or (own_high is not None and high[index] > as_dtype(own_high, "float32")):
            raise UnfitError(f"[{low[index]:g}, {high[index]:g}] is not inside its bounds [{own_low}, {own_high}]")
    lowest, highest = np.array(low, np.float32), np.array(high, np.float32)
    return FittedAction(replace(given, low=low, high=high), lambda actions: np.clip(actions, lowest, highest))


def _map_box(step: MapBoxStep, given: BoxSpec) -> FittedAction:
    """[low, high] -> the box's bounds, linear; numbers beyond are cut."""
    own_low, own_high = (np.array(bounds, np.float64) for bounds in _bounds(given))
    low, high = _limits(step, given)
    lowest, highest = np.array(low), np.array(high)

    def apply(actions: Array) -> Array:
        shares = (np.clip(actions, lowest, highest) - lowest) / (highest - lowest)
        mapped: Array = (1.0 - shares) * own_low + shares * own_high
        return mapped.astype(np.float32)

    return FittedAction(replace(given, low=low, high=high), apply)


def _map_discrete(step: MapDiscreteStep, given: ActionSpec) -> FittedAction:
    """One choice among listed actions, or among all."""
    if isinstance(given, BoxSpec):
        raise UnfitError("it is a box; discretize_box makes choices of it")
    choices, starts = _choices(given)
    if step.actions is None:
        total = _counted(choices)
        if isinstance(given, DiscreteSpec):
            return FittedAction(DiscreteSpec(total), lambda chosen: chosen)
        return FittedAction(
            DiscreteSpec(total), lambda chosen: np.stack(np.unravel_index(chosen, choices), axis=1).astype(np.int32)
        )
    listed = [action if isinstance(action, tuple) else (action,) for action in step.actions]
    for action in listed:
        fits = len(action) == len(choices) and all(
            start <= number < start + n for number, start, n in zip(action, starts, choices, strict=True)
        )
        if not fits:
            shown = [*action] if len(action) > 1 else action[0]
            raise UnfitError(f"{shown} is none of its actions")
    table = np.array(listed, np.int32) - np.array(starts, np.int32)  # [choices of the policy, numbers]
    if isinstance(given, DiscreteSpec):
        table = table[:, 0]
    return FittedAction(DiscreteSpec(len(listed)), lambda chosen: table[chosen])


def joint_mask(step: MapDiscreteStep, given: ActionSpec, mask: ArraySpec) -> Fitted:
    """Turn the mask of an action into that of the choices that the step makes of it.

    Args:
        given: The action before the step; no box.
        mask: As `action_masks.check_mask` wants it for that action.

    Returns:
        Its spec [n], and the function from [B, ...] to [B, n]: 1 where the action allows all parts of the choice.
    """
    choices, starts = _choices(given)
    table = np.stack(np.unravel_index(np.arange(math.prod(choices)), choices), axis=1)  # [n, parts]
    if step.actions is not None:
        table = np.array(step.actions, np.int64).reshape(-1, len(choices)) - np.array(starts)
    if table.size > MOST_NUMBERS:
        raise UnfitError(f"its mask is of {len(table)} choices of {len(choices)} parts; list fewer actions")
    if isinstance(given, MultiBinarySpec):  # off is always allowed

        def allowed(masks: Array) -> Array:
            found: Array = ((masks != 0)[:, None, :] | (table == 0)).all(axis=2)
            return found
    else:
        columns = table + np.cumsum([0, *choices[:-1]])

        def allowed(masks: Array) -> Array:
            found: Array = (masks != 0)[:, columns].all(axis=2)
            return found

    spec = replace(mask, shape=(len(table),), low=0.0, high=1.0)
    return Fitted(spec, lambda masks: allowed(masks).astype(mask.dtype))


def _choices(given: ActionSpec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the number of choices of each number, and the number that the choices are counted from."""
    if isinstance(given, DiscreteSpec):
        return (given.n,), (given.start,)
    if isinstance(given, MultiDiscreteSpec):
        return given.choices, given.starts
    assert isinstance(given, MultiBinarySpec)  # boxes have none
    return (2,) * given.n, (0,) * given.n


def _counted(counts: tuple[int, ...]) -> int:
    total = math.prod(counts)
    if total > _MOST_ACTIONS:
        raise UnfitError(f"all combinations are {total} actions; {_MOST_ACTIONS} is the most")
    if len(counts) > _MOST_CHOICES:
        raise UnfitError(f"it has {len(counts)} choices at once; {_MOST_CHOICES} is the most; list its actions")
    return total


def _bounds(given: BoxSpec) -> tuple[tuple[float, ...], tuple[float, ...]]:
    low = tuple(bound for bound in given.low if bound is not None)
    high = tuple(bound for bound in given.high if bound is not None)
    if len(low) < given.n or len(high) < given.n:
        raise UnfitError("its numbers have no bounds; put mask_box before it")
    return low, high


def _limits(step: MaskBoxStep | MapBoxStep, given: BoxSpec) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """As float32, in which actions travel: a box's own bound, written in decimals, is that bound."""
    low, high = (
        tuple(float(finite(number, "float32")) for number in _each(numbers, given, what))
        for numbers, what in ((step.low, "low"), (step.high, "high"))
    )
    for lowest, highest in zip(low, high, strict=True):
        if lowest >= highest:
            raise UnfitError(f"low: {lowest:g} is not below high: {highest:g}")
    return low, high


def _each(numbers: _Number | tuple[_Number, ...], given: BoxSpec, what: str) -> tuple[_Number, ...]:
    """One for every number of the box."""
    if not isinstance(numbers, tuple):
        return (numbers,) * given.n
    if len(numbers) != given.n:
        raise UnfitError(f"{what} has {len(numbers)} numbers, the box has {given.n}")
    return numbers
