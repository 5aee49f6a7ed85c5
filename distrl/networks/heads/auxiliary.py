"""Heads beside values and policies: classification, random network distillation."""

import math
from collections.abc import Mapping
from typing import Any

from keras import ops

from distrl.config.heads import ClassificationHeadParameters, RNDHeadParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.heads.head import POLICY_GAIN, VALUE_GAIN, Head, Targets, bare_target, named_targets, single_action
from distrl.networks.heads.losses import categorical_cross_entropy
from distrl.networks.parts.layers import dense
from distrl.types import DiscreteSpec


class ClassificationHead(Head[ClassificationHeadParameters]):
    """A softmax over the A choices, learned from labels (behavioural cloning).

    Outputs `<name>`: float32 [batch, A], logits divided by `softmax_temperature`, and `<name>/softmax`: float32
    [batch, A], their probabilities.

    The loss is the cross-entropy in nats.

    Targets: int32 [batch], labels counted from 0.
    """

    def __post_init__(self) -> None:
        self.choices = single_action(self.spec, self.name, DiscreteSpec).n

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        logits = self._dense(self.choices, gain=POLICY_GAIN)(self._hidden(features))
        logits = logits / self.network.softmax_temperature
        return {self.name: logits, f"{self.name}/softmax": ops.softmax(logits, axis=-1)}

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        logits = outputs[self.name]
        labels = ops.one_hot(bare_target(targets, logits[..., 0]), self.choices, dtype="float32")
        return categorical_cross_entropy(logits, labels)


class RNDHead(Head[RNDHeadParameters]):
    """Random network distillation (Burda et al. 2018): large for observations unlike those of the training.

    Output `<name>`: float32 [batch], the mean squared difference between the head's prediction from the features and a
    fixed random function of the raw observations. It is both the intrinsic reward and the loss. The weights of the
    random function are not trainable; the seed determines them.

    Targets: none, {}.
    """

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        size = self.parameters.embedding_size
        predicted = self._dense(size, "predictor", gain=VALUE_GAIN)(self._hidden(features, "predictor_hidden"))
        difference = predicted - self._random_function(inputs)
        return {self.name: ops.mean(ops.square(difference), axis=-1)}

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        named_targets(targets)
        return outputs[self.name]

    def _random_function(self, inputs: Mapping[str, Any]) -> Any:
        """float32 [batch, embedding_size]; plain layers, because noise would change the function at every call."""
        observations = [_flat(inputs[name], observation.dtype) for name, observation in self.spec.observations.items()]
        embedding = ops.concatenate(observations, axis=-1)
        for index, units in enumerate(self.parameters.units):
            embedding = self._frozen(units, f"hidden_{index}", self.parameters.activation)(embedding)
        return self._frozen(self.parameters.embedding_size, "embedding", "none")(embedding)

    def _frozen(self, units: int, part: str, activation: Any) -> Any:
        layer = dense(units, activation, name=f"{self.name}_head_random_{part}", seed=self.seed)
        layer.trainable = False
        return layer


def _flat(observation: Any, dtype: str) -> Any:
    """[batch, ...] -> float32 [batch, product]; bytes as numbers from 0 to 1."""
    flat = ops.reshape(ops.cast(observation, "float32"), (-1, math.prod(observation.shape[1:])))
    return flat / 255.0 if dtype == "uint8" else flat
