"""The categorical families: one choice among n, or several choices at once, by logits.

Logits must be finite: a choice that is not allowed is lowered by `MASKED`, not by infinity. Its probability is then
exactly 0, it adds exactly 0 to entropy and to KL(p || q) where p does not allow it, and no term is NaN.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

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
    slices,
    total,
)
from distrl.types import ActionSpec, Array, DiscreteSpec, FloatArray, IntArray, MultiDiscreteSpec


@dataclass(frozen=True)
class CategoricalSpec(ActionFamily):
    """One choice among n."""

    n: int
    kind: Literal["categorical"] = "categorical"
    is_one_choice: ClassVar[bool] = True
    is_tempered: ClassVar[bool] = True

    @property
    def parameters_size(self) -> int:
        return self.n

    def fits(self, action: ActionSpec) -> bool:
        return isinstance(action, DiscreteSpec) and self.n == action.n

    def sampler(self) -> ActionSampler:
        return CategoricalSampler()

    def distribution(self) -> "Categorical":
        return Categorical()


@dataclass(frozen=True)
class MultiCategoricalSpec(ActionFamily):
    """Independent choices at once, the k-th among ``choices[k]``."""

    choices: tuple[int, ...]
    kind: Literal["multi_categorical"] = "multi_categorical"
    is_tempered: ClassVar[bool] = True

    @property
    def parameters_size(self) -> int:
        return sum(self.choices)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where the logits of each choice lie among the parameters."""
        return slices(self.choices)

    def fits(self, action: ActionSpec) -> bool:
        return isinstance(action, MultiDiscreteSpec) and self.choices == action.choices

    def sampler(self) -> ActionSampler:
        return MultiCategoricalSampler(self)

    def distribution(self) -> "MultiCategorical":
        return MultiCategorical(self)


def sample_categorical(logits: FloatArray, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Draw one action per row from softmax(logits), by inversion of the cumulative distribution.

    Logits of any finite magnitude work, and an action whose probability underflows to 0 is never drawn.

    Args:
        logits: float32 [B, A], finite.
        rng: Advanced by B numbers.

    Returns:
        actions: int32 [B], in 0 … A - 1.
        log_probabilities: float32 [B], of these actions.
    """
    # Actions first: reductions over a short last axis cost several times as much.
    shifted = np.ascontiguousarray(logits.T)  # [B, A] -> [A, B]
    shifted = shifted - np.maximum.reduce(shifted, axis=0)
    actions, sums = draw_by_weight(np.exp(shifted), rng)
    log_probabilities: FloatArray = shifted[actions, np.arange(sums.shape[0])] - np.log(sums)
    return actions, log_probabilities


def draw_by_weight(weights: FloatArray, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Draw one of A for each of B with probabilities in proportion to its weights.

    Args:
        weights: float32 [A, B], not negative, in every column one above 0.
        rng: Advanced by B numbers.

    Returns:
        drawn: int32 [B], in 0 … A - 1, never one of weight 0.
        sums: float32 [B], of the weights.
    """
    cumulative = np.add.accumulate(weights, axis=0)
    sums = cumulative[-1]
    # In (0, sum], compared strictly: at neither end can rounding pick an action of probability 0.
    threshold = (1.0 - rng.random(sums.shape[0], np.float32)) * sums
    drawn: IntArray = np.add.reduce(cumulative[:-1] < threshold, axis=0, dtype=np.int32)
    return drawn, sums


def greedy(logits: FloatArray) -> IntArray:
    """The most probable action of each row, the first of equals: float32 [B, A] -> int32 [B]."""
    return np.asarray(np.argmax(logits, axis=1), np.int32)


class CategoricalSampler:
    """`Categorical` in NumPy."""

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        return sample_categorical(parameters, rng)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        shifted = parameters - parameters.max(axis=1, keepdims=True)
        log_probabilities: FloatArray = shifted[np.arange(len(actions)), actions] - np.log(np.exp(shifted).sum(axis=1))
        return log_probabilities

    def mode(self, parameters: FloatArray) -> Array:
        return greedy(parameters)


class MultiCategoricalSampler:
    """`MultiCategorical` in NumPy: one draw after the other."""

    def __init__(self, spec: MultiCategoricalSpec) -> None:
        self._slices = spec.slices
        self._one = CategoricalSampler()

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        drawn = [sample_categorical(parameters[:, part], rng) for part in self._slices]
        log_probabilities: FloatArray = np.add.reduce([log_p for _, log_p in drawn])
        return np.stack([actions for actions, _ in drawn], axis=1), log_probabilities

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        parts = [self._one.log_probability(parameters[:, part], actions[:, k]) for k, part in enumerate(self._slices)]
        log_probabilities: FloatArray = np.add.reduce(parts)
        return log_probabilities

    def mode(self, parameters: FloatArray) -> Array:
        return np.stack([greedy(parameters[:, part]) for part in self._slices], axis=1)


class Categorical(Distribution):
    """Softmax of logits [..., n]; actions are int32 [...]. Logits of any finite magnitude, lowered by 1e9 too, work."""

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        check_ranks(parameters, actions, 0)
        # A one-hot product differentiates to dense arithmetic; a gather's gradient is a scatter, which is slower.
        chosen = ops.one_hot(actions, parameters.shape[-1], dtype="float32")
        return ops.sum(chosen * ops.log_softmax(parameters, axis=-1), axis=-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        log_p = ops.log_softmax(parameters, axis=-1)
        return -ops.sum(ops.exp(log_p) * log_p, axis=-1)

    def kl(self, parameters_p: Tensor, parameters_q: Tensor) -> Tensor:
        log_p = ops.log_softmax(parameters_p, axis=-1)
        log_q = ops.log_softmax(parameters_q, axis=-1)
        return ops.sum(ops.exp(log_p) * (log_p - log_q), axis=-1)

    def mode(self, parameters: Tensor) -> Tensor:
        """The most probable action, the first of equals."""
        return ops.cast(ops.argmax(parameters, axis=-1), "int32")

    def sample(self, parameters: Tensor, seed: Seed) -> Tensor:
        """By the Gumbel-max trick: argmax(logits - log E), E exponential."""
        return self.mode(parameters + _gumbel(parameters, seed))

    def state_value(self, parameters: Tensor) -> Tensor:
        """log(sum(exp(logits))): the soft value of a state whose action values are the logits."""
        return ops.logsumexp(parameters, axis=-1)


class MultiCategorical(Distribution):
    """Several softmaxes side by side; actions are int32 [..., k]."""

    def __init__(self, spec: MultiCategoricalSpec) -> None:
        self._slices = spec.slices
        self._one = Categorical()

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        check_ranks(parameters, actions, 1)
        logits = self._split(parameters)
        return total(self._one.log_probability(part, actions[..., k]) for k, part in enumerate(logits))

    def entropy(self, parameters: Tensor) -> Tensor:
        return total(self._one.entropy(part) for part in self._split(parameters))

    def kl(self, parameters_p: Tensor, parameters_q: Tensor) -> Tensor:
        parts = zip(self._split(parameters_p), self._split(parameters_q), strict=True)
        return total(self._one.kl(p, q) for p, q in parts)

    def mode(self, parameters: Tensor) -> Tensor:
        """The most probable action of each choice, the first of equals."""
        return ops.stack([self._one.mode(part) for part in self._split(parameters)], axis=-1)

    def sample(self, parameters: Tensor, seed: Seed) -> Tensor:
        return self.mode(parameters + _gumbel(parameters, seed))

    def _split(self, parameters: Tensor) -> list[Tensor]:
        return [parameters[..., part] for part in self._slices]


def _gumbel(parameters: Tensor, seed: Seed) -> Tensor:
    """Standard Gumbel noise, -log(-log U), of the parameters' shape. Finite: within [-4.5, 17] in float32."""
    uniform = random.uniform(ops.shape(parameters), minval=1e-38, dtype="float32", seed=seed)
    # U may be rounded to 1; infinite noise would pick an action of probability 0.
    return -ops.log(ops.maximum(-ops.log(uniform), 2.0**-24))
