"""Fitted Q evaluation (Le et al. 2019, algorithm 3): values of a policy, fitted to recorded steps until they are fixed.

    Q(s, a) ← fit of r + γ Σ_a' π(a' | s') Q(s', a')

A table fits exactly; a linear model by least squares. Both are fixed points of a linear map, so that the derivative of
an estimate by the weight of each episode is known too (Hao et al. 2021): intervals need no further fits.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from distrl.data.episodes import DataError
from distrl.data.off_policy.estimators import Counts, Numbers, Values
from distrl.data.off_policy.features import gram, products
from distrl.types import BoolArray, FloatArray

RIDGES = (1e-4, 1e-3, 1e-2)
"""Ridges of linear models, relative to the number of steps; the first with which there is a fixed point is taken."""
_MOST_ROUNDS = 20_000
_PRECISION = 1e-10
_LARGEST = 1e100
_NO_FIXED_POINT = (
    "fitted Q evaluation has no fixed point at discount {discount:g}: the data shows too little of what the "
    "policy does; set a lower discount, or choose ips, wis"
)


class Steps(NamedTuple):
    """The N steps of E episodes, one after the other; each episode has one observation more than steps, M in all.

    Attributes:
        rewards: float64 [N].
        discounts: float64 [N]. γ; 0 at a step that terminated its episode.
        episodes: int64 [N]. The episode of each step, from 0.
        lengths: int64 [E].
    """

    rewards: Numbers
    discounts: Numbers
    episodes: Counts
    lengths: Counts

    @property
    def before(self) -> Counts:
        """int64 [N]. Place of the observation before each step, among all M."""
        return np.arange(len(self.episodes)) + self.episodes

    @property
    def first(self) -> Counts:
        """int64 [E]. Places of the first observations."""
        return np.cumsum(self.lengths + 1) - self.lengths - 1

    @property
    def of_observations(self) -> Counts:
        """int64 [M]. The episode of each observation."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths + 1)

    def padded(self, numbers: Numbers, more: int = 0) -> Numbers:
        """Return numbers of steps [N], or with `more` = 1 of observations [M], by episodes, [E, T + more]; 0 behind."""
        rows = np.zeros((len(self.lengths), int(self.lengths.max()) + more))
        rows[np.arange(rows.shape[1]) < (self.lengths + more)[:, None]] = numbers
        return rows


class Fit(NamedTuple):
    """A fitted model.

    Attributes:
        actions: float64 [N]. Q̂ of the recorded steps.
        states: float64 [M]. V̂ of the observations.
        derivative: Takes weights, float64 [M], and returns float64 [N]: the weighted sum of V̂ changes by the sum over
            steps of these times their errors r + γ V̂' − Q̂, if steps are added.
    """

    actions: Numbers
    states: Numbers
    derivative: Callable[[Numbers], Numbers]


class Model(Protocol):
    """Fits Q̂ to recorded steps."""

    def fit(self, steps: Steps, of: BoolArray) -> Fit:
        """Fit it to the steps `of`, bool [N].

        Raises:
            DataError: There is no fixed point.
        """


class Table:
    """Q̂ as a table. An action that no step took is worth what the policy's other actions are there.

    Args:
        observations: int64 [M]. Number of each observation, from 0.
        actions: int64 [N]. Number of each action.
        probabilities: float64 [M, A]. Of all actions under the policy.
    """

    def __init__(self, observations: Counts, actions: Counts, probabilities: Numbers) -> None:
        self._observations, self._actions = observations, actions
        count = int(observations.max()) + 1
        sums = [_sums(observations, column, count) for column in probabilities.T]
        often = np.maximum(np.bincount(observations, minlength=count), 1)
        self._probabilities: Numbers = np.stack(sums, axis=1) / often[:, None]

    def fit(self, steps: Steps, of: BoolArray) -> Fit:
        (count, choices), begins = self._probabilities.shape, self._observations[steps.before]
        follows = self._observations[steps.before + 1]
        pairs = begins * choices + self._actions
        taken = np.bincount(pairs[of], minlength=count * choices)
        shares = self._probabilities * (taken > 0).reshape(count, choices)
        totals = shares.sum(axis=1, keepdims=True)
        shares = np.divide(shares, totals, out=np.zeros_like(shares), where=totals > 0)
        often = np.maximum(taken, 1)
        # Equal transitions are one: many data sets have few.
        kinds, which = np.unique(pairs[of] * count + follows[of], return_inverse=True)
        source, target = kinds // count, kinds % count
        weights = _sums(which, steps.discounts[of], len(kinds)) / often[source]

        def expected(values: Numbers) -> Numbers:
            found: Numbers = np.einsum("sa,sa->s", shares, values.reshape(count, choices))
            return found

        def backed_up(values: Numbers) -> Numbers:
            return _sums(source, weights * expected(values)[target], count * choices)

        def spread(places: Numbers) -> Numbers:
            found: Numbers = (shares * places[:, None]).ravel()
            return found

        def adjoint(amounts: Numbers) -> Numbers:
            return spread(_sums(target, weights * amounts[source], count))

        def derivative(places: Numbers) -> Numbers:
            amounts = _fixed_point(spread(_sums(self._observations, places, count)), adjoint, steps)
            return np.where(of, (amounts / often)[pairs], 0.0)

        values = _fixed_point(_sums(pairs[of], steps.rewards[of], count * choices) / often, backed_up, steps)
        states = expected(values)
        values = np.where(taken > 0, values, np.repeat(states, choices))
        return Fit(values[pairs], states[self._observations], derivative)


def _sums(places: Counts, numbers: Numbers, count: int) -> Numbers:
    """Return the sum of the numbers at each of `count` places, float64 [count]."""
    return np.bincount(places, numbers, count).astype(np.float64, copy=False)


def _fixed_point(first: Numbers, step: Callable[[Numbers], Numbers], steps: Steps) -> Numbers:
    """Return x = first + step(x) of a linear step, as the sum of its powers.

    Raises:
        DataError: The sum does not converge.
    """
    total, term = first, first
    for _ in range(_MOST_ROUNDS):
        term = step(term)
        total = total + term
        if not (bound := np.abs(total).max()) < _LARGEST:
            break
        if np.abs(term).max() <= _PRECISION * bound:
            return total
    raise DataError(_NO_FIXED_POINT.format(discount=steps.discounts.max()))


class Linear:
    """Q̂ as a linear function of features.

    Args:
        taken: float32 [N, F]. Features of the recorded observations with their actions.
        expected: float32 [M, F]. Features of the observations, in the mean over the policy's actions.
    """

    def __init__(self, taken: FloatArray, expected: FloatArray) -> None:
        self._taken, self._expected = taken, expected

    def fit(self, steps: Steps, of: BoolArray) -> Fit:
        inputs, outputs = (
            self._taken[of],
            self._expected[steps.before[of] + 1] * steps.discounts[of, None].astype(np.float32),
        )
        coupled = products(inputs, outputs)
        for ridge in RIDGES:
            own = gram(inputs, ridge)
            after = np.linalg.solve(own, coupled)
            if np.abs(np.linalg.eigvals(after)).max() < 1.0:
                break
        else:
            raise DataError(_NO_FIXED_POINT.format(discount=steps.discounts.max()))
        change = np.eye(len(after)) - after
        weights = np.linalg.solve(change, np.linalg.solve(own, products(inputs, steps.rewards[of])))

        def derivative(places: Numbers) -> Numbers:
            amounts = np.linalg.solve(own, np.linalg.solve(change.T, self._expected.T @ places))
            return np.where(of, self._taken @ amounts, 0.0)

        return Fit(self._taken @ weights, self._expected @ weights, derivative)


def values(model: Model, steps: Steps, folds: Counts) -> Values:
    """Return the values of recorded steps; those of each fold of episodes under the model that the others have fitted.

    Estimates that correct the model by the same episodes need that: a model knows the noise of what it was fitted to.

    Args:
        folds: int64 [E]. Fold of each episode, from 0; if there is one, the model is fitted to all of them.

    Raises:
        DataError: There is no fixed point.
    """
    count = len(folds)
    actions, states = np.zeros(len(steps.rewards)), np.zeros(len(steps.of_observations))
    influences = np.zeros(count)
    several = folds.max() > 0
    for fold in range(folds.max() + 1):
        own = folds == fold
        fit = model.fit(steps, ~own[steps.episodes] if several else np.ones(len(steps.rewards), np.bool_))
        errors = steps.rewards + steps.discounts * fit.states[steps.before + 1] - fit.actions
        places = np.zeros(len(states))
        places[steps.first[own]] = 1.0
        influences += _sums(steps.episodes, fit.derivative(places) * errors, count)
        actions = np.where(own[steps.episodes], fit.actions, actions)
        states = np.where(own[steps.of_observations], fit.states, states)
    ends = np.cumsum(steps.lengths) - 1
    states[steps.before[ends] + 1] *= steps.discounts[ends] > 0.0
    return Values(steps.padded(states, 1), steps.padded(actions), influences - influences.mean())
