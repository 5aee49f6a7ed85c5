"""Uniformly random actions of every kind, over what is allowed, and their log-probabilities."""

import numpy as np

from distrl.networks.actions import FamilySpec
from distrl.networks.actions.family import MASKED, Sampler
from distrl.types import ActionSpec, Array, BoxSpec, FloatArray


def uniform_of(action: ActionSpec, distribution: FamilySpec) -> Sampler:
    """Uniformly random actions; real numbers must have finite bounds.

    Where the policy stays inside the bounds, so do these: it could not have taken others.
    """
    if isinstance(action, BoxSpec):
        return UniformNumbers(action, distribution.edge)
    return UniformChoices(distribution)


class UniformChoices:
    """Choices and switches: the distribution itself with equal logits, where the policy's are not masked."""

    def __init__(self, distribution: FamilySpec) -> None:
        self._lowest = -0.5 * MASKED if distribution.may_be_masked else -np.inf
        self._sampler = distribution.as_logits().sampler()

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        return self._sampler.sample(self._level(parameters), rng)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        return self._sampler.log_probability(self._level(parameters), actions)

    def mode(self, parameters: FloatArray) -> Array:
        return self._sampler.mode(parameters)

    def _level(self, logits: FloatArray) -> FloatArray:
        """Equal logits for what is allowed."""
        return np.where(logits < self._lowest, np.float32(-MASKED), np.float32(0.0))


class UniformNumbers:
    """Real numbers between finite bounds, `inset` of the distance between them inside."""

    def __init__(self, spec: BoxSpec, inset: float) -> None:
        low, high = (np.array(bound, np.float64) for bound in (spec.low, spec.high))
        margin = inset * (high - low)
        self._low, self._high = low + margin, high - margin
        # As actions are rounded, so that none that is drawn lies outside.
        self._lowest, self._highest = self._low.astype(np.float32), self._high.astype(np.float32)
        self._log_density = np.float32(-np.log(self._high - self._low).sum())

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        rows = len(parameters)
        actions = rng.uniform(self._low, self._high, (rows, len(self._low))).astype(np.float32)
        return actions, np.full(rows, self._log_density)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        inside = ((actions >= self._lowest) & (actions <= self._highest)).all(axis=1)
        return np.where(inside, self._log_density, np.float32(-np.inf))

    def mode(self, parameters: FloatArray) -> Array:
        """The middle, for every one."""
        return np.tile(0.5 * (self._lowest + self._highest), (len(parameters), 1))
