"""Choosing actions from a policy's outputs, in NumPy; `networks/actions/specs.py` says what these mean.

The learner's twin is `networks/actions/distributions.py`; tests tie the two together. Actions are chosen here and not
in the policy's graph: sampling needs the actor's own random generator. The log-probability is always that of the action
as it travels, rounded and clipped, since that is all the learner sees.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np

from distrl.networks.actions.deterministic import DeterministicSampler, DeterministicSpec
from distrl.networks.actions.specs import (
    BETA_RAW_HIGH,
    GAUSSIAN_LOG_STDDEV,
    SQUASHED_LOG_STDDEV,
    UNIT_EDGE,
    BernoulliSpec,
    BetaSpec,
    CategoricalSpec,
    DistributionSpec,
    GaussianSpec,
    MultiCategoricalSpec,
    MultiValuesSpec,
    SquashedGaussianSpec,
    ValuesSpec,
    low_and_width,
    output_of,
)
from distrl.types import Array, FloatArray, IntArray

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class Choice(Protocol):
    """How one action is chosen from its parameters, float32 [B, P]."""

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        """Actions [B, ...], and their log-probabilities, float32 [B]."""

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        """Of any actions [B, ...] in range; float32 [B]."""

    def mode(self, parameters: FloatArray) -> Array:
        """The actions to take when not exploring, [B, ...]."""


class ActionSelector:
    """All actions of an environment, drawn independently of each other.

    Args:
        specs: Action -> its distribution; actions are drawn in this order.
        head: The policy head whose outputs these are.
        choices: Action -> how it is chosen, for those that are not drawn from their distribution.
    """

    def __init__(
        self,
        specs: Mapping[str, DistributionSpec],
        head: str = "policy",
        choices: Mapping[str, Choice] = MappingProxyType({}),
    ) -> None:
        self._choices = [
            (action, output_of(action, spec, head), choices.get(action) or choice_of(spec))
            for action, spec in specs.items()
        ]

    def sample(
        self, outputs: Mapping[str, FloatArray], rng: np.random.Generator
    ) -> tuple[dict[str, Array], FloatArray]:
        """Draws one action of each name for every row.

        Args:
            outputs: The policy's outputs by name; of them `output_of(action, spec, head)`, float32 [B, P], finite.
            rng: Advanced by what the draws take.

        Returns:
            actions: By name, as `ActionSpec.array` says, with a leading [B].
            log_probabilities: float32 [B], of all actions of a row together.
        """
        actions: dict[str, Array] = {}
        log_probabilities: FloatArray | None = None
        for action, output, how in self._choices:
            actions[action], one = how.sample(outputs[output], rng)
            log_probabilities = one if log_probabilities is None else log_probabilities + one
        assert log_probabilities is not None, "an environment has at least one action"
        return actions, log_probabilities

    def mode(self, outputs: Mapping[str, FloatArray]) -> dict[str, Array]:
        """The actions to take when not exploring, from outputs as in `sample`."""
        return {action: how.mode(outputs[output]) for action, output, how in self._choices}


def sample_categorical(logits: FloatArray, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Draws one action per row from softmax(logits), by inversion of the cumulative distribution.

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
    actions, total = draw_by_weight(np.exp(shifted), rng)
    log_probabilities: FloatArray = shifted[actions, np.arange(total.shape[0])] - np.log(total)
    return actions, log_probabilities


def draw_by_weight(weights: FloatArray, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Draws one of A for each of B with probabilities in proportion to its weights.

    Args:
        weights: float32 [A, B], not negative, in every column one above 0.
        rng: Advanced by B numbers.

    Returns:
        drawn: int32 [B], in 0 … A - 1, never one of weight 0.
        total: float32 [B], of the weights.
    """
    cumulative = np.add.accumulate(weights, axis=0)
    total = cumulative[-1]
    # In (0, total], compared strictly: at neither end can rounding pick an action of probability 0.
    threshold = (1.0 - rng.random(total.shape[0], np.float32)) * total
    drawn: IntArray = np.add.reduce(cumulative[:-1] < threshold, axis=0, dtype=np.int32)
    return drawn, total


def greedy(logits: FloatArray) -> IntArray:
    """The most probable action of each row; the first of equals.

    Args:
        logits: float32 [B, A].

    Returns:
        int32 [B].
    """
    return np.asarray(np.argmax(logits, axis=1), np.int32)


class _Categorical:
    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        return sample_categorical(parameters, rng)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        return _categorical_log_probability(parameters, actions)

    def mode(self, parameters: FloatArray) -> Array:
        return greedy(parameters)


class _Values:
    """The best choice, the first of equals."""

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        return greedy(parameters), np.zeros(len(parameters), np.float32)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        return np.where(actions == greedy(parameters), np.float32(0.0), np.float32(-np.inf))

    def mode(self, parameters: FloatArray) -> Array:
        return greedy(parameters)


class _MultiValues:
    """The best of every choice, the first of equals."""

    def __init__(self, spec: MultiValuesSpec) -> None:
        self._slices = spec.slices

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        return self.mode(parameters), np.zeros(len(parameters), np.float32)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        best = (actions == self.mode(parameters)).all(axis=1)
        return np.where(best, np.float32(0.0), np.float32(-np.inf))

    def mode(self, parameters: FloatArray) -> Array:
        return np.stack([greedy(parameters[:, part]) for part in self._slices], axis=1)


class _MultiCategorical:
    def __init__(self, spec: MultiCategoricalSpec) -> None:
        self._slices = spec.slices

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        drawn = [sample_categorical(parameters[:, part], rng) for part in self._slices]
        log_probabilities: FloatArray = np.add.reduce([log_p for _, log_p in drawn])
        return np.stack([actions for actions, _ in drawn], axis=1), log_probabilities

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        parts = [
            _categorical_log_probability(parameters[:, part], actions[:, k]) for k, part in enumerate(self._slices)
        ]
        log_probabilities: FloatArray = np.add.reduce(parts)
        return log_probabilities

    def mode(self, parameters: FloatArray) -> Array:
        return np.stack([greedy(parameters[:, part]) for part in self._slices], axis=1)


class _Bernoulli:
    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        on = rng.random(parameters.shape, np.float32) < np.exp(-np.logaddexp(0.0, -parameters))
        return on.astype(np.int32), self.log_probability(parameters, on)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        off = np.where(actions, -parameters, parameters)
        log_probabilities: FloatArray = -np.add.reduce(np.logaddexp(0.0, off), axis=1)
        return log_probabilities

    def mode(self, parameters: FloatArray) -> Array:
        return (parameters >= 0.0).astype(np.int32)


class _Gaussian:
    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        mean, log_stddev = _mean_and_log_stddev(parameters, GAUSSIAN_LOG_STDDEV)
        actions = mean + np.exp(log_stddev) * rng.standard_normal(mean.shape, np.float32)
        return actions, np.add.reduce(_normal_log_density(actions, mean, log_stddev), axis=1)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        density = _normal_log_density(actions, *_mean_and_log_stddev(parameters, GAUSSIAN_LOG_STDDEV))
        log_probabilities: FloatArray = np.add.reduce(density, axis=1)
        return log_probabilities

    def mode(self, parameters: FloatArray) -> Array:
        return parameters[:, : parameters.shape[1] // 2].copy()  # not a view of the policy's output


class _SquashedGaussian:
    def __init__(self, spec: SquashedGaussianSpec) -> None:
        self._low, self._width = low_and_width(spec)
        self._log_double_width = np.log(2.0 * self._width)

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        mean, log_stddev = _mean_and_log_stddev(parameters, SQUASHED_LOG_STDDEV)
        actions = self._squash(mean + np.exp(log_stddev) * rng.standard_normal(mean.shape, np.float32))
        return actions, self._log_density(actions, mean, log_stddev)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        return self._log_density(actions, *_mean_and_log_stddev(parameters, SQUASHED_LOG_STDDEV))

    def mode(self, parameters: FloatArray) -> Array:
        return self._squash(_mean_and_log_stddev(parameters, SQUASHED_LOG_STDDEV)[0])

    def _squash(self, u: Array) -> Array:
        return _scaled(0.5 * (np.tanh(u) + 1.0), self._low, self._width)

    def _log_density(self, actions: Array, mean: Array, log_stddev: Array) -> FloatArray:
        fraction = _fraction(actions, self._low, self._width)
        log_on, log_off = np.log(fraction), np.log(1.0 - fraction)
        u = 0.5 * (log_on - log_off)
        density = _normal_log_density(u, mean, log_stddev) - log_on - log_off - self._log_double_width
        log_probabilities: FloatArray = np.add.reduce(density, axis=1)
        return log_probabilities


class _Beta:
    def __init__(self, spec: BetaSpec) -> None:
        self._low, self._width = low_and_width(spec)
        self._log_width = np.log(self._width)

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        alpha, beta = self._split(parameters)
        actions = _scaled(rng.beta(alpha, beta).astype(np.float32), self._low, self._width)
        return actions, self._log_density(actions, alpha, beta)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        return self._log_density(actions, *self._split(parameters))

    def mode(self, parameters: FloatArray) -> Array:
        alpha, beta = self._split(parameters)
        return _scaled((alpha / (alpha + beta)).astype(np.float32), self._low, self._width)

    def _log_density(self, actions: Array, alpha: Array, beta: Array) -> FloatArray:
        fraction = _fraction(actions, self._low, self._width)
        density = (alpha - 1.0) * np.log(fraction) + (beta - 1.0) * np.log(1.0 - fraction) - _log_beta(alpha, beta)
        log_probabilities: FloatArray = np.add.reduce(density - self._log_width, axis=1).astype(np.float32)
        return log_probabilities

    def _split(self, parameters: FloatArray) -> tuple[Array, Array]:
        """float32 [B, 2 n] -> α and β, float64 [B, n]: what they take in time is little, and nothing cancels."""
        both: Array = 1.0 + np.logaddexp(0.0, np.minimum(parameters, BETA_RAW_HIGH), dtype=np.float64)
        return both[:, : both.shape[1] // 2], both[:, both.shape[1] // 2 :]


def choice_of(spec: DistributionSpec) -> Choice:
    """How actions are drawn from this distribution."""
    match spec:
        case CategoricalSpec():
            return _Categorical()
        case MultiCategoricalSpec():
            return _MultiCategorical(spec)
        case BernoulliSpec():
            return _Bernoulli()
        case GaussianSpec():
            return _Gaussian()
        case SquashedGaussianSpec():
            return _SquashedGaussian(spec)
        case BetaSpec():
            return _Beta(spec)
        case ValuesSpec():
            return _Values()
        case MultiValuesSpec():
            return _MultiValues(spec)
        case DeterministicSpec():
            return DeterministicSampler(spec)


def _categorical_log_probability(logits: FloatArray, actions: Array) -> FloatArray:
    """[B, n] and int32 [B] -> float32 [B]."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probabilities: FloatArray = shifted[np.arange(len(actions)), actions] - np.log(np.exp(shifted).sum(axis=1))
    return log_probabilities


def _mean_and_log_stddev(parameters: FloatArray, limits: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
    """[B, 2 n] -> mean [B, n] and log σ [B, n], clipped."""
    n = parameters.shape[1] // 2
    return parameters[:, :n], np.minimum(np.maximum(parameters[:, n:], limits[0]), limits[1])


def _normal_log_density(values: Array, mean: Array, log_stddev: Array) -> Array:
    noise = (values - mean) * np.exp(-log_stddev)
    density: Array = -0.5 * noise * noise - log_stddev - HALF_LOG_2PI
    return density


def _scaled(fraction: Array, low: FloatArray, width: FloatArray) -> Array:
    """Fractions of the width between the bounds -> actions, `UNIT_EDGE` inside the bounds."""
    return np.minimum(np.maximum(fraction, UNIT_EDGE), 1.0 - UNIT_EDGE) * width + low


def _fraction(actions: Array, low: FloatArray, width: FloatArray) -> Array:
    """The inverse of `_scaled`. Clips too: where bounds are far from 0, rounding may have put the action on them."""
    fraction: Array = (actions - low) / width
    return np.minimum(np.maximum(fraction, UNIT_EDGE), 1.0 - UNIT_EDGE)


def _log_beta(alpha: Array, beta: Array) -> Array:
    """log B(α, β), float64, for α, β >= 1: three steps upwards, and Stirling's series there, to 4e-8."""
    return _log_gamma(alpha) + _log_gamma(beta) - _log_gamma(alpha + beta)


def _log_gamma(x: Array) -> Array:
    far = x + 3.0
    series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * far * far)) / (far * far)) / far
    stirling: Array = (far - 0.5) * np.log(far) - far + HALF_LOG_2PI + series - np.log(x * (x + 1.0) * (x + 2.0))
    return stirling
