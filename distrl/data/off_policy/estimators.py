"""Estimates of a policy's return from recorded episodes, their bootstrapped intervals, and effective sample size.

Notation: the policy π is evaluated, b has acted, ρ = π(a | o) / b(a | o), γ is the discount, V̂ and Q̂ are values of a
model. Of an episode of one step each estimator is its form for bandits, as of Intel RL Coach.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Counts = NDArray[np.int64]
RESAMPLES = 1_000
"""Draws of the bootstrap."""
_TOGETHER = 100
"""Draws that are in memory together."""


class Logged(NamedTuple):
    """E recorded episodes of at most T steps. After an episode's end, rewards and log-ratios are 0.

    Attributes:
        rewards: float64 [E, T].
        log_ratios: float64 [E, T]. log ρ of every step; -inf where the policy never takes the action.
        lengths: int64 [E].
        discount: γ.
    """

    rewards: Numbers
    log_ratios: Numbers
    lengths: Counts
    discount: float

    @property
    def discounts(self) -> Numbers:
        """float64 [T + 1]. γ^t."""
        powers: Numbers = self.discount ** np.arange(self.rewards.shape[1] + 1)
        return powers

    @property
    def returns(self) -> Numbers:
        """float64 [E]. Σ_t γ^t r_t."""
        totals: Numbers = self.rewards @ self.discounts[:-1]
        return totals

    @property
    def log_weights(self) -> Numbers:
        """float64 [E]. Σ_t log ρ_t, of whole episodes."""
        totals: Numbers = self.log_ratios.sum(axis=1)
        return totals


class Values(NamedTuple):
    """A model's values of the recorded steps. After an episode's end they are 0.

    Attributes:
        states: float64 [E, T + 1]. V̂ = Σ_a π(a) Q̂(a); after the last step 0 if it terminated the episode, otherwise
            the value there.
        actions: float64 [E, T]. Q̂ of the recorded actions.
        influences: float64 [E], of sum 0. How each episode has moved the mean of V̂ at first steps, times E, to first
            order: 0 if the model was made from other data.
    """

    states: Numbers
    actions: Numbers
    influences: Numbers


class Terms(NamedTuple):
    """An estimate is ``totals.sum() / weights.sum()``, float64 [E] each."""

    totals: Numbers
    weights: Numbers


def ips(logged: Logged) -> Terms:
    """Per-decision importance sampling: mean of Σ_t γ^t ρ_0 … ρ_t r_t (Precup et al. 2000, eq. 3)."""
    weights = np.exp(np.cumsum(logged.log_ratios, axis=1))
    return _mean((weights * logged.rewards) @ logged.discounts[:-1])


def wis(logged: Logged) -> Terms:
    """Weighted importance sampling: Σ w G / Σ w, w = ρ_0 … ρ_T, G the return (Precup et al. 2000, section 3)."""
    greatest = logged.log_weights.max()
    weights = np.exp(logged.log_weights - (greatest if np.isfinite(greatest) else 0.0))
    return Terms(weights * logged.returns, weights)


def direct(values: Values) -> Terms:
    """Direct method: mean of V̂ at first steps (Dudík et al. 2011, section 2.1)."""
    return _mean(values.states[:, 0] + values.influences)


def dr(logged: Logged, values: Values) -> Terms:
    """Doubly robust, an episode taken as one decision: V̂_0 + ρ_0 … ρ_T (G − Q̂_0) (Dudík et al. 2011, eq. 1).

    Of an episode that was cut off, G goes on with γ^T V̂ of its last observation.
    """
    ends = values.states[np.arange(len(logged.lengths)), logged.lengths]
    returns = logged.returns + logged.discounts[logged.lengths] * ends
    return _mean(values.states[:, 0] + np.exp(logged.log_weights) * (returns - values.actions[:, 0]))


def sdr(logged: Logged, values: Values) -> Terms:
    """Sequential doubly robust: V = V̂ + ρ (r + γ V' − Q̂), backwards (Jiang and Li 2016, eq. 10)."""
    ratios, after = np.exp(logged.log_ratios), values.states[:, -1]
    for step in reversed(range(logged.rewards.shape[1])):
        errors = logged.rewards[:, step] + logged.discount * after - values.actions[:, step]
        after = values.states[:, step] + ratios[:, step] * errors
    return _mean(after)


def _mean(totals: Numbers) -> Terms:
    return Terms(totals, np.ones_like(totals))


def value(terms: Terms) -> float:
    """Return the estimate."""
    return float(terms.totals.sum() / terms.weights.sum())


def interval(terms: Terms, rng: np.random.Generator, share: float = 0.95) -> tuple[float, float]:
    """Return the bounds of the percentile bootstrap over episodes (Efron and Tibshirani 1993, section 13.3).

    Args:
        share: Of the resampled estimates, those between the bounds.
    """
    count, estimates = len(terms.totals), list[Numbers]()
    for _ in range(RESAMPLES // _TOGETHER):
        drawn = rng.integers(count, size=(_TOGETHER, count))
        with np.errstate(invalid="ignore"):  # episodes without weight alone: 0 / 0
            estimates.append(terms.totals[drawn].sum(axis=1) / terms.weights[drawn].sum(axis=1))
    low, high = np.nanquantile(np.concatenate(estimates), ((1.0 - share) / 2, (1.0 + share) / 2))
    return float(low), float(high)


def effective_episodes(logged: Logged) -> float:
    """Return the effective sample size (Σ w)² / Σ w² of the episodes' weights (Kong 1992); 0 if all weights are 0."""
    weights = wis(logged).weights
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares else 0.0
