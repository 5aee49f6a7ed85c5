"""The families of values: the best of n choices is taken, or the best of each of several choices at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from distrl.errors import ConfigError
from distrl.networks.actions.categorical import CategoricalSpec, MultiCategoricalSpec, greedy
from distrl.networks.actions.family import ActionSampler, ModeSampler, UndrawnFamily, slices
from distrl.types import (
    ActionSpec,
    Array,
    BoxSpec,
    DiscreteSpec,
    FloatArray,
    MultiBinarySpec,
    MultiDiscreteSpec,
)


class _Values(UndrawnFamily):
    holds: ClassVar[str] = "values of choices"
    explored_by: ClassVar[str] = "epsilon_greedy or boltzmann"
    masked: bool

    @property
    def may_be_masked(self) -> bool:
        return self.masked


@dataclass(frozen=True)
class ValuesSpec(_Values):
    """Values of n choices; `masked`: one below -MASKED / 2 is of a choice that is not allowed."""

    n: int
    output: str
    masked: bool = False
    kind: Literal["values"] = "values"
    is_one_choice: ClassVar[bool] = True

    @property
    def parameters_size(self) -> int:
        return self.n

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many there are to choose from, for every choice in turn."""
        return (self.n,)

    def fits(self, action: ActionSpec) -> bool:
        return isinstance(action, DiscreteSpec) and self.n == action.n

    def sampler(self) -> ActionSampler:
        return ValuesSampler()

    def as_logits(self) -> CategoricalSpec:
        return CategoricalSpec(self.n)

    def values(self, output: Any) -> list[Any]:
        """The output [..., P] by choices, in whatever framework it is."""
        return [output]

    def made(self, actions: Any) -> list[Any]:
        """The actions [...] by choices."""
        return [actions]


@dataclass(frozen=True)
class MultiValuesSpec(_Values):
    """Values of choices that are made at once, the k-th among ``choices[k]``; `masked` as in `ValuesSpec`."""

    choices: tuple[int, ...]
    output: str
    masked: bool = False
    kind: Literal["multi_values"] = "multi_values"

    @property
    def parameters_size(self) -> int:
        return sum(self.choices)

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.choices

    def fits(self, action: ActionSpec) -> bool:
        if isinstance(action, MultiBinarySpec):
            return self.choices == (2,) * action.n
        return isinstance(action, MultiDiscreteSpec) and self.choices == action.choices

    def sampler(self) -> ActionSampler:
        return MultiValuesSampler(self)

    def as_logits(self) -> MultiCategoricalSpec:
        return MultiCategoricalSpec(self.choices)

    def values(self, output: Any) -> list[Any]:
        return [output[..., part] for part in slices(self.choices)]

    def made(self, actions: Any) -> list[Any]:
        return [actions[..., k] for k in range(len(self.choices))]


ValuesSpecs = ValuesSpec | MultiValuesSpec


class ValuesSampler(ModeSampler):
    """The best choice, the first of equals."""

    def mode(self, parameters: FloatArray) -> Array:
        return greedy(parameters)


class MultiValuesSampler(ModeSampler):
    """The best of every choice, the first of equals."""

    def __init__(self, spec: MultiValuesSpec) -> None:
        self._slices = slices(spec.choices)

    def mode(self, parameters: FloatArray) -> Array:
        return np.stack([greedy(parameters[:, part]) for part in self._slices], axis=1)


def values_specs(actions: Mapping[str, ActionSpec], head: str, *, masked: bool = False) -> dict[str, ValuesSpecs]:
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
                specs[name] = ValuesSpec(action.n, output, masked)
            case MultiDiscreteSpec():
                specs[name] = MultiValuesSpec(action.choices, output, masked)
            case MultiBinarySpec():
                specs[name] = MultiValuesSpec((2,) * action.n, output, masked)
            case BoxSpec():
                raise ConfigError(f"head {head}: needs choices to value; action {name!r} is of real numbers")
    return specs


def valued(specs: Mapping[str, Any]) -> dict[str, ValuesSpecs]:
    """Those of an environment's actions that are chosen by values."""
    return {action: spec for action, spec in specs.items() if isinstance(spec, ValuesSpecs)}


def values_of_choices(outputs: Mapping[str, Any], specs: Mapping[str, ValuesSpecs], prefix: str = "") -> list[Any]:
    """Return the values of every choice, of all actions in turn, in the framework of the outputs.

    Args:
        outputs: The network's outputs by name, [..., A] each.
        specs: Action -> where its values are.
        prefix: What the outputs' names begin with.

    Returns:
        K arrays, float32 [..., A_k].
    """
    return [values for spec in specs.values() for values in spec.values(outputs[prefix + spec.output])]


def choices_made(actions: Mapping[str, Any], specs: Mapping[str, ValuesSpecs]) -> list[Any]:
    """The choices taken, in the order of `values_of_choices`.

    Args:
        actions: By name, int32 [...], or [..., k] where an action is made of several choices.

    Returns:
        K arrays, int32 [...].
    """
    return [made for action, spec in specs.items() for made in spec.made(actions[action])]
