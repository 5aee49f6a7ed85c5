"""Epsilon-greedy choices, over values and over any policy, and where epsilon comes from."""

from dataclasses import dataclass

import numpy as np

from distrl.config.exploration import EpsilonByEpisode, EpsilonGreedyParameters, EpsilonLadder
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.categorical import draw_by_weight, greedy
from distrl.networks.actions.family import MASKED, Sampler
from distrl.types import Array, BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Crowd:
    """Where the environments of one actor stand among those of all.

    Attributes:
        actor: Its id, from 0.
        actors: How many the run is configured for, at least 1.
        environments: B, of each.
    """

    actor: int
    actors: int
    environments: int


class EpsilonGreedy:
    """Where epsilon comes from, for both classes below.

    Attributes:
        epsilon: float32, [] for all environments alike, or [B].
    """

    def __init__(self, parameters: EpsilonGreedyParameters, crowd: Crowd) -> None:
        self._source = parameters.epsilon
        self._crowd = crowd
        self.reset()

    def reset(self) -> None:
        """Nothing is known of environment steps, and every environment is in its first episode."""
        self._episodes = np.zeros(self._crowd.environments, np.int64)
        self.move_to(0)

    def move_to(self, env_steps: int) -> None:
        """All actors together have made so many environment steps."""
        if isinstance(self._source, EpsilonLadder):
            self._set(ladder(self._source, self._crowd))
        elif not isinstance(self._source, EpsilonByEpisode):
            self._set(np.asarray(self._source.at(env_steps)))

    def begin_episodes(self, begun: BoolArray) -> None:
        """A new episode begins where `begun`, bool [B]."""
        self._episodes += begun

    def _renew(self, rng: np.random.Generator) -> None:
        """Before every step."""
        if isinstance(self._source, EpsilonByEpisode):
            self._set(rng.random(len(self._episodes)) / (self._episodes + 1))

    def _set(self, epsilon: Array) -> None:
        self.epsilon: FloatArray = epsilon.astype(np.float32)
        with np.errstate(divide="ignore"):  # log 0: never, or always
            self._log_epsilon, self._log_rest = np.log(self.epsilon), np.log1p(-self.epsilon)


class EpsilonGreedyChoice(EpsilonGreedy):
    """One choice: ``p = (1 - eps) p_own + eps u``, drawn in one go.

    `p_own` is the policy's distribution, or shared evenly by the best of equal values; u is uniform over what is
    allowed.
    """

    def __init__(self, parameters: EpsilonGreedyParameters, spec: FamilySpec, crowd: Crowd) -> None:
        super().__init__(parameters, crowd)
        self._may_be_masked = spec.may_be_masked
        self._own = _softmax if self._may_be_masked else _shares_of_the_best

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
        self._renew(rng)
        probabilities = self._probabilities(parameters)
        actions, total = draw_by_weight(probabilities, rng)
        return actions, np.log(probabilities[actions, np.arange(len(actions))] / total)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.log(self._probabilities(parameters)[actions, np.arange(len(actions))])

    def mode(self, parameters: FloatArray) -> Array:
        return greedy(parameters)

    def _probabilities(self, parameters: FloatArray) -> FloatArray:
        """[B, A] -> [A, B]."""
        given = np.ascontiguousarray(parameters.T)
        own = self._own(given)
        uniform = np.full_like(own, 1.0 / len(given))
        if self._may_be_masked:
            allowed = given > -0.5 * MASKED
            uniform = np.divide(allowed, np.add.reduce(allowed, axis=0, dtype=np.float32), dtype=np.float32)
        mixed: FloatArray = own + self.epsilon * (uniform - own)
        return mixed


class EpsilonGreedyMixture(EpsilonGreedy):
    """Any other action: one toss for all of its numbers decides between the policy and chance.

    Its log-probabilities are those of the mixture, ``log((1 - eps) p(a) + eps u(a))``, whichever of the two drew a.

    Args:
        spec: What the policy's outputs mean.
        uniform: What is drawn with probability epsilon.
    """

    def __init__(self, parameters: EpsilonGreedyParameters, spec: FamilySpec, uniform: Sampler, crowd: Crowd) -> None:
        super().__init__(parameters, crowd)
        self._sampler = spec.sampler()
        self._uniform = uniform

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        self._renew(rng)
        actions, log_probabilities = self._sampler.sample(parameters, rng)
        (explored,) = np.nonzero(rng.random(len(parameters), np.float32) < self.epsilon)
        if explored.size:
            of_explored = parameters[explored]
            drawn, _ = self._uniform.sample(of_explored, rng)
            actions[explored] = drawn
            log_probabilities[explored] = self._sampler.log_probability(of_explored, drawn)
        return actions, self._mixed(log_probabilities, parameters, actions)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        return self._mixed(self._sampler.log_probability(parameters, actions), parameters, actions)

    def mode(self, parameters: FloatArray) -> Array:
        return self._sampler.mode(parameters)

    def _mixed(self, log_probabilities: FloatArray, parameters: FloatArray, actions: Array) -> FloatArray:
        uniform = self._log_epsilon + self._uniform.log_probability(parameters, actions)
        mixed: FloatArray = np.logaddexp(self._log_rest + log_probabilities, uniform)
        return mixed


def epsilon_greedy(
    parameters: EpsilonGreedyParameters, spec: FamilySpec, uniform: Sampler, crowd: Crowd
) -> EpsilonGreedyChoice | EpsilonGreedyMixture:
    """With probability epsilon an action drawn from `uniform`, otherwise the policy's.

    Args:
        parameters: Where epsilon comes from.
        spec: What the policy's outputs mean.
        crowd: Which environments these are.
    """
    if spec.is_one_choice:
        return EpsilonGreedyChoice(parameters, spec, crowd)
    return EpsilonGreedyMixture(parameters, spec, uniform, crowd)


def ladder(parameters: EpsilonLadder, crowd: Crowd) -> Array:
    """Epsilon of each environment of an actor, float64 [B] or [].

    Actors beyond the configured number stand on the last step.
    """
    if parameters.over == "actors":
        count, place = crowd.actors, np.asarray(crowd.actor)
    else:
        count = crowd.actors * crowd.environments
        place = crowd.actor * crowd.environments + np.arange(crowd.environments)
    last = count - 1
    height = np.minimum(place, last) / max(last, 1)  # one alone stands on the first step
    steps: Array = parameters.base ** (1.0 + parameters.exponent * height)
    return steps


def _softmax(logits: FloatArray) -> FloatArray:
    """[A, B], over the first axis."""
    weights = np.exp(logits - np.maximum.reduce(logits, axis=0))
    probabilities: FloatArray = weights / np.add.reduce(weights, axis=0)
    return probabilities


def _shares_of_the_best(values: FloatArray) -> FloatArray:
    """[A, B], over the first axis: 1 for the best, 1 / k for each of the k best."""
    best = values == np.maximum.reduce(values, axis=0)
    shares: FloatArray = best / np.add.reduce(best, axis=0, dtype=np.float32)
    return shares
