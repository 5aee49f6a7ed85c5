"""What a policy's outputs mean: one specification per action, free of every numeric framework but NumPy.

A policy puts out one flat float32 array [..., P] per action, named by `policy_output`. Learner
(`networks/distributions.py`, keras.ops) and actor (`actors/action_selection.py`, NumPy) read it by the same rules:

| kind              | P      | parameters, in order            | action of one environment                      |
|-------------------|--------|---------------------------------|------------------------------------------------|
| categorical       | n      | logits                          | int32 [], 0 … n - 1                            |
| multi_categorical | sum    | logits of every choice in turn  | int32 [k]                                      |
| bernoulli         | n      | logits of 1                     | int32 [n], 0 or 1                              |
| gaussian          | 2 n    | mean [n], log σ [n]             | float32 [n], unbounded                         |
| squashed_gaussian | 2 n    | mean [n], log σ [n] of u        | float32 [n], low + (tanh u + 1) / 2 (high-low) |
| beta              | 2 n    | raw α [n], raw β [n]            | float32 [n], low + y (high - low)              |

α = 1 + softplus(raw α), and β likewise: never below 1, so that the density has one peak (Chou et al. 2017). Logits are
unnormalised log-probabilities and finite; a choice that is not allowed arrives lowered by 1e9.

Three limits keep log-probabilities within what float32 carries; both sides apply them before anything else. Beyond a
limit the gradient is 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from distrl.errors import ConfigError
from distrl.types import ActionSpec, BoxSpec, DiscreteSpec, FloatArray, MultiBinarySpec, MultiDiscreteSpec

GAUSSIAN_LOG_STDDEV = (-10.0, 10.0)
"""Clip of log σ, in the environment's own scale: four decades to either side of 1."""
SQUASHED_LOG_STDDEV = (-5.0, 2.0)
"""Clip of log σ before squashing. SAC's [-20, 2] (Haarnoja et al. 2018) with a higher floor: an action that has been
rounded to float32 and is unsquashed again is off by some 1e-7, which at σ = e^-20 would be 50 σ; at e^-5 it is 1e-5 σ,
and the policy is already 150 times narrower than its bounds."""
BETA_RAW_HIGH = 1000.0
"""Upper clip of raw α and raw β, for the same reason: here σ is 1/90 of the bounds' width."""
UNIT_EDGE = 2.0**-20
"""A bounded action, as a fraction of its bounds' width, is kept this far inside them: its log-probability is finite,
and equal on both sides, however far the policy is saturated. tanh u comes within 1.9e-6 of ±1 (|u| <= 6.93)."""

Continuous = Literal["auto", "gaussian", "squashed_gaussian", "beta"]


@dataclass(frozen=True)
class CategoricalSpec:
    """One choice among n."""

    n: int
    kind: Literal["categorical"] = "categorical"

    @property
    def parameters_size(self) -> int:
        return self.n


@dataclass(frozen=True)
class MultiCategoricalSpec:
    """Independent choices at once, the k-th among ``choices[k]``."""

    choices: tuple[int, ...]
    kind: Literal["multi_categorical"] = "multi_categorical"

    @property
    def parameters_size(self) -> int:
        return sum(self.choices)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where the logits of each choice lie among the parameters."""
        stops = np.cumsum(self.choices).tolist()
        return tuple(slice(stop - n, stop) for stop, n in zip(stops, self.choices, strict=True))


@dataclass(frozen=True)
class BernoulliSpec:
    """`n` independent switches."""

    n: int
    kind: Literal["bernoulli"] = "bernoulli"

    @property
    def parameters_size(self) -> int:
        return self.n


@dataclass(frozen=True)
class GaussianSpec:
    """`n` independent normal variables in the environment's scale; it is the environment that cuts them to bounds."""

    n: int
    kind: Literal["gaussian"] = "gaussian"

    @property
    def parameters_size(self) -> int:
        return 2 * self.n


@dataclass(frozen=True)
class SquashedGaussianSpec:
    """Independent normal variables behind tanh, scaled to finite bounds."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    kind: Literal["squashed_gaussian"] = "squashed_gaussian"

    @property
    def parameters_size(self) -> int:
        return 2 * len(self.low)


@dataclass(frozen=True)
class BetaSpec:
    """Independent Beta variables, scaled to finite bounds."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    kind: Literal["beta"] = "beta"

    @property
    def parameters_size(self) -> int:
        return 2 * len(self.low)


DistributionSpec = (
    CategoricalSpec | MultiCategoricalSpec | BernoulliSpec | GaussianSpec | SquashedGaussianSpec | BetaSpec
)


def distribution_spec(action: ActionSpec, continuous: Continuous) -> DistributionSpec:
    """The distribution of one action.

    Args:
        action: What the environment takes.
        continuous: The policy head's `distribution`: what real numbers are drawn from; auto: gaussian. Choices and
            switches have only one distribution each.

    Raises:
        ConfigError: squashed_gaussian or beta for an action without finite bounds, the lower below the upper.
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
    low, high = _finite_bounds(action, continuous)
    return SquashedGaussianSpec(low, high) if continuous == "squashed_gaussian" else BetaSpec(low, high)


def policy_output(action: str, head: str = "policy") -> str:
    """Name of the network's output that holds the parameters of this action's distribution."""
    return f"{head}/{action}"


def low_and_width(spec: SquashedGaussianSpec | BetaSpec) -> tuple[FloatArray, FloatArray]:
    """Lower bounds and distances between bounds, float32 [n]; rounded here once, so that both sides scale alike."""
    low = np.array(spec.low, np.float64)
    return low.astype(np.float32), (np.array(spec.high, np.float64) - low).astype(np.float32)


def _finite_bounds(action: BoxSpec, continuous: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    widest = float(np.finfo(np.float32).max)
    for position, (low, high) in enumerate(zip(action.low, action.high, strict=True)):
        if low is None or high is None or not 0.0 < high - low <= widest:
            raise ConfigError(
                f"distribution: {continuous} needs finite bounds, the lower below the upper, but number {position} of "
                f"the action has [{_number(low, -math.inf)}, {_number(high, math.inf)}]; set distribution: gaussian, "
                f"or bound the environment's action space"
            )
    return _all_numbers(action.low), _all_numbers(action.high)


def _number(bound: float | None, absent: float) -> float:
    return absent if bound is None else bound


def _all_numbers(bounds: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(float(bound) for bound in bounds if bound is not None)
