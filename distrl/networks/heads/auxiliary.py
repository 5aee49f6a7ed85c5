"""Heads beside values and policies: classification, and vectors of features."""

from collections.abc import Mapping
from typing import Any

from keras import ops

from distrl.config.heads import ClassificationHeadParameters, EmbeddingHeadParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.heads.head import POLICY_GAIN, VALUE_GAIN, Head, Targets, bare_target, single_action
from distrl.networks.heads.losses import categorical_cross_entropy
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


class EmbeddingHead(Head[EmbeddingHeadParameters]):
    """A vector of features.

    Output `<name>`: float32 [batch, E].

    The loss is the mean squared difference.

    Targets: float32 [batch, E].
    """

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {self.name: self._dense(self.parameters.embedding_size, gain=VALUE_GAIN)(self._hidden(features))}

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        predicted = outputs[self.name]
        return ops.mean(ops.square(predicted - bare_target(targets, predicted)), axis=-1)
