"""Normal noise that stays within the action's bounds: drawn again where it would leave them, and never cut."""

from collections.abc import Callable

import numpy as np

from distrl.networks.actions import FamilySpec
from distrl.types import Array, BoxSpec, FloatArray

_WIDE = 0.5
"""Standard deviation from which uniform proposals are accepted more often than normal ones. Either way at least .47 of
them are, wherever the mean is."""


def truncated_normal(mean: Array, stddev: float, rng: np.random.Generator) -> Array:
    """Draw from N(mean, stddev^2) truncated to [0, 1], by rejection (Robert 1995, section 2).

    Args:
        mean: float64 [...], from 0 to 1, or NaN, which stays.
        stddev: At least 0; 0 returns the mean.

    Returns:
        float64 [...].
    """
    drawn = np.array(mean, np.float64)
    flat = drawn.reshape(-1)
    left = np.flatnonzero(~np.isnan(flat))  # no proposal around NaN would ever be accepted
    while left.size:
        centre = flat[left]
        if stddev < _WIDE:
            proposed = centre + stddev * rng.standard_normal(left.size)
            accepted = (proposed >= 0.0) & (proposed <= 1.0)
        else:
            proposed = rng.random(left.size)
            accepted = rng.random(left.size) <= np.exp(-0.5 * ((proposed - centre) / stddev) ** 2)
        flat[left[accepted]] = proposed[accepted]
        left = left[~accepted]
    return drawn


class TruncatedNoise:
    """The policy's best action with truncated normal noise. Log-probabilities are 0, as of all noise on actions.

    Args:
        stddev: Returns the present standard deviation, in units of the distance between the action's bounds.
        action: Has finite bounds.
    """

    def __init__(self, stddev: Callable[[], float], spec: FamilySpec, action: BoxSpec) -> None:
        self._stddev = stddev
        self._sampler = spec.sampler()
        low, high = np.array(action.low, np.float64), np.array(action.high, np.float64)
        self._low, self._range = low, high - low
        # Where the policy keeps inside the bounds, so does the noise, as rounded.
        margin = spec.edge * self._range
        self._lowest, self._highest = (low + margin).astype(np.float32), (high - margin).astype(np.float32)

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        best = self._sampler.mode(parameters) - self._low
        mean = np.divide(best, self._range, out=np.zeros(best.shape), where=self._range > 0.0)
        drawn = truncated_normal(np.clip(mean, 0.0, 1.0), self._stddev(), rng)
        actions = (self._low + self._range * drawn).astype(np.float32)
        return np.clip(actions, self._lowest, self._highest), np.zeros(len(parameters), np.float32)
