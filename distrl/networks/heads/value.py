"""The value head: one number per state."""

from collections.abc import Mapping
from typing import Any

import keras

from distrl.config.heads import ValueHeadParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.heads.head import VALUE_GAIN, Head, Targets, bare_target, fitted, named_targets
from distrl.networks.heads.losses import clipped_regression


class ValueHead(Head[ValueHeadParameters]):
    """State value. Output `<name>`: float32 [batch].

    The loss is half the squared error, or Huber's, which agrees with it near 0. With `clip_range` it is the larger of
    that of the value and that of the value clipped around the old one, again with the half.

    Targets: float32 [batch]; with `clip_range` {"targets": float32 [batch], "old_values": float32 [batch]}.
    """

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        column = self._dense(1, gain=VALUE_GAIN)(self._hidden(features))
        return {self.name: keras.ops.squeeze(column, axis=-1)}  # [batch, 1] -> [batch]

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        values, clip_range = outputs[self.name], self.parameters.clip_range
        if clip_range is None:
            return self._regression(bare_target(targets, values) - values)
        given = named_targets(targets, "targets", "old_values")
        old, targets = fitted(given["old_values"], values), fitted(given["targets"], values)
        return clipped_regression(values, old, targets, clip_range, self._regression)
