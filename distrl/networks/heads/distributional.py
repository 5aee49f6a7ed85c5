"""Heads with a distribution of returns per choice: categorical (C51), Rainbow, quantiles (QR-DQN)."""

from collections.abc import Mapping
from typing import Any, TypeVar

import keras
import numpy as np

from distrl.config.heads import (
    AtomsSection,
    CategoricalQHeadParameters,
    QuantileQHeadParameters,
    RainbowQHeadParameters,
)
from distrl.config.network import NetworkParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.heads.head import VALUE_GAIN, Targets, bare_target, named_targets
from distrl.networks.heads.losses import at_choice, categorical_cross_entropy, quantile_regression
from distrl.networks.heads.q import ChoiceHead
from distrl.types import EnvSpec

Parameters = TypeVar("Parameters", bound=AtomsSection)


class AtomsHead(ChoiceHead[Parameters]):
    """What heads have in common whose returns live on fixed atoms.

    Output `<name>`: float32 [batch, A, atoms], logits; and those of `ChoiceHead`, q being the expected return.

    The loss is the cross-entropy of the target distribution, which has been projected onto the atoms.

    Targets: {"actions": int32 [batch], "probabilities": float32 [batch, atoms]}, of the chosen ones; or, as Coach has
    it, float32 [batch, A, atoms], of each, and the losses of all are summed: a choice whose target is its own
    distribution has no gradient.

    Attributes:
        support: float32 [atoms], the return that each stands for.
    """

    def __init__(
        self, parameters: Parameters, spec: EnvSpec, network: NetworkParameters, *, name: str, seed: int
    ) -> None:
        super().__init__(parameters, spec, network, name=name, seed=seed)
        self.support = np.linspace(parameters.v_min, parameters.v_max, parameters.atoms, dtype=np.float32)

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        logits = outputs[self.name]
        if not isinstance(targets, Mapping):
            return keras.ops.sum(categorical_cross_entropy(logits, bare_target(targets, logits)), axis=-1)
        given = named_targets(targets, "actions", "probabilities")
        return categorical_cross_entropy(at_choice(logits, given["actions"]), given["probabilities"])

    def _atom_outputs(self, logits: Any) -> dict[str, Any]:
        q = keras.ops.sum(keras.ops.softmax(logits, axis=-1) * self.support, axis=-1)
        return {self.name: logits, **self._value_outputs(q)}


class CategoricalQHead(AtomsHead[CategoricalQHeadParameters]):
    """Logits of every choice's returns on fixed atoms (Bellemare, Dabney & Munos 2017)."""

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        atoms = self.parameters.atoms
        logits = self._dense(self.choices * atoms, gain=VALUE_GAIN)(self._hidden(features))
        return self._atom_outputs(keras.ops.reshape(logits, (-1, self.choices, atoms)))


class RainbowQHead(AtomsHead[RainbowQHeadParameters]):
    """As `CategoricalQHead`, with dueling logits (Hessel et al. 2018, "dueling networks")."""

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self._atom_outputs(self._streams(features, self.parameters.atoms))


class QuantileQHead(ChoiceHead[QuantileQHeadParameters]):
    """Quantiles of every choice's returns (Dabney et al. 2018).

    Output `<name>`: float32 [batch, A, quantiles]; and those of `ChoiceHead`, q being the quantiles' mean.

    Targets: {"actions": int32 [batch], "targets": float32 [batch, M]}, samples or quantiles of their returns.
    """

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        quantiles = self.parameters.quantiles
        flat = self._dense(self.choices * quantiles, gain=VALUE_GAIN)(self._hidden(features))
        values = keras.ops.reshape(flat, (-1, self.choices, quantiles))  # [batch, A*N] -> [batch, A, N]
        return {self.name: values, **self._value_outputs(keras.ops.mean(values, axis=-1))}

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        given = named_targets(targets, "actions", "targets")
        chosen = at_choice(outputs[self.name], given["actions"])
        return quantile_regression(chosen, given["targets"], self.parameters.huber_kappa)
