"""How actions are taken: a file per family, with its specification, its sampler and its distribution side by side.

| kind              | P      | parameters, in order            | action of one environment                      |
|-------------------|--------|---------------------------------|------------------------------------------------|
| categorical       | n      | logits                          | int32 [], 0 … n - 1                            |
| multi_categorical | sum    | logits of every choice in turn  | int32 [k]                                      |
| bernoulli         | n      | logits of 1                     | int32 [n], 0 or 1                              |
| gaussian          | 2 n    | mean [n], log σ [n]             | float32 [n], unbounded                         |
| bounded_gaussian  | 2 n    | m [n], log σ [n]                | float32 [n], unbounded; mean within the bounds |
| squashed_gaussian | 2 n    | mean [n], log σ [n] of u        | float32 [n], low + (tanh u + 1) / 2 (high-low) |
| beta              | 2 n    | raw α [n], raw β [n]            | float32 [n], low + y (high - low)              |
| values            | n      | value of every choice           | int32 [], 0 … n - 1; an output of its own      |
| multi_values      | sum    | values of every choice in turn  | int32 [k]; an output of its own                |
| ensemble          | K n    | values of every choice, by member | int32 [], 0 … n - 1; an output of its own  |
| deterministic     | n      | the action itself               | float32 [n]; an output of its own              |
"""

from collections.abc import Sequence
from typing import Literal

from distrl.errors import ConfigError
from distrl.networks.actions.bernoulli import BernoulliSpec
from distrl.networks.actions.beta import BetaSpec
from distrl.networks.actions.bounded_gaussian import BoundedGaussianSpec
from distrl.networks.actions.categorical import CategoricalSpec, MultiCategoricalSpec
from distrl.networks.actions.deterministic import DeterministicSpec
from distrl.networks.actions.ensemble import EnsembleSpec
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.networks.actions.squashed_gaussian import SquashedGaussianSpec
from distrl.networks.actions.values import MultiValuesSpec, ValuesSpec
from distrl.types import NARROWEST, WIDEST, ActionSpec, BoxSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec

FamilySpec = (
    CategoricalSpec
    | MultiCategoricalSpec
    | BernoulliSpec
    | GaussianSpec
    | BoundedGaussianSpec
    | SquashedGaussianSpec
    | BetaSpec
    | ValuesSpec
    | MultiValuesSpec
    | EnsembleSpec
    | DeterministicSpec
)
"""How one action is taken; `kind` tells the families apart in JSON."""

Continuous = Literal["auto", "gaussian", "bounded_gaussian", "squashed_gaussian", "beta"]

_Bounded = type[BoundedGaussianSpec] | type[SquashedGaussianSpec] | type[BetaSpec]
_BOUNDED: dict[str, _Bounded] = {
    "bounded_gaussian": BoundedGaussianSpec,
    "squashed_gaussian": SquashedGaussianSpec,
    "beta": BetaSpec,
}


def drawn_by(action: ActionSpec, continuous: Continuous) -> FamilySpec:
    """The distribution of one action.

    Args:
        action: As the environment takes it.
        continuous: The policy head's `distribution`, for real numbers; auto: gaussian. Choices and switches have only
            one distribution each.

    Raises:
        ConfigError: bounded_gaussian, squashed_gaussian or beta for an action without finite bounds by which it can be
            scaled.
    """
    match action:
        case DiscreteSpec():
            return CategoricalSpec(action.n)
        case MultiDiscreteSpec():
            return MultiCategoricalSpec(action.choices)
        case MultiBinarySpec():
            return BernoulliSpec(action.n)
        case BoxSpec() if continuous in ("auto", "gaussian"):
            return GaussianSpec(action.n)
    return _BOUNDED[continuous](*_finite_bounds(action, continuous))


def _finite_bounds(action: BoxSpec, continuous: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    equal = (place for place, (low, high) in enumerate(zip(action.low, action.high, strict=True)) if low == high)
    place = next(equal, None) if action.unscaled is None else action.unscaled
    if place is not None:
        raise ConfigError(
            f"distribution: {continuous} needs finite bounds, the lower below the upper and {NARROWEST:g} to "
            f"{WIDEST:g} apart, but number {place} of the action has {action.bounds_of(place)}; set distribution: "
            "gaussian, or bound the environment's action space"
        )
    return _all_numbers(action.low), _all_numbers(action.high)


def _all_numbers(bounds: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(float(bound) for bound in bounds if bound is not None)
