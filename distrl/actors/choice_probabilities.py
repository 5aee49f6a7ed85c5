"""Probabilities of all choices under the policy that acted, for algorithms that learn from more than the one taken.

The actor has the policy's logits, because it draws actions by them. The learner cannot compute them later, when the
weights that acted are gone.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from distrl.errors import ConfigError
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.types import CHOICE_PROBABILITIES, FloatArray, Unroll


class ChoiceProbabilities:
    """Collects the logits of an unroll's rows, and adds their softmax to the full unroll.

    Actions must be drawn by these logits alone, without exploration: the algorithm's `learns_from` is "own policy".

    Args:
        algorithm: The algorithm's name, for messages.
        distributions: Action -> how it is taken.

    Raises:
        ConfigError: There is no such action, or there are several, or it is not drawn by logits of its choices.
    """

    def __init__(self, algorithm: str, distributions: Mapping[str, FamilySpec]) -> None:
        drawn = {action: spec for action, spec in distributions.items() if isinstance(spec, CategoricalSpec)}
        if len(distributions) != 1 or not drawn:
            kinds = ", ".join(f"{action} ({spec.kind})" for action, spec in distributions.items())
            raise ConfigError(
                f"algorithm {algorithm}: tells_choice_probabilities needs one action, drawn by a policy head as one of "
                f"its choices, not {kinds or 'none'}"
            )
        ((action, spec),) = drawn.items()
        self._output = spec.output_of(action)
        self.begin()

    def begin(self) -> None:
        """Begin an unroll; rows of an abandoned one are forgotten."""
        self._rows: list[FloatArray] = []

    def add(self, outputs: Mapping[str, FloatArray]) -> None:
        """Add one row: the policy's outputs by name, [B, A]."""
        self._rows.append(outputs[self._output])

    def added_to(self, unroll: Unroll) -> Unroll:
        """Return the full unroll with its probabilities, and begin the next one."""
        logits = np.stack(self._rows)  # [T, B, A]
        self.begin()
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probabilities = weights / weights.sum(axis=-1, keepdims=True)
        return replace(unroll, extras={**unroll.extras, CHOICE_PROBABILITIES: probabilities})
