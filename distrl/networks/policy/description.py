"""The JSON half of a policy bundle, and the check that its parts fit each other. Independent of numeric frameworks.

`bundle.py` writes a description and actors read it. Descriptions that come from files are checked before use."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from distrl.config.exploration import ExplorationParameters
from distrl.errors import DistrlError
from distrl.networks.actions import FamilySpec
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

FORMAT = 4
"""Raised whenever an older reader would misread a newer description."""


@dataclass(frozen=True)
class WeightSpec:
    """One weight: an input or an external initializer of the graph under its Keras path. Only trainable floats are ever
    mixed."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    mixed: bool


MOST_INPUTS = 65_536


def are_inputs(weights: Iterable[WeightSpec]) -> bool:
    """Whether a graph takes these weights as inputs; others are external initializers.

    New weights of an input cost nothing, those of an initializer a new session, 0.8 ms and more. In return ONNX Runtime
    lays initializers out for convolutions, which have the only kernels of more than two axes, and for products of
    matrices. For two layers of 64, a step of 64 rows takes 25 µs instead of 20; for two layers of 256, one of 8 rows
    takes 40 instead of 23, so that `MOST_INPUTS` numbers are where unrolls of 32 steps break even.
    """
    shapes = [spec.shape for spec in weights]
    return all(len(shape) <= 2 for shape in shapes) and sum(map(math.prod, shapes)) <= MOST_INPUTS


@dataclass(frozen=True)
class NoisyWeights:
    """The weights of one noisy layer by name: means, and how strong the noise on them is.

    Attributes:
        kernel, kernel_sigma: float32 [p, q].
        bias, bias_sigma: float32 [q]; None without a bias.
    """

    kernel: str
    kernel_sigma: str
    bias: str | None = None
    bias_sigma: str | None = None


@dataclass(frozen=True)
class RewardStatistics:
    """In which scale of rewards a policy learned: output ``value`` is of ``clip((r - mean) / deviation, -clip, clip)``.

    Attributes:
        kind: As `algorithm.reward_normalization.kind`.
        clip: None: not cut.
        mean: 0 unless `kind` takes rewards less their mean.
        deviation: What they are divided by.
        count: Steps behind these statistics; below 2 rewards are as they came.
    """

    kind: Literal["discounted_return", "reward"]
    clip: float | None
    mean: float
    deviation: float
    count: int


@dataclass(frozen=True)
class BundleDescription:
    """Everything an actor must know of a policy beside the graph.

    Attributes:
        inputs: Graph inputs by name, without batch axis.
        recurrent_state: State inputs by name, without batch axis; the graph puts the next state out as
            ``next_<name>``. Empty for policies without memory.
        outputs: Graph outputs by name -> shape without batch axis, float32; the next state is not among them.
        action_distributions: Action -> the distribution that output ``policy/<action>`` parametrises.
        environment: The environment the policy was made for.
        weights: In the network's order; all that the graph reads.
        noisy: Noisy layers. What the graph reads of these are the means; the strength of noise may travel beside them.
        libraries: Versions that exported the graph.
        sha256: Of the graph, hexadecimal.
        exploration: How actors explore while training; None: by the distributions alone.
        rewards: Their scale when the weights beside this description were saved; None: they are not normalised.
        format: `FORMAT` at the time of writing.
    """

    inputs: dict[str, ArraySpec]
    recurrent_state: dict[str, ArraySpec]
    outputs: dict[str, tuple[int, ...]]
    action_distributions: dict[str, FamilySpec]
    environment: EnvSpec
    weights: tuple[WeightSpec, ...]
    libraries: dict[str, str]
    sha256: str
    noisy: tuple[NoisyWeights, ...] = ()
    exploration: ExplorationParameters | None = None
    rewards: RewardStatistics | None = None
    format: int = FORMAT

    @property
    def sigmas(self) -> dict[str, WeightSpec]:
        """How strong the noise of noisy layers is, by name: arrays like those that it is added to."""
        weights = {spec.name: spec for spec in self.weights}
        pairs = [(layer.kernel, layer.kernel_sigma) for layer in self.noisy]
        pairs += [(layer.bias, layer.bias_sigma) for layer in self.noisy if layer.bias and layer.bias_sigma]
        return {sigma: replace(weights[mean], name=sigma) for mean, sigma in pairs}

    def to_json(self) -> str:
        """One line of JSON."""
        return _DESCRIPTION.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "BundleDescription":
        """The inverse of `to_json`.

        Raises:
            DistrlError: Not a description, or one of another format.
        """
        try:
            description = _DESCRIPTION.validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "JSON"
            raise DistrlError(f"policy bundle: the description is not valid: {where}: {first['msg']}") from error
        if description.format != FORMAT:
            raise DistrlError(
                f"policy bundle: format {description.format}, this distrl reads {FORMAT}; use the one that wrote it"
            )
        return description


_DESCRIPTION = TypeAdapter(BundleDescription)


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
        if not distribution.fits(action):
            raise DistrlError(
                f"its description does not fit itself: action {name!r} is {_short(action)}, "
                f"its distribution {_short(distribution)}"
            )
        output = distribution.output_of(name)
        if description.outputs.get(output) != (distribution.parameters_size,):
            found = description.outputs.get(output, "not there")
            raise DistrlError(
                f"its description does not fit itself: output {output!r} is {_short(found)}, "
                f"not {(distribution.parameters_size,)}"
            )


def _short(value: object) -> str:
    """At most 120 characters of it."""
    told = repr(value)
    return told if len(told) <= 120 else f"{told[:119]}…"
