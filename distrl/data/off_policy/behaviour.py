"""The policy that acted, fitted to its actions: their log-probabilities, where these are not recorded."""

import numpy as np

from distrl.data.off_policy.estimators import Counts, Numbers
from distrl.data.off_policy.features import gram, products
from distrl.types import Array, FloatArray

_ROUNDS = 100


def counted(observations: Counts, actions: Counts) -> Numbers:
    """Return log b(a | o), float64 [N]: how often each action was taken at an observation of that number."""
    count = int(actions.max()) + 1
    pairs = np.bincount(observations * count + actions)
    found: Numbers = np.log(pairs[observations * count + actions] / np.bincount(observations)[observations])
    return found


def chosen(features: FloatArray, actions: Counts, count: int) -> Numbers:
    """Return log b(a | o), float64 [N], by multinomial logistic regression.

    Each round maximises a lower bound of the likelihood (Böhning 1992, theorem 2), so that none makes it worse.

    Args:
        features: float32 [N, F].
        actions: int64 [N]. Of `count`, from 0.
    """
    inverse = np.linalg.inv(gram(features))
    taken = np.zeros((len(actions), count))
    taken[np.arange(len(actions)), actions] = 1.0
    weights = np.zeros((features.shape[1], count))
    for _ in range(_ROUNDS):
        residuals = taken - np.exp(_log_softmax(features, weights))
        weights += 2.0 * inverse @ (features.T @ residuals.astype(np.float32))
    found: Numbers = _log_softmax(features, weights)[np.arange(len(actions)), actions]
    return found


def normal(features: FloatArray, actions: Array) -> Numbers:
    """Return log b(a | o), float64 [N], by least squares, with the deviation of each number of the actions [N, k]."""
    errors = actions - features @ np.linalg.solve(gram(features), products(features, actions))
    deviation = np.maximum(errors.std(axis=0), 1e-6)
    noise = errors / deviation
    found: Numbers = (-0.5 * noise**2 - np.log(deviation) - 0.5 * np.log(2.0 * np.pi)).sum(axis=1)
    return found


def _log_softmax(features: FloatArray, weights: Numbers) -> Numbers:
    logits = (features @ weights.astype(np.float32)).astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    found: Numbers = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found
