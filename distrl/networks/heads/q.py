"""Heads with one value per choice: Q and dueling Q."""

from collections.abc import Mapping
from typing import Any, TypeVar

import keras

from distrl.config.heads import DuelingQHeadParameters, HeadSection, QHeadParameters
from distrl.config.network import NetworkParameters
from distrl.networks.distributions import Tensor
from distrl.networks.heads.head import VALUE_GAIN, Head, Targets, bare_target, fitted, named_targets, single_choice
from distrl.networks.heads.losses import at_choice
from distrl.networks.layers import dueling
from distrl.types import EnvSpec

Parameters = TypeVar("Parameters", bound=HeadSection)


class ChoiceHead(Head[Parameters]):
    """What heads with values of A choices have in common, whether these are numbers or distributions.

    Outputs `<name>/q`: float32 [batch, A], the value of every choice, and `<name>/softmax`: float32 [batch, A],
    softmax(q / softmax_temperature), the Boltzmann policy over them.

    Attributes:
        choices: A.
    """

    def __init__(
        self, parameters: Parameters, spec: EnvSpec, network: NetworkParameters, *, name: str, seed: int
    ) -> None:
        super().__init__(parameters, spec, network, name=name, seed=seed)
        self.choices = single_choice(spec, name).n

    def _value_outputs(self, q: Any) -> dict[str, Any]:
        softmax = keras.ops.softmax(q / self._network.softmax_temperature, axis=-1)
        return {f"{self.name}/q": q, f"{self.name}/softmax": softmax}

    def _streams(self, features: Any, width: int) -> Any:
        """State value and advantages of `width` numbers each, out of hidden layers of their own, joined.

        Returns:
            Keras tensor float32 [batch, A, width].
        """
        value = self._dense(width, "value", gain=VALUE_GAIN)(self._hidden(features, "value_hidden"))
        advantages = self._dense(self.choices * width, "advantage", gain=VALUE_GAIN)(
            self._hidden(features, "advantage_hidden")
        )
        advantages = keras.ops.reshape(advantages, (-1, self.choices, width))  # [batch, A*width] -> [batch, A, width]
        return dueling(keras.ops.expand_dims(value, 1), advantages, axis=1)


class ScalarQHead(ChoiceHead[Parameters]):
    """What Q heads have in common whose values are numbers.

    The loss is half the squared error, or Huber's, summed over the choices that have a target.

    Targets: {"actions": int32 [batch], "targets": float32 [batch]}, what the chosen ones should be; or, as Coach has
    it, float32 [batch, A], what each should be: a choice whose target is its own value has no gradient.
    """

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        q = outputs[f"{self.name}/q"]
        if not isinstance(targets, Mapping):
            return keras.ops.sum(self._regression(bare_target(targets, q) - q), axis=-1)
        given = named_targets(targets, "actions", "targets")
        chosen = at_choice(q, given["actions"])
        return self._regression(fitted(given["targets"], chosen) - chosen)


class QHead(ScalarQHead[QHeadParameters]):
    """One value per choice (Mnih et al. 2015)."""

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self._value_outputs(self._dense(self.choices, gain=VALUE_GAIN)(self._hidden(features)))


class DuelingQHead(ScalarQHead[DuelingQHeadParameters]):
    """State value plus advantages (Wang et al. 2016); no output of its own beside the values."""

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self._value_outputs(
            keras.ops.squeeze(self._streams(features, 1), axis=-1)
        )  # [batch, A, 1] -> [batch, A]
