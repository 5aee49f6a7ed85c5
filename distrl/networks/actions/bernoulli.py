"""The Bernoulli family: independent switches with p(1) = sigmoid(logit)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from distrl.networks.actions.family import (
    ActionFamily,
    ActionSampler,
    Distribution,
    Seed,
    Tensor,
    check_ranks,
    ops,
    random,
)
from distrl.types import ActionSpec, Array, FloatArray, MultiBinarySpec


@dataclass(frozen=True)
class BernoulliSpec(ActionFamily):
    """`n` independent switches."""

    n: int
    kind: Literal["bernoulli"] = "bernoulli"

    @property
    def parameters_size(self) -> int:
        return self.n

    def fits(self, action: ActionSpec) -> bool:
        return isinstance(action, MultiBinarySpec) and self.n == action.n

    def sampler(self) -> ActionSampler:
        return BernoulliSampler()

    def distribution(self) -> "Bernoulli":
        return Bernoulli()


class BernoulliSampler:
    """Switches, each thrown by its own uniform number."""

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        on = rng.random(parameters.shape, np.float32) < np.exp(-np.logaddexp(0.0, -parameters))
        return on.astype(np.int32), self.log_probability(parameters, on)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        off = np.where(actions, -parameters, parameters)
        log_probabilities: FloatArray = -np.add.reduce(np.logaddexp(0.0, off), axis=1)
        return log_probabilities

    def mode(self, parameters: FloatArray) -> Array:
        return (parameters >= 0.0).astype(np.int32)


class Bernoulli(Distribution):
    """Switches with p(1) = sigmoid(logit); actions are int32 [..., n]."""

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        check_ranks(parameters, actions, 1)
        sign = 2.0 * ops.cast(actions, "float32") - 1.0
        return ops.sum(ops.log_sigmoid(sign * parameters), axis=-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        size = ops.abs(parameters)  # the entropy is even in the logit, and here nothing large cancels
        return ops.sum(size * ops.sigmoid(-size) - ops.log_sigmoid(size), axis=-1)

    def kl(self, parameters_p: Tensor, parameters_q: Tensor) -> Tensor:
        on = ops.sigmoid(parameters_p) * (ops.log_sigmoid(parameters_p) - ops.log_sigmoid(parameters_q))
        off = ops.sigmoid(-parameters_p) * (ops.log_sigmoid(-parameters_p) - ops.log_sigmoid(-parameters_q))
        return ops.sum(on + off, axis=-1)

    def mode(self, parameters: Tensor) -> Tensor:
        """1 where p(1) >= .5."""
        return ops.cast(parameters >= 0.0, "int32")

    def sample(self, parameters: Tensor, seed: Seed) -> Tensor:
        noise = random.uniform(ops.shape(parameters), dtype="float32", seed=seed)
        return ops.cast(noise < ops.sigmoid(parameters), "int32")
