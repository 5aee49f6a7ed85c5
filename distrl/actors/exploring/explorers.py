"""Explorers of one action: epsilon-greedy, Boltzmann, greedy, noise, and uniformly random actions.

`networks/policy/exploration_checks.py` has refused kinds that do not fit the action.
"""

from dataclasses import dataclass

import numpy as np

from distrl.config.exploration import (
    ActionExploration,
    BoltzmannParameters,
    ConstantNoiseParameters,
    EpsilonByEpisode,
    EpsilonGreedyParameters,
    EpsilonLadder,
    GaussianNoiseParameters,
    NoiseSection,
    OrnsteinUhlenbeckParameters,
)
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.categorical import draw_by_weight
from distrl.networks.actions.family import MASKED
from distrl.types import ActionSpec, Array, BoolArray, BoxSpec, FloatArray


@dataclass(frozen=True)
class Crowd:
    """Place of one actor's rows among those of all actors.

    Attributes:
        actor: The actor's id, from 0.
        actors: Configured number of actors, at least 1.
        environments: B, rows of each actor.
    """

    actor: int
    actors: int
    environments: int


class Explorer:
    """Draws one action. It may follow a schedule over environment steps, or have a state for every row."""

    def reset(self) -> None:
        """Return to the initial state, with every row at an episode's start."""

    def move_to(self, env_steps: int) -> None:
        """Move schedules to this number of environment steps of all actors."""

    def begin_episodes(self, begun: BoolArray) -> None:
        """Begin a new episode in the rows `begun`, bool [B]."""

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        """Return actions [B, ...] and log-probabilities, float32 [B]; 0 if the kind has no probabilities."""
        raise NotImplementedError


class Greedy(Explorer):
    """The policy's best action. Log-probabilities are 0, as nothing is drawn."""

    def __init__(self, spec: FamilySpec) -> None:
        self._sampler = spec.sampler()

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        return self._sampler.mode(parameters), np.zeros(len(parameters), np.float32)


class Boltzmann(Explorer):
    """Choices from softmax(values / T), or from a policy's logits / T."""

    def __init__(self, parameters: BoltzmannParameters, spec: FamilySpec) -> None:
        self._sampler = spec.as_logits().sampler()
        self._schedule = parameters.temperature
        self.move_to(0)

    def move_to(self, env_steps: int) -> None:
        self._inverse = np.array(1.0 / self._schedule.at(env_steps))

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        # float64, which no value overflows by a temperature.
        actions, log_probabilities = self._sampler.sample(parameters * self._inverse, rng)
        return actions, log_probabilities.astype(np.float32)


class NoisyAction(Explorer):
    """The policy's best action plus noise, cut to the bounds. Log-probabilities are 0: a cut action has no density.

    Args:
        spec: Meaning of the policy's outputs.
        action: The action, with its bounds.
        rows: B.
    """

    def __init__(self, parameters: NoiseSection, spec: FamilySpec, action: BoxSpec, rows: int) -> None:
        self._sampler = spec.sampler()
        self._shape = (rows, action.n)
        low = np.array([-np.inf if bound is None else bound for bound in action.low])
        high = np.array([np.inf if bound is None else bound for bound in action.high])
        self._scale = high - low if parameters.unit == "range" else np.ones(action.n)
        # Where the policy keeps inside the bounds, so does the noise.
        margin = spec.edge * (high - low) if spec.edge else 0.0
        self._low, self._high = (low + margin).astype(np.float32), (high - margin).astype(np.float32)

    def draw(self, rng: np.random.Generator) -> Array:
        """Return the next noise, float64 [B, n], in the parameters' unit."""
        raise NotImplementedError

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        noise = (self._scale * self.draw(rng)).astype(np.float32)
        actions = np.minimum(np.maximum(self._sampler.mode(parameters) + noise, self._low), self._high)
        return actions, np.zeros(len(parameters), np.float32)


class ConstantNoise(NoisyAction):
    """A constant value."""

    def __init__(self, parameters: ConstantNoiseParameters, spec: FamilySpec, action: BoxSpec, rows: int) -> None:
        super().__init__(parameters, spec, action, rows)
        self._noise = np.full(self._shape, parameters.value)

    def draw(self, rng: np.random.Generator) -> Array:
        return self._noise


class GaussianNoise(NoisyAction):
    """Independent normal noise at every step."""

    def __init__(self, parameters: GaussianNoiseParameters, spec: FamilySpec, action: BoxSpec, rows: int) -> None:
        super().__init__(parameters, spec, action, rows)
        self._mean, self._schedule = parameters.mean, parameters.stddev
        self.move_to(0)

    def move_to(self, env_steps: int) -> None:
        self._stddev = self._schedule.at(env_steps)

    def draw(self, rng: np.random.Generator) -> Array:
        return self._mean + self._stddev * rng.standard_normal(self._shape)


class OrnsteinUhlenbeck(NoisyAction):
    """``x += theta (mean - x) dt + sigma sqrt(dt) N(0, 1)``, from 0 in every episode (Lillicrap et al. 2016)."""

    def __init__(self, parameters: OrnsteinUhlenbeckParameters, spec: FamilySpec, action: BoxSpec, rows: int) -> None:
        super().__init__(parameters, spec, action, rows)
        self._mean = parameters.mean
        self._pull, self._push = parameters.theta * parameters.dt, parameters.sigma * parameters.dt**0.5
        self.reset()

    def reset(self) -> None:
        self.state: Array = np.zeros(self._shape)

    def begin_episodes(self, begun: BoolArray) -> None:
        self.state[begun] = 0.0

    def draw(self, rng: np.random.Generator) -> Array:
        moved = self._pull * (self._mean - self.state) + self._push * rng.standard_normal(self._shape)
        self.state = self.state + moved
        return self.state


class EpsilonGreedy(Explorer):
    """Base of both epsilon-greedy explorers: the current epsilon.

    Attributes:
        epsilon: float32, [] if equal for all rows, or [B].
    """

    def __init__(self, parameters: EpsilonGreedyParameters, crowd: Crowd) -> None:
        self._source = parameters.epsilon
        self._crowd = crowd
        self.reset()

    def reset(self) -> None:
        self._episodes = np.zeros(self._crowd.environments, np.int64)
        self.move_to(0)

    def move_to(self, env_steps: int) -> None:
        if isinstance(self._source, EpsilonLadder):
            self._set(ladder(self._source, self._crowd))
        elif not isinstance(self._source, EpsilonByEpisode):
            self._set(np.asarray(self._source.at(env_steps)))

    def begin_episodes(self, begun: BoolArray) -> None:
        self._episodes += begun

    def _renew(self, rng: np.random.Generator) -> None:
        """Renew epsilon; called before every step."""
        if isinstance(self._source, EpsilonByEpisode):
            self._set(rng.random(len(self._episodes)) / (self._episodes + 1))

    def _set(self, epsilon: Array) -> None:
        self.epsilon: FloatArray = epsilon.astype(np.float32)
        with np.errstate(divide="ignore"):  # log 0: never, or always
            self._log_epsilon, self._log_rest = np.log(self.epsilon), np.log1p(-self.epsilon)


class EpsilonGreedyChoice(EpsilonGreedy):
    """One choice, drawn from ``p = (1 - eps) p_own + eps u``.

    `p_own` is the policy's distribution; for values, all of it is on the best choice, shared evenly by equal ones. u is
    uniform over the allowed choices.
    """

    def __init__(self, parameters: EpsilonGreedyParameters, spec: FamilySpec, crowd: Crowd) -> None:
        super().__init__(parameters, crowd)
        self._may_be_masked = spec.may_be_masked
        self._own = _softmax if self._may_be_masked else _shares_of_the_best

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        self._renew(rng)
        probabilities = self.probabilities(parameters)
        actions, total = draw_by_weight(probabilities, rng)
        return actions, np.log(probabilities[actions, np.arange(len(actions))] / total)

    def probabilities(self, parameters: FloatArray) -> FloatArray:
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
    """Any other action: one draw for all of its numbers decides between the policy and a uniform action.

    Log-probabilities are those of the mixture, ``log((1 - eps) p(a) + eps u(a))``, whichever of the two drew a.
    """

    def __init__(self, parameters: EpsilonGreedyParameters, spec: FamilySpec, action: ActionSpec, crowd: Crowd) -> None:
        super().__init__(parameters, crowd)
        self._sampler = spec.sampler()
        self._uniform = uniform_of(action, spec)

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        self._renew(rng)
        actions, log_probabilities = self._sampler.sample(parameters, rng)
        (explored,) = np.nonzero(rng.random(len(parameters), np.float32) < self.epsilon)
        if explored.size:
            of_explored = parameters[explored]
            drawn, _ = self._uniform.sample(of_explored, rng)
            actions[explored] = drawn
            log_probabilities[explored] = self._sampler.log_probability(of_explored, drawn)
        uniform = self._log_epsilon + self._uniform.log_probability(parameters, actions)
        return actions, np.logaddexp(self._log_rest + log_probabilities, uniform)


class UniformChoices(Explorer):
    """Uniform choices and switches: the policy's distribution with equal logits for all that are not masked."""

    def __init__(self, spec: FamilySpec) -> None:
        self._lowest = -0.5 * MASKED if spec.may_be_masked else -np.inf
        self._sampler = spec.as_logits().sampler()

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        return self._sampler.sample(self._level(parameters), rng)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        """Return log-probabilities of any actions in range, float32 [B]."""
        return self._sampler.log_probability(self._level(parameters), actions)

    def _level(self, logits: FloatArray) -> FloatArray:
        """Return equal logits for the allowed choices."""
        return np.where(logits < self._lowest, np.float32(-MASKED), np.float32(0.0))


class UniformNumbers(Explorer):
    """Uniform real numbers between finite bounds, each bound moved inside by `inset` of their distance."""

    def __init__(self, spec: BoxSpec, inset: float) -> None:
        low, high = (np.array(bound, np.float64) for bound in (spec.low, spec.high))
        margin = inset * (high - low)
        self._low, self._high = low + margin, high - margin
        # As actions are rounded, so that none that is drawn lies outside.
        self._lowest, self._highest = self._low.astype(np.float32), self._high.astype(np.float32)
        self._log_density = np.float32(-np.log(self._high - self._low).sum())

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        rows = len(parameters)
        actions = rng.uniform(self._low, self._high, (rows, len(self._low))).astype(np.float32)
        return actions, np.full(rows, self._log_density)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        """Return log-densities of any actions, float32 [B]; -inf beyond the bounds."""
        inside = ((actions >= self._lowest) & (actions <= self._highest)).all(axis=1)
        return np.where(inside, self._log_density, np.float32(-np.inf))


def uniform_of(action: ActionSpec, spec: FamilySpec) -> UniformChoices | UniformNumbers:
    """Return the sampler of uniformly random actions; real numbers must have finite bounds.

    If the policy stays strictly inside the bounds, so do these: it could not have taken others.
    """
    return UniformNumbers(action, spec.edge) if isinstance(action, BoxSpec) else UniformChoices(spec)


def explorer_of(parameters: ActionExploration, spec: FamilySpec, action: ActionSpec, crowd: Crowd) -> Explorer:
    """Make the explorer of one action.

    Args:
        parameters: Any kind but `policy`.
        spec: Meaning of the policy's outputs.
    """
    match parameters:
        case EpsilonGreedyParameters() if spec.is_one_choice:
            return EpsilonGreedyChoice(parameters, spec, crowd)
        case EpsilonGreedyParameters():
            return EpsilonGreedyMixture(parameters, spec, action, crowd)
        case BoltzmannParameters():
            return Boltzmann(parameters, spec)
        case _ if not isinstance(parameters, NoiseSection):
            return Greedy(spec)
    assert isinstance(action, BoxSpec)  # `check_exploration` has refused noise on any other
    match parameters:
        case GaussianNoiseParameters():
            return GaussianNoise(parameters, spec, action, crowd.environments)
        case OrnsteinUhlenbeckParameters():
            return OrnsteinUhlenbeck(parameters, spec, action, crowd.environments)
        case _:
            assert isinstance(parameters, ConstantNoiseParameters)
            return ConstantNoise(parameters, spec, action, crowd.environments)


def ladder(parameters: EpsilonLadder, crowd: Crowd) -> Array:
    """Return the epsilon of each row of an actor, float64 [B] or [].

    Actors beyond the configured number have the last actor's.
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
