"""The JSON part of a policy bundle, and the check that its parts fit each other; independent of numeric frameworks.

`bundle.py` writes a description and actors read it. Descriptions from files are checked before use.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Literal, TypeVar

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
"""Incremented whenever an older reader would misread a newer description."""


@dataclass(frozen=True)
class WeightSpec:
    """One weight, an input or an external initializer of the graph, under its Keras path.

    Attributes:
        mixed: Mixing rates apply to it: it is a trainable float.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    mixed: bool


@dataclass(frozen=True)
class NoisyWeights:
    """Names of one noisy layer's weights: means, and scales of the noise on them.

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
    """Scale of rewards of a policy: output ``value`` is for ``clip((r - mean) / deviation, -clip, clip)``.

    Attributes:
        kind: See `algorithm.reward_normalization.kind`.
        clip: None: rewards are not clipped.
        mean: 0 unless `kind` is reward.
        count: Number of steps in these statistics; below 2 rewards are not normalised.
    """

    kind: Literal["discounted_return", "reward"]
    clip: float | None
    mean: float
    deviation: float
    count: int


@dataclass(frozen=True)
class BundleDescription:
    """Everything that an actor needs of a policy beside the graph.

    Attributes:
        inputs: Graph inputs by name, without batch axis.
        recurrent_state: State inputs by name, without batch axis; the graph returns the next state as ``next_<name>``.
            Empty for policies without memory.
        outputs: Graph outputs by name -> shape without batch axis, float32; without the next state.
        action_distributions: Action -> the family that its output parametrises.
        environment: The policy's environment.
        weights: All weights that the graph reads, in the network's order.
        noisy: Noisy layers. The graph reads their means; scales of the noise may travel beside the weights.
        libraries: Versions of the libraries that exported the graph.
        sha256: Hash of the graph, hexadecimal.
        exploration: How actors explore while training; None: only by the distributions.
        rewards: Scale of rewards when the weights were saved; None: rewards are not normalised.
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
        """Scales of the noise of noisy layers by name; each has the shape of its mean."""
        weights = {spec.name: spec for spec in self.weights}
        pairs = [(layer.kernel, layer.kernel_sigma) for layer in self.noisy]
        pairs += [(layer.bias, layer.bias_sigma) for layer in self.noisy if layer.bias and layer.bias_sigma]
        return {sigma: replace(weights[mean], name=sigma) for mean, sigma in pairs}

    def to_json(self) -> str:
        return _DESCRIPTION.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "BundleDescription":
        """Invert `to_json`; raise DistrlError for other texts and other formats."""
        description = parsed(_DESCRIPTION, text, "policy bundle: the description")
        if description.format != FORMAT:
            raise DistrlError(
                f"policy bundle: format {description.format}, this distrl reads {FORMAT}; use the one that wrote it"
            )
        return description


_DESCRIPTION = TypeAdapter(BundleDescription)

Parsed = TypeVar("Parsed")


def parsed(adapter: TypeAdapter[Parsed], text: str | bytes, what: str) -> Parsed:
    """Parse JSON; raise DistrlError, which names the first invalid field, if it does not fit."""
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "JSON"
        raise DistrlError(f"{what} is not valid: {where}: {first['msg']}") from error


MOST_NUMBERS = 2**28
"""Most numbers of one array: 1 GiB of float32."""
DTYPES = frozenset({"bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))}) | {
    *("float16", "float32", "float64")
}
_WHOLE = np.iinfo(np.int64)


def check_description(description: BundleDescription) -> None:
    """Raise DistrlError, in one line, unless spaces, distributions and outputs fit each other."""
    spec = description.environment
    _check_spaces(spec.observations, spec.actions)
    if spec.unprocessed is not None:
        _check_spaces(spec.unprocessed.observations, spec.unprocessed.actions)
    _check_arrays("recurrent state", description.recurrent_state)
    if description.inputs != spec.observations:
        raise _inconsistent("inputs are not the environment's observations")
    _check_distributions(description, spec)


def _check_spaces(observations: Mapping[str, ArraySpec], actions: Mapping[str, ActionSpec]) -> None:
    for what, found in (("observations", observations), ("actions", actions)):
        if not found:
            raise _inconsistent(f"there are no {what}")
    _check_arrays("observation", observations)
    for name, action in actions.items():
        if not _is_action(action):
            raise _inconsistent(f"action {name!r} is {_short(action)}")


def _check_arrays(what: str, arrays: Mapping[str, ArraySpec]) -> None:
    for name, array in arrays.items():
        stacked = array.frames >= 1 and (array.frames == 1 or (array.shape and array.shape[-1] % array.frames == 0))
        known = array.dtype in DTYPES and _is_shape(array.shape) and stacked
        if not known or (array.one_hot is not None and not _is_one_hot(array, array.one_hot)):
            raise _inconsistent(f"{what} {name!r} is {_short(array)}")


def _is_one_hot(array: ArraySpec, shown: OneHot) -> bool:
    """Return whether the array holds these choices: as numbers, or in policies of earlier versions as one-hot rows."""
    counts = len(shown.choices) == len(shown.starts) == math.prod(shown.shape) > 0
    choices = zip(shown.choices, shown.starts, strict=False)
    if not (_is_shape(shown.shape) and counts and all(starmap(_is_choice, choices)) and shown.width <= MOST_NUMBERS):
        return False
    if np.dtype(array.dtype).kind == "f":
        return array.frame_shape == (shown.width,)
    held = np.dtype(array.dtype).kind in "iu" and max(shown.choices) - 1 <= np.iinfo(array.dtype).max
    return held and array.frame_shape == (len(shown.choices),)


def _is_shape(shape: tuple[int, ...]) -> bool:
    return all(0 <= size <= MOST_NUMBERS for size in shape) and math.prod(shape) <= MOST_NUMBERS


def _is_action(action: ActionSpec) -> bool:
    match action:
        case DiscreteSpec():
            return _is_choice(action.n, action.start)
        case MultiDiscreteSpec():
            same = 0 < len(action.choices) == len(action.starts)
            same = same and (
                action.shape is None or (_is_shape(action.shape) and math.prod(action.shape) == len(action.choices))
            )
            return same and all(starmap(_is_choice, zip(action.choices, action.starts, strict=True)))
        case MultiBinarySpec():
            return _is_shape(action.shape) and action.n > 0
        case BoxSpec():
            return _is_shape(action.shape) and 0 < action.n == len(action.low) == len(action.high)


def _is_choice(n: int, start: int) -> bool:
    """Return whether its numbers fit int64, and counted from 0 int32."""
    return 1 <= n <= MOST_NUMBERS and _WHOLE.min <= start <= _WHOLE.max - n


def _check_distributions(description: BundleDescription, spec: EnvSpec) -> None:
    distributions = description.action_distributions
    if distributions.keys() != spec.actions.keys():
        raise _inconsistent(f"actions are {_short([*spec.actions])}, distributions are of {_short([*distributions])}")
    for name, distribution in distributions.items():
        action = spec.actions[name]
        if not distribution.fits(action):
            raise _inconsistent(f"action {name!r} is {_short(action)}, its distribution {_short(distribution)}")
        output = distribution.output_of(name)
        found, expected = description.outputs.get(output, "not there"), (distribution.parameters_size,)
        if found != expected:
            raise _inconsistent(f"output {output!r} is {_short(found)}, not {expected}")


def _inconsistent(what: str) -> DistrlError:
    return DistrlError(f"its description is inconsistent: {what}")


def _short(value: object) -> str:
    """Return at most 120 characters of a value's representation."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:119]}…"
