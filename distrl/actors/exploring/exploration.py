"""How an actor explores: its actions, chosen otherwise than the policy alone would, and their exact log-probabilities.

Which kinds there are is said in `config/exploration.py`; which of them fit, in `networks/policy/exploration.py`.
Everything moves with the environment steps that come with weights, and begins anew where the actor does.
"""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

import numpy as np

from distrl.actors.exploring.action_noise import NoisyAction
from distrl.actors.exploring.epsilon_greedy import Crowd, epsilon_greedy
from distrl.actors.exploring.uniform import uniform_of
from distrl.actors.exploring.weight_noise import weight_noise_of
from distrl.actors.policy import Policy
from distrl.config.exploration import (
    ActionExploration,
    BoltzmannParameters,
    EpsilonGreedyParameters,
    ExplorationParameters,
    NoiseSection,
)
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.family import Sampler
from distrl.networks.actions.joint import ActionSelector
from distrl.networks.policy.exploration import of_each
from distrl.types import ActionSpec, Array, BoolArray, BoxSpec, FloatArray


class Explorer(Sampler, Protocol):
    """A sampler that changes as training goes on, or that remembers something of every environment."""

    def reset(self) -> None:
        """As at first, with every environment at an episode's start."""

    def move_to(self, env_steps: int) -> None:
        """All actors together have made so many environment steps."""

    def begin_episodes(self, begun: BoolArray) -> None:
        """A new episode begins where `begun`, bool [B]."""


class Exploration:
    """Chooses an actor's actions while it trains.

    Args:
        parameters: None: by the policy's distributions alone.
        distributions: Action -> its distribution.
        actions: Action -> what the environment takes.
        crowd: Which environments these are.
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
            action: _explorer(one, distributions[action], actions[action], self._crowd)
            for action, one in of_each(parameters, distributions).items()
        }
        self._explored = ActionSelector(distributions, samplers=self._explorers)
        self._random_steps = 0 if parameters is None else parameters.random_steps
        self._random = self._explored
        if self._random_steps:
            uniform = {action: uniform_of(actions[action], spec) for action, spec in distributions.items()}
            self._random = ActionSelector(distributions, samplers=uniform)
        self._weight_noise = weight_noise_of(parameters)

    def change(self, parameters: ExplorationParameters | None) -> None:
        """Explores by these from now on; what is remembered of environments, such as their noise, begins anew."""
        if parameters != self._parameters:
            self._make(parameters)
            self.move_to(self._env_steps)

    def reset(self) -> None:
        """As before anything was known, with every environment at an episode's start."""
        for explorer in self._explorers.values():
            explorer.reset()
        self.move_to(0)

    def move_to(self, env_steps: int) -> None:
        """All actors together have made so many environment steps, as the newest weights tell."""
        self._env_steps = env_steps
        self._selector = self._random if env_steps < self._random_steps else self._explored
        for explorer in self._explorers.values():
            explorer.move_to(env_steps)
        if self._weight_noise is not None:
            self._weight_noise.move_to(env_steps)

    def perturb(self, policy: Policy, rng: np.random.Generator) -> None:
        """Gives the policy the noise that it shall act with for an unroll; most kinds have none."""
        if self._weight_noise is not None:
            policy.perturb(partial(self._weight_noise.perturbed, rng))

    def sample(
        self, outputs: Mapping[str, FloatArray], rng: np.random.Generator
    ) -> tuple[dict[str, Array], FloatArray]:
        """One action of each name for every environment, as `ActionSelector.sample`."""
        return self._selector.sample(outputs, rng)

    def follow(self, valid: BoolArray) -> None:
        """What the environments did: a new episode begins after each row that is not `valid`, bool [B]."""
        if self._explorers and not valid.all():
            for explorer in self._explorers.values():
                explorer.begin_episodes(~valid)


class _Steady:
    """Remembers nothing of environments."""

    def reset(self) -> None:
        """There is nothing to forget."""

    def begin_episodes(self, begun: BoolArray) -> None:
        """Every step is chosen by itself."""

    def move_to(self, env_steps: int) -> None:
        """It stays the same."""


class Boltzmann(_Steady):
    """softmax(values / T), and likewise of a policy's logits."""

    def __init__(self, parameters: BoltzmannParameters, spec: FamilySpec) -> None:
        self._sampler = spec.as_logits().sampler()
        self._schedule = parameters.temperature
        self.move_to(0)

    def move_to(self, env_steps: int) -> None:
        self._inverse = np.array(1.0 / self._schedule.at(env_steps))

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        actions, log_probabilities = self._sampler.sample(self._tempered(parameters), rng)
        return actions, log_probabilities.astype(np.float32)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        return self._sampler.log_probability(self._tempered(parameters), actions).astype(np.float32)

    def mode(self, parameters: FloatArray) -> Array:
        return self._sampler.mode(parameters)

    def _tempered(self, parameters: FloatArray) -> Array:
        """float64, which no value overflows by a temperature."""
        tempered: Array = parameters * self._inverse
        return tempered


class Greedy(_Steady):
    """The policy's best action. Log-probabilities are 0: there are none."""

    def __init__(self, spec: FamilySpec) -> None:
        self._sampler = spec.sampler()

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        return self.mode(parameters), np.zeros(len(parameters), np.float32)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        return np.zeros(len(parameters), np.float32)

    def mode(self, parameters: FloatArray) -> Array:
        return self._sampler.mode(parameters)


def _explorer(parameters: ActionExploration, spec: FamilySpec, action: ActionSpec, crowd: Crowd) -> Explorer:
    match parameters:
        case EpsilonGreedyParameters():
            return epsilon_greedy(parameters, spec, uniform_of(action, spec), crowd)
        case BoltzmannParameters():
            return Boltzmann(parameters, spec)
        case NoiseSection():
            assert isinstance(action, BoxSpec)  # `check_exploration` has seen to it
            return NoisyAction(parameters, spec, action, crowd.environments)
        case _:
            return Greedy(spec)
