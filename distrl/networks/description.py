"""The JSON half of a policy bundle: what `bundle.py` writes and actors read. Free of every numeric framework."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from distrl.config.exploration import ExplorationParameters
from distrl.errors import DistrlError
from distrl.networks.distribution_specs import DistributionSpec
from distrl.types import ArraySpec, EnvSpec

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
    action_distributions: dict[str, DistributionSpec]
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
