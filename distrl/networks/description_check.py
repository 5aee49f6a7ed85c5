"""Whether the parts of a policy's description fit each other, for descriptions that come from files.

Types alone are checked where JSON is read. What a run publishes has been made by one program and fits.
"""

import math
import operator
from collections.abc import Mapping
from itertools import starmap

import numpy as np

from distrl.errors import DistrlError
from distrl.networks.description import BundleDescription
from distrl.networks.distribution_specs import (
    BernoulliSpec,
    BetaSpec,
    CategoricalSpec,
    DistributionSpec,
    GaussianSpec,
    MultiCategoricalSpec,
    MultiValuesSpec,
    SquashedGaussianSpec,
    ValuesSpec,
    output_of,
)
from distrl.types import (
    ActionSpec,
    ArraySpec,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    OneHot,
)

MOST_NUMBERS = 2**28
"""In one array: 1 GiB of float32."""
DTYPES = frozenset({"bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))}) | {
    *("float16", "float32", "float64")
}
_WHOLE = np.iinfo(np.int64)


def check_description(description: BundleDescription) -> None:
    """Checks spaces, distributions and outputs against each other.

    Raises:
        DistrlError: Something does not fit; names it in one line.
    """
    spec = description.environment
    _check_spaces(spec.observations, spec.actions)
    if spec.unprocessed is not None:
        _check_spaces(spec.unprocessed.observations, spec.unprocessed.actions)
    _check_arrays("recurrent state", description.recurrent_state)
    if description.inputs != spec.observations:
        raise DistrlError("its description does not fit itself: inputs are not the environment's observations")
    _check_distributions(description, spec)


def _check_spaces(observations: Mapping[str, ArraySpec], actions: Mapping[str, ActionSpec]) -> None:
    for what, found in (("observations", observations), ("actions", actions)):
        if not found:
            raise DistrlError(f"its description does not fit itself: there are no {what}")
    _check_arrays("observation", observations)
    for name, action in actions.items():
        if not _is_action(action):
            raise DistrlError(f"its description does not fit itself: action {name!r} is {_short(action)}")


def _check_arrays(what: str, arrays: Mapping[str, ArraySpec]) -> None:
    for name, array in arrays.items():
        stacked = array.frames >= 1 and (array.frames == 1 or (array.shape and array.shape[-1] % array.frames == 0))
        encoded = array.one_hot is None or _is_one_hot(array, array.one_hot)
        if array.dtype not in DTYPES or not _is_shape(array.shape) or not stacked or not encoded:
            raise DistrlError(f"its description does not fit itself: {what} {name!r} is {_short(array)}")


def _is_one_hot(array: ArraySpec, shown: OneHot) -> bool:
    counts = len(shown.choices) == len(shown.starts) == math.prod(shown.shape)
    choices = zip(shown.choices, shown.starts, strict=False)
    return (
        _is_shape(shown.shape) and counts and all(starmap(_is_choice, choices)) and array.shape == (sum(shown.choices),)
    )


def _is_shape(shape: tuple[int, ...]) -> bool:
    return all(0 <= size <= MOST_NUMBERS for size in shape) and math.prod(shape) <= MOST_NUMBERS


def _is_action(action: ActionSpec) -> bool:
    match action:
        case DiscreteSpec():
            return _is_choice(action.n, action.start)
        case MultiDiscreteSpec():
            same = 0 < len(action.choices) == len(action.starts)
            return same and all(starmap(_is_choice, zip(action.choices, action.starts, strict=True)))
        case MultiBinarySpec():
            return _is_shape(action.shape) and action.n > 0
        case BoxSpec():
            return _is_shape(action.shape) and 0 < action.n == len(action.low) == len(action.high)


def _is_choice(n: int, start: int) -> bool:
    """Its numbers are int64, counted from 0 int32."""
    return 1 <= n <= MOST_NUMBERS and _WHOLE.min <= start <= _WHOLE.max - n


def _check_distributions(description: BundleDescription, spec: EnvSpec) -> None:
    distributions = description.action_distributions
    if distributions.keys() != spec.actions.keys():
        raise DistrlError(
            f"its description does not fit itself: actions are {_short([*spec.actions])}, "
            f"distributions are of {_short([*distributions])}"
        )
    for name, distribution in distributions.items():
        action = spec.actions[name]
        if not _is_of(distribution, action):
            raise DistrlError(
                f"its description does not fit itself: action {name!r} is {_short(action)}, "
                f"its distribution {_short(distribution)}"
            )
        output = output_of(name, distribution)
        if description.outputs.get(output) != (distribution.parameters_size,):
            found = description.outputs.get(output, "not there")
            raise DistrlError(
                f"its description does not fit itself: output {output!r} is {_short(found)}, "
                f"not {(distribution.parameters_size,)}"
            )


def _is_of(distribution: DistributionSpec, action: ActionSpec) -> bool:
    """Whether what is chosen by it is such an action."""
    match distribution:
        case CategoricalSpec() | ValuesSpec():
            return isinstance(action, DiscreteSpec) and distribution.n == action.n
        case MultiValuesSpec() if isinstance(action, MultiBinarySpec):
            return distribution.choices == (2,) * action.n
        case MultiCategoricalSpec() | MultiValuesSpec():
            return isinstance(action, MultiDiscreteSpec) and distribution.choices == action.choices
        case BernoulliSpec():
            return isinstance(action, MultiBinarySpec) and distribution.n == action.n
        case GaussianSpec():
            return isinstance(action, BoxSpec) and distribution.n == action.n
        case SquashedGaussianSpec() | BetaSpec():
            same = len(distribution.low) == len(distribution.high)
            ordered = same and all(map(operator.lt, distribution.low, distribution.high))
            return ordered and isinstance(action, BoxSpec) and len(distribution.low) == action.n


def _short(value: object) -> str:
    """At most 120 characters of it."""
    told = repr(value)
    return told if len(told) <= 120 else f"{told[:119]}…"
