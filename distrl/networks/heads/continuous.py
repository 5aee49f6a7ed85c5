"""Heads for continuous actions: NAF, values of state and action, the deterministic policy."""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import keras
import numpy as np
from keras import ops

from distrl.config.heads import (
    DeterministicPolicyHeadParameters,
    HeadSection,
    NAFHeadParameters,
    QuantileQValueHeadParameters,
    QValueHeadParameters,
    TwinQHeadParameters,
)
from distrl.errors import ConfigError
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.deterministic import DeterministicSpec
from distrl.networks.actions.family import Tensor
from distrl.networks.heads.head import (
    POLICY_GAIN,
    VALUE_GAIN,
    Head,
    Targets,
    bare_target,
    fitted,
    named_targets,
    single_action,
)
from distrl.networks.heads.losses import naf_value, quantile_regression
from distrl.types import BoxSpec, FloatArray

Parameters = TypeVar("Parameters", bound=HeadSection)


class BestActionHead(Head[Parameters]):
    """Parent of heads with the best action, within the environment's bounds, as the output `<name><suffix>`."""

    suffix: ClassVar[str] = ""

    def __post_init__(self) -> None:
        self._action = single_action(self.spec, self.name, BoxSpec)
        if (place := self._action.unscaled) is not None:
            raise ConfigError(
                f"head {self.name}: every dimension of the action needs a lower and an upper bound to be scaled by, "
                f"and number {place} has {self._action.bounds_of(place)}"
            )
        self._bounds = np.asarray(self._action.low, np.float32), np.asarray(self._action.high, np.float32)

    def actions(self) -> dict[str, FamilySpec]:
        low, high = (tuple(bound.tolist()) for bound in self._bounds)
        return {action: DeterministicSpec(low, high, f"{self.name}{self.suffix}") for action in self.spec.actions}


class NAFHead(BestActionHead[NAFHeadParameters]):
    """A normalised advantage function (Gu et al. 2016): the best action, its value, and the curvature around it.

    Outputs `<name>/value`: float32 [batch], `<name>/mu`: float32 [batch, n], within the bounds, and `<name>/lower`:
    float32 [batch, n, n], lower triangular with a positive diagonal, so that L L^T is positive definite.

    The loss is half the squared error of `losses.naf_value`, or Huber's.

    Targets: {"actions": float32 [batch, n], "targets": float32 [batch]}.
    """

    suffix = "/mu"

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        features, n = self._hidden(features), self._action.n
        value = self._dense(1, "value", gain=VALUE_GAIN)(features)
        mu = self._dense(n, "mu", gain=POLICY_GAIN)(features)
        # exp keeps the diagonal positive (section 4); the small kernel starts it near 1 in every state
        flat = ops.matmul(ops.exp(self._dense(n, "diagonal", gain=POLICY_GAIN)(features)), _places(np.eye(n)))
        if n > 1:
            below = self._dense(n * (n - 1) // 2, "below", gain=POLICY_GAIN)(features)
            flat = flat + ops.matmul(below, _places(np.tri(n, k=-1)))
        return {
            f"{self.name}/value": ops.squeeze(value, axis=-1),  # [batch, 1] -> [batch]
            f"{self.name}/mu": within_bounds(mu, *self._bounds),
            f"{self.name}/lower": ops.reshape(flat, (-1, n, n)),  # [batch, n*n] -> [batch, n, n]
        }

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        given = named_targets(targets, "actions", "targets")
        value, mu, lower = (outputs[f"{self.name}/{part}"] for part in ("value", "mu", "lower"))
        return self._regression(fitted(given["targets"], value) - naf_value(value, mu, lower, given["actions"]))


class QValueHead(Head[QValueHeadParameters]):
    """Value of a state and an action, which are both in the features (Lillicrap et al. 2016).

    Output `<name>`: float32 [batch].

    The loss is half the squared error, or Huber's.

    Targets: float32 [batch].
    """

    takes_action = True

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        column = self._dense(1, gain=VALUE_GAIN)(self._hidden(features))
        return {self.name: ops.squeeze(column, axis=-1)}  # [batch, 1] -> [batch]

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        return self._regression(bare_target(targets, outputs[self.name]) - outputs[self.name])


class QuantileQValueHead(Head[QuantileQValueHeadParameters]):
    """Quantiles of the returns of a state and an action, which are both in the features (Kuznetsov et al. 2020).

    Output `<name>`: float32 [batch, quantiles].

    The loss is `losses.quantile_regression`.

    Targets: float32 [batch, M], samples or quantiles of the returns.
    """

    takes_action = True

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {self.name: self._dense(self.parameters.quantiles, gain=VALUE_GAIN)(self._hidden(features))}

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        return quantile_regression(outputs[self.name], targets, self.parameters.huber_kappa)


class TwinQHead(Head[TwinQHeadParameters]):
    """Two values of a state and an action, which are both in the features (Fujimoto et al. 2018).

    Outputs `<name>/1`, `<name>/2` and the smaller of both, `<name>/min`: float32 [batch]. Each has its own hidden
    layers and initial weights, so that their errors are independent.

    The loss is the sum of both: half the squared error each, or Huber's.

    Targets: float32 [batch], the same for both.
    """

    takes_action = True

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        columns = [self._dense(1, part, gain=VALUE_GAIN)(self._hidden(features, f"{part}_hidden")) for part in "12"]
        first, second = (ops.squeeze(column, axis=-1) for column in columns)  # [batch, 1] -> [batch]
        return {
            f"{self.name}/1": first,
            f"{self.name}/2": second,
            f"{self.name}/min": ops.minimum(first, second),
        }

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        target = bare_target(targets, outputs[f"{self.name}/1"])
        first, second = (self._regression(target - outputs[f"{self.name}/{part}"]) for part in "12")
        return first + second


class DeterministicPolicyHead(BestActionHead[DeterministicPolicyHeadParameters]):
    """One action per state: tanh scaled to the bounds (Lillicrap et al. 2016).

    Output `<name>`: float32 [batch, n].

    The loss is ``-sum(dQ/da mu(s))``, whose gradient is the deterministic policy gradient (Silver et al. 2014,
    equation 9).

    Targets: float32 [batch, n], dQ/da at a = mu(s).
    """

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        preactivation = self._dense(self._action.n, gain=POLICY_GAIN)(self._hidden(features))
        if self.parameters.batchnorm:
            preactivation = keras.layers.BatchNormalization(name=f"{self.name}_head_batchnorm")(preactivation)
        return {self.name: within_bounds(preactivation, *self._bounds)}

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        return -ops.sum(bare_target(targets, outputs[self.name]) * outputs[self.name], axis=-1)


def within_bounds(preactivation: Any, low: FloatArray, high: FloatArray) -> Any:
    """Scale tanh to the bounds: 0 becomes their middle, infinity the upper one (Lillicrap et al. 2016, section 7).

    Args:
        preactivation: float32 [..., n].
        low: float32 [n].
        high: float32 [n].

    Returns:
        float32 [..., n].
    """
    return ops.tanh(preactivation) * (0.5 * (high - low)) + 0.5 * (high + low)


def _places(mask: Any) -> Any:
    """Return the matrix float32 [m, n*n] that places m numbers, in order, at the non-zero entries of a mask [n, n]."""
    filled = np.flatnonzero(mask)
    return np.eye(np.size(mask), dtype=np.float32)[filled]
