"""Exploration: the actor's choice of actions while training, with their exact log-probabilities.

`config/exploration.py` has the kinds; `networks/policy/exploration_checks.py` checks which of them fit. Schedules
follow the environment steps that are published with the weights; all other state begins anew with the actor.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np

from distrl.actors.exploring.explorers import Crowd, explorer_of, uniform_of
from distrl.actors.exploring.weight_noise import weight_noise_of
from distrl.actors.policy import Policy
from distrl.config.exploration import ExplorationParameters
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.joint import ActionSelector
from distrl.networks.policy.exploration_checks import of_each
from distrl.types import ActionSpec, Array, BoolArray, FloatArray


class Exploration:
    """Chooses an actor's actions while it trains.

    Args:
        parameters: The kind of exploration; None: draw from the policy's distributions.
    """

    def __init__(
        self,
        parameters: ExplorationParameters | None,
        distributions: Mapping[str, FamilySpec],
        actions: Mapping[str, ActionSpec],
        crowd: Crowd,
    ) -> None:
        self._distributions, self._actions, self._crowd = distributions, actions, crowd
        self._make(parameters)
        self.reset()

    def _make(self, parameters: ExplorationParameters | None) -> None:
        distributions, actions = self._distributions, self._actions
        self._parameters = parameters
        self._explorers = {
            action: explorer_of(one, distributions[action], actions[action], self._crowd)
            for action, one in of_each(parameters, distributions).items()
        }
        self._explored = ActionSelector(distributions, explorers=self._explorers)
        self._random_steps = 0 if parameters is None else parameters.random_steps
        self._random = self._explored
        if self._random_steps:
            uniform = {action: uniform_of(actions[action], spec) for action, spec in distributions.items()}
            self._random = ActionSelector(distributions, explorers=uniform)
        self._weight_noise = weight_noise_of(parameters)

    def change(self, parameters: ExplorationParameters | None) -> None:
        """Explore by these parameters from now on. State of environments, such as their noise, begins anew."""
        if parameters != self._parameters:
            self._make(parameters)
            self.move_to(self._env_steps)

    def reset(self) -> None:
        """Return to the initial state, with every row at an episode's start."""
        for explorer in self._explorers.values():
            explorer.reset()
        self.move_to(0)

    def move_to(self, env_steps: int) -> None:
        """Move schedules to this number of environment steps of all actors, which came with the newest weights."""
        self._env_steps = env_steps
        self._selector = self._random if env_steps < self._random_steps else self._explored
        for explorer in self._explorers.values():
            explorer.move_to(env_steps)
        if self._weight_noise is not None:
            self._weight_noise.move_to(env_steps)

    def perturb(self, policy: Policy, rng: np.random.Generator) -> None:
        """Put noise on the policy's weights for an unroll, if this kind explores by weights."""
        if self._weight_noise is not None:
            policy.perturb(partial(self._weight_noise.perturbed, rng))

    def sample(
        self, outputs: Mapping[str, FloatArray], rng: np.random.Generator
    ) -> tuple[dict[str, Array], FloatArray]:
        """Draw one action of each name for every row, see `ActionSelector.sample`."""
        return self._selector.sample(outputs, rng)

    def follow(self, valid: BoolArray) -> None:
        """Record a step: a new episode begins in each row that is not `valid`, bool [B]."""
        if self._explorers and not valid.all():
            for explorer in self._explorers.values():
                explorer.begin_episodes(~valid)
