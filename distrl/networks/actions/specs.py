"""What a policy's outputs mean: one specification per action, free of every numeric framework but NumPy.

A policy puts out one flat float32 array [..., P] per action, named by `policy_output`. Learner
(`networks/actions/distributions.py`, keras.ops) and actor (`actors/action_selection.py`, NumPy) read it by the same
rules:

| kind              | P      | parameters, in order            | action of one environment                      |
|-------------------|--------|---------------------------------|------------------------------------------------|
| categorical       | n      | logits                          | int32 [], 0 … n - 1                            |
| multi_categorical | sum    | logits of every choice in turn  | int32 [k]                                      |
| bernoulli         | n      | logits of 1                     | int32 [n], 0 or 1                              |
| gaussian          | 2 n    | mean [n], log σ [n]             | float32 [n], unbounded                         |
| squashed_gaussian | 2 n    | mean [n], log σ [n] of u        | float32 [n], low + (tanh u + 1) / 2 (high-low) |
| beta              | 2 n    | raw α [n], raw β [n]            | float32 [n], low + y (high - low)              |
| values            | n      | value of every choice           | int32 [], 0 … n - 1; an output of its own      |
| multi_values      | sum    | values of every choice in turn  | int32 [k]; an output of its own                |
| deterministic     | n      | the action itself               | float32 [n], within bounds; an output of its own |

α = 1 + softplus(raw α), and β likewise: never below 1, so that the density has one peak (Chou et al. 2017). Logits are
unnormalised log-probabilities and finite; a choice that is not allowed arrives lowered by `MASKED`.

Three limits keep log-probabilities within what float32 carries; both sides apply them before anything else. Beyond a
limit the gradient is 0.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from distrl.errors import ConfigError
from distrl.networks.actions.deterministic import DeterministicSpec
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

MASKED = 1e9
"""What a logit loses whose choice is not allowed: its probability is exactly 0, and all gradients stay finite."""

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
        return slices(self.choices)


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


@dataclass(frozen=True)
class ValuesSpec:
    """Not a distribution: values of n choices, the best of which is taken unless exploration says otherwise.

    Attributes:
        output: The network's output that holds them.
    """

    n: int
    output: str
    kind: Literal["values"] = "values"

    @property
    def parameters_size(self) -> int:
        return self.n


@dataclass(frozen=True)
class MultiValuesSpec:
    """The same of choices that are made at once, the k-th among ``choices[k]``: the best of each is taken.

    Attributes:
        output: The network's output that holds them all.
    """

    choices: tuple[int, ...]
    output: str
    kind: Literal["multi_values"] = "multi_values"

    @property
    def parameters_size(self) -> int:
        return sum(self.choices)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where the values of each choice lie among the parameters."""
        return slices(self.choices)


ValuesSpecs = ValuesSpec | MultiValuesSpec
"""What is chosen by values, and drawn from no distribution."""

DistributionSpec = (
    CategoricalSpec
    | MultiCategoricalSpec
    | BernoulliSpec
    | GaussianSpec
    | SquashedGaussianSpec
    | BetaSpec
    | ValuesSpec
    | MultiValuesSpec
    | DeterministicSpec
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


def values_specs(actions: Mapping[str, ActionSpec], head: str) -> dict[str, ValuesSpecs]:
    """Where the values of every action's choices are: output ``<head>/q``, of several actions ``<head>/q/<action>``.

    A switch is a choice of two.

    Raises:
        ConfigError: An action is made of real numbers.
    """
    specs: dict[str, ValuesSpecs] = {}
    for name, action in actions.items():
        output = f"{head}/q" if len(actions) == 1 else f"{head}/q/{name}"
        match action:
            case DiscreteSpec():
                specs[name] = ValuesSpec(action.n, output)
            case MultiDiscreteSpec():
                specs[name] = MultiValuesSpec(action.choices, output)
            case MultiBinarySpec():
                specs[name] = MultiValuesSpec((2,) * action.n, output)
            case BoxSpec():
                raise ConfigError(f"head {head}: needs choices to value; action {name!r} is of real numbers")
    return specs


def choice_sizes(specs: Mapping[str, ValuesSpecs]) -> list[int]:
    """How many there are to choose from, for every choice of all actions in turn."""
    sizes: list[int] = []
    for spec in specs.values():
        sizes += [spec.n] if isinstance(spec, ValuesSpec) else spec.choices
    return sizes


def values_of_choices(outputs: Mapping[str, Any], specs: Mapping[str, ValuesSpecs], prefix: str = "") -> list[Any]:
    """The values of every choice, of all actions in turn; in whatever framework the outputs are.

    Args:
        outputs: The network's outputs by name, [..., A] each.
        specs: Action -> where its values are.
        prefix: What the outputs' names begin with.

    Returns:
        K arrays, float32 [..., A_k].
    """
    values: list[Any] = []
    for spec in specs.values():
        output = outputs[prefix + spec.output]
        values += [output] if isinstance(spec, ValuesSpec) else [output[..., part] for part in spec.slices]
    return values


def choices_made(actions: Mapping[str, Any], specs: Mapping[str, ValuesSpecs]) -> list[Any]:
    """What was chosen, in the order of `values_of_choices`.

    Args:
        actions: By name, int32 [...], or [..., k] where an action is made of several choices.

    Returns:
        K arrays, int32 [...].
    """
    made: list[Any] = []
    for action, spec in specs.items():
        taken = actions[action]
        made += [taken] if isinstance(spec, ValuesSpec) else [taken[..., k] for k in range(len(spec.choices))]
    return made


def policy_output(action: str, head: str = "policy") -> str:
    """Name of the network's output that holds the parameters of this action's distribution."""
    return f"{head}/{action}"


def output_of(action: str, spec: DistributionSpec, head: str = "policy") -> str:
    """Name of the network's output that this action is chosen from."""
    return spec.output if isinstance(spec, ValuesSpecs | DeterministicSpec) else policy_output(action, head)


def low_and_width(spec: SquashedGaussianSpec | BetaSpec) -> tuple[FloatArray, FloatArray]:
    """Lower bounds and distances between bounds, float32 [n]; rounded here once, so that both sides scale alike."""
    low = np.array(spec.low, np.float64)
    return low.astype(np.float32), (np.array(spec.high, np.float64) - low).astype(np.float32)


def slices(choices: Sequence[int]) -> tuple[slice, ...]:
    """Where each of so many numbers lies among all of them."""
    stops = np.cumsum(choices).tolist()
    return tuple(slice(stop - n, stop) for stop, n in zip(stops, choices, strict=True))


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
