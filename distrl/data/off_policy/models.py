"""Models of one data set: values of the policy, and the policy that acted, of the kind that fits its spaces."""

import numpy as np

from distrl.data.episodes import DataError
from distrl.data.off_policy import behaviour
from distrl.data.off_policy.estimators import Counts, Numbers
from distrl.data.off_policy.features import RandomFeatures, standardised
from distrl.data.off_policy.fitted_q import Linear, Model, Table
from distrl.data.off_policy.reading import Shown
from distrl.data.off_policy.target import Choices, Target, columns, sizes
from distrl.types import Array, BoxSpec, FloatArray

_COSINES = 512
"""Random features of linear models, shared out among the choices."""


class Inputs:
    """Recorded steps as models take them: a table of few categories and choices, or else random features.

    Args:
        before: int64 [N]. Places of the observations that have a step.
        is_table: Whether observations are categories and actions few choices.
    """

    def __init__(
        self, target: Target, shown: Shown, before: Counts, rng: np.random.Generator, *, is_table: bool
    ) -> None:
        self._target, self._shown, self._before, self._rng = target, shown, before, rng
        self._choices = Choices.of(target.specs)
        self._states: Counts | None = None
        if is_table:
            _, numbers = np.unique(shown.numbers, axis=0, return_inverse=True)
            self._states = numbers.reshape(-1).astype(np.int64)
        else:
            self._numbers = standardised(shown.numbers)

    def log_target(self) -> Numbers:
        """Return log π of the recorded actions, float64 [N]."""
        shown, before = self._shown, self._before
        outputs = {name: rows[before] for name, rows in shown.outputs.items()}
        allowed = None if shown.allowed is None else shown.allowed[before]
        return self._target.log_probabilities(outputs, shown.actions, allowed)

    def log_behaviour(self) -> Numbers:
        """Return log b of the recorded actions under a policy that is fitted to them, float64 [N].

        Raises:
            DataError: Some are choices, and others real numbers.
        """
        specs, before = self._target.specs, self._before
        if self._states is not None and self._choices is not None:
            return behaviour.counted(self._states[before], self._choices.numbers(self._shown.actions))
        rows = columns(specs, self._shown.actions)
        features = RandomFeatures(self._numbers.shape[1], _COSINES // 2, self._rng)(self._numbers[before])
        if (counts := sizes(specs)) is not None:
            fitted = [
                behaviour.chosen(features, column.astype(np.int64), count)
                for column, count in zip(rows.T, counts, strict=True)
            ]
            total: Numbers = np.sum(fitted, axis=0)
            return total
        if all(isinstance(spec, BoxSpec) for spec in specs.values()):
            return behaviour.normal(features, rows.astype(np.float64))
        raise DataError("behaviour bc fits choices or real numbers, and these actions have both")

    def model(self) -> Model:
        """Return what the policy's values are fitted by."""
        shown = self._shown
        if self._choices is None:
            return self._with_actions()
        probabilities = self._target.probabilities(shown.outputs, self._choices, shown.allowed)
        taken = self._choices.numbers(shown.actions)
        if self._states is not None:
            return Table(self._states, taken, probabilities)
        count = self._choices.count
        made = RandomFeatures(self._numbers.shape[1], _COSINES // count, self._rng)
        features = made(self._numbers)
        chosen = np.zeros((len(taken), count, made.size), np.float32)
        chosen[np.arange(len(taken)), taken] = features[self._before]
        expected: FloatArray = (probabilities.astype(np.float32)[:, :, None] * features[:, None, :]).reshape(
            len(features), -1
        )
        return Linear(chosen.reshape(len(taken), -1), expected)

    def _with_actions(self) -> Model:
        """Return a model of observations and actions together, for many choices and real numbers."""
        specs, shown = self._target.specs, self._shown
        rows = columns(specs, shown.actions).astype(np.float64)
        center, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-6)

        def joined(numbers: FloatArray, actions: Array) -> FloatArray:
            found: FloatArray = np.concatenate([numbers, (actions - center) / scale], axis=1, dtype=np.float32)
            return found

        made = RandomFeatures(self._numbers.shape[1] + rows.shape[1], _COSINES, self._rng)
        expected = np.zeros((len(self._numbers), made.size), np.float32)
        drawn = [*self._target.draws(shown.outputs, shown.allowed, self._rng)]
        for actions in drawn:
            expected += made(joined(self._numbers, columns(specs, actions))) / np.float32(len(drawn))
        return Linear(made(joined(self._numbers[self._before], rows)), expected)
