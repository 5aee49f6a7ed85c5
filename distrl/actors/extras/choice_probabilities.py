"""Probabilities of all choices under the policy that acted, for algorithms that learn from more than the one taken.

The actor has the policy's logits, because it draws actions by them. The learner cannot compute them later, when the
weights that acted are gone.
"""

from dataclasses import replace

import numpy as np

from distrl.actors.acting import Acting, PolicyOutput
from distrl.actors.extras.extra import Extra
from distrl.config import RunConfig
from distrl.config.algorithms import AlgorithmSection
from distrl.config.schedules import Progress
from distrl.environments.vector import EnvironmentStep
from distrl.errors import ConfigError
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.types import CHOICE_PROBABILITIES, FloatArray, Unroll


class ChoiceProbabilities(Extra):
    """Collects the logits of an unroll's rows, and adds their softmax to the full unroll.

    Actions must be drawn by these logits alone, without exploration: the algorithm's `learns_from` is "own policy".

    Raises:
        ConfigError: There is no such action, or there are several, or it is not drawn by logits of its choices.
    """

    def __init__(self, parameters: AlgorithmSection, policy: Acting) -> None:
        distributions = policy.distributions
        drawn = {action: spec for action, spec in distributions.items() if isinstance(spec, CategoricalSpec)}
        if len(distributions) != 1 or not drawn:
            kinds = ", ".join(f"{action} ({spec.kind})" for action, spec in distributions.items())
            raise ConfigError(
                f"algorithm {parameters.name}: choice_probabilities need one action, drawn by a policy head as one of "
                f"its choices, not {kinds or 'none'}"
            )
        ((action, spec),) = drawn.items()
        self._output = spec.output_of(action)

    def begin(self, config: RunConfig, progress: Progress) -> None:
        self._rows: list[FloatArray] = []

    def add(self, output: PolicyOutput, step: EnvironmentStep) -> None:
        self._rows.append(output.outputs[self._output])

    def close(self, unroll: Unroll) -> Unroll:
        logits = np.stack(self._rows)  # [T, B, A]
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probabilities = weights / weights.sum(axis=-1, keepdims=True)
        return replace(unroll, extras={**unroll.extras, CHOICE_PROBABILITIES: probabilities})
