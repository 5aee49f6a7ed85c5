"""How an actor explores: it takes other actions than the policy alone would, and reports their exact log-probabilities.

`config/exploration.py` has the kinds, `networks/policy/exploration_checks.py` says which of them fit.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np

from distrl.actors.acting import Acting
from distrl.actors.exploring import weight_noise
from distrl.actors.exploring.explorers import ActorRows, explorer_of, random_of
from distrl.config.exploration import ExplorationParameters, NoisyNetworkParameters, ParameterNoiseParameters
from distrl.config.schedules import Progress
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.joint import ActionSelector
from distrl.networks.policy.exploration_checks import of_each
from distrl.types import ActionSpec, Array, BoolArray, FloatArray


class Exploration:
    """Chooses an actor's actions while it trains; without `parameters` it draws from the policy's distributions."""

    def __init__(
        self,
        parameters: ExplorationParameters | None,
        distributions: Mapping[str, FamilySpec],
        actions: Mapping[str, ActionSpec],
        rows: ActorRows,
    ) -> None:
        self._distributions, self._actions, self._rows = distributions, actions, rows
        self._make(parameters)

    def _make(self, parameters: ExplorationParameters | None) -> None:
        distributions, actions = self._distributions, self._actions
        self._parameters = parameters
        self._explorers = {
            action: explorer_of(one, distributions[action], actions[action], self._rows)
            for action, one in of_each(parameters, distributions).items()
        }
        self._explored = self._random = ActionSelector(distributions, explorers=self._explorers)
        self._random_steps = 0 if parameters is None else parameters.random_steps
        if self._random_steps:
            uniform = {action: random_of(actions[action], spec) for action, spec in distributions.items()}
            self._random = ActionSelector(distributions, explorers=uniform)
        self.move_to(self._rows.progress)

    @property
    def progress(self) -> Progress:
        """How far the training is, as the newest weights say."""
        return self._rows.progress

    def change(self, parameters: ExplorationParameters | None) -> None:
        """Explore by these from now on; noise that remembers environments begins anew."""
        if parameters != self._parameters:
            self._make(parameters)

    def reset(self) -> None:
        """Begin as at first, with every row at an episode's start."""
        self._rows.reset()
        self._make(self._parameters)

    def move_to(self, progress: Progress) -> None:
        """Move schedules to this progress of the training, which came with the newest weights."""
        self._rows.progress = progress
        self._selector = self._random if progress.env_steps < self._random_steps else self._explored

    def perturb(self, policy: Acting, rng: np.random.Generator) -> None:
        """Put noise on the policy's weights for an unroll, where the kind is one of weights."""
        match self._parameters:
            case NoisyNetworkParameters():
                policy.perturb(partial(weight_noise.factorised, rng))
            case ParameterNoiseParameters(stddev=schedule):
                policy.perturb(partial(weight_noise.independent, rng, schedule.at(self._rows.progress)))

    def sample(
        self, outputs: Mapping[str, FloatArray], rng: np.random.Generator
    ) -> tuple[dict[str, Array], FloatArray]:
        """One action of each name for every row, as `ActionSelector.sample`."""
        return self._selector.sample(outputs, rng)

    def follow(self, valid: BoolArray) -> None:
        """Take note of a step: a new episode begins in each row that is not `valid`, bool [B]."""
        if self._explorers:
            self._rows.episodes += ~valid
