"""Explorers of one action: epsilon-greedy, Boltzmann, greedy, noise, and uniformly random actions.

`networks/policy/exploration_checks.py` has refused kinds that do not fit the action.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from distrl.actors.exploring.truncated_noise import TruncatedNoise
from distrl.config.exploration import (
    ActionExploration,
    BoltzmannParameters,
    ConstantNoiseParameters,
    Epsilon,
    EpsilonByEpisode,
    EpsilonGreedyParameters,
    EpsilonLadder,
    GaussianNoiseParameters,
    MemberParameters,
    NoiseSection,
    OrnsteinUhlenbeckParameters,
    TruncatedGaussianNoiseParameters,
    UcbParameters,
)
from distrl.config.schedules import Progress, Schedule
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.categorical import draw_by_weight
from distrl.networks.actions.ensemble import EnsembleSpec, mean_values, upper_bounds
from distrl.networks.actions.family import MASKED, UndrawnFamily
from distrl.networks.actions.joint import Draws
from distrl.types import ActionSpec, Array, BoxSpec, FloatArray, IntArray

NextEpsilon = Callable[[np.random.Generator], Array]
"""Epsilon of the next step, float32: [] for all rows alike, or [B]. Call it once before every step."""


@dataclass
class ActorRows:
    """The rows of one actor: their place among those of all actors, and how far they have come.

    Attributes:
        actor: The actor's id, from 0.
        actors: The number that the run is configured for, at least 1.
        count: B.
        progress: How far the training is, as the newest weights say.
        episodes: int64 [B]. Episodes that each row has ended.
    """

    actor: int
    actors: int
    count: int

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.progress = Progress()
        self.episodes: IntArray = np.zeros(self.count, np.int64)


class Greedy:
    """The policy's best action. Log-probabilities are 0: there are none."""

    def __init__(self, spec: FamilySpec) -> None:
        self._sampler = spec.sampler()

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        return self._sampler.mode(parameters), np.zeros(len(parameters), np.float32)


class Boltzmann:
    """softmax(values / T), and likewise of a policy's logits."""

    def __init__(self, temperature: Schedule, spec: FamilySpec, rows: ActorRows) -> None:
        self._temperature = temperature
        self._sampler = spec.as_logits().sampler()
        self._rows = rows

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        # float64, which no value overflows by a temperature.
        inverse = np.array(1.0 / self._temperature.at(self._rows.progress))
        actions, log_probabilities = self._sampler.sample(parameters * inverse, rng)
        return actions, log_probabilities.astype(np.float32)


class NoisyAction:
    """The policy's best action plus noise, cut to the bounds. Log-probabilities are 0: where bounds cut is no density.

    Args:
        noise: Draws the next noise, float64 [B, n] or of a shape that is broadcast to it, in `unit`.
        unit: "range", the distance between the action's bounds, or "action", the action's own unit.
    """

    def __init__(
        self, noise: Callable[[np.random.Generator], Array], unit: str, spec: FamilySpec, action: BoxSpec
    ) -> None:
        self._noise = noise
        self._sampler = spec.sampler()
        low = np.array([-np.inf if bound is None else bound for bound in action.low])
        high = np.array([np.inf if bound is None else bound for bound in action.high])
        self._scale = high - low if unit == "range" else np.ones(action.n)
        # Where the policy keeps inside the bounds, so does the noise.
        margin = spec.edge * (high - low) if spec.edge else 0.0
        self._low, self._high = (low + margin).astype(np.float32), (high - margin).astype(np.float32)

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        with np.errstate(over="ignore"):  # with bounds as wide as float32; infinity is cut to them as well
            noise = (self._scale * self._noise(rng)).astype(np.float32)
            noisy = self._sampler.mode(parameters) + noise
        actions = np.minimum(np.maximum(noisy, self._low), self._high)
        return actions, np.zeros(len(parameters), np.float32)


class OrnsteinUhlenbeck:
    """``x += theta (mean - x) dt + sigma sqrt(dt) N(0, 1)``, from 0 in every episode (Lillicrap et al. 2016)."""

    def __init__(self, parameters: OrnsteinUhlenbeckParameters, size: int, rows: ActorRows) -> None:
        self._mean = parameters.mean
        self._pull, self._push = parameters.theta * parameters.dt, parameters.sigma * parameters.dt**0.5
        self._rows = rows
        self._episodes = rows.episodes.copy()
        self.state: Array = np.zeros((rows.count, size))

    def draw(self, rng: np.random.Generator) -> Array:
        """The next noise, float64 [B, n]."""
        self.state[self._rows.episodes != self._episodes] = 0.0
        self._episodes[:] = self._rows.episodes
        moved = self._pull * (self._mean - self.state) + self._push * rng.standard_normal(self.state.shape)
        self.state = self.state + moved
        return self.state


class EpsilonGreedyChoice:
    """One choice: ``p = (1 - eps) p_own + eps u``, drawn in one go.

    `p_own` is the policy's distribution; for values, all of it is on the best choice, shared evenly by equal ones. u is
    uniform over the allowed choices.
    """

    def __init__(self, epsilon: NextEpsilon, spec: FamilySpec) -> None:
        self._epsilon = epsilon
        self._may_be_masked = spec.may_be_masked
        self._own = _shares_of_the_best if isinstance(spec, UndrawnFamily) else _softmax

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        probabilities = self.probabilities(parameters, self._epsilon(rng))
        actions, total = draw_by_weight(probabilities, rng)
        return actions, np.log(probabilities[actions, np.arange(len(actions))] / total)

    def probabilities(self, parameters: FloatArray, epsilon: Array) -> FloatArray:
        """[B, A] -> [A, B]."""
        given = np.ascontiguousarray(parameters.T)
        own = self._own(given)
        uniform = np.full_like(own, 1.0 / len(given))
        if self._may_be_masked:
            allowed = given > -0.5 * MASKED
            uniform = np.divide(allowed, np.add.reduce(allowed, axis=0, dtype=np.float32), dtype=np.float32)
        mixed: FloatArray = own + epsilon * (uniform - own)
        return mixed


class OfEnsemble:
    """Explores one choice by the values that an ensemble's are reduced to.

    Args:
        reduce: float32 [B, K, n] -> [B, n].
        explorer: Explores by these.
    """

    def __init__(
        self, spec: EnsembleSpec, reduce: Callable[[FloatArray, np.random.Generator], FloatArray], explorer: Draws
    ) -> None:
        self._spec, self._reduce, self._explorer = spec, reduce, explorer

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        return self._explorer.sample(self._reduce(self._spec.of_members(parameters), rng), rng)


class MemberOfEpisode:
    """The values of one member of an ensemble, drawn anew for every episode of a row (Osband et al. 2016, algorithm 1).

    Attributes:
        members: int64 [B]. The member that each row follows.
    """

    def __init__(self, spec: EnsembleSpec, rows: ActorRows) -> None:
        self._count, self._rows = spec.members, rows
        self._episodes = np.full(rows.count, -1, np.int64)
        self.members: IntArray = np.zeros(rows.count, np.int64)

    def values(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the values of every row's member, float32 [B, K, n] -> [B, n]."""
        (begun,) = np.nonzero(self._rows.episodes != self._episodes)
        if begun.size:
            self.members[begun] = rng.integers(self._count, size=begun.size)
            self._episodes[:] = self._rows.episodes
        of_rows: FloatArray = values[np.arange(len(values)), self.members]
        return of_rows


class EpsilonGreedyMixture:
    """Any other action: one toss for all of its numbers decides between the policy and chance.

    Log-probabilities are those of the mixture, ``log((1 - eps) p(a) + eps u(a))``, whichever of the two drew a.
    """

    def __init__(self, epsilon: NextEpsilon, spec: FamilySpec, action: ActionSpec) -> None:
        self._epsilon = epsilon
        self._sampler = spec.sampler()
        self._uniform = uniform_of(action, spec)

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        epsilon = self._epsilon(rng)
        actions, log_probabilities = self._sampler.sample(parameters, rng)
        (explored,) = np.nonzero(rng.random(len(parameters), np.float32) < epsilon)
        if explored.size:
            of_explored = parameters[explored]
            drawn, _ = self._uniform.sample(of_explored, rng)
            actions[explored] = drawn
            log_probabilities[explored] = self._sampler.log_probability(of_explored, drawn)
        with np.errstate(divide="ignore"):  # log 0: never, or always
            log_epsilon, log_rest = np.log(epsilon), np.log1p(-epsilon)
        uniform = log_epsilon + self._uniform.log_probability(parameters, actions)
        return actions, np.logaddexp(log_rest + log_probabilities, uniform)


class UniformChoices:
    """Choices and switches: the distribution itself with equal logits, where the policy's are not masked."""

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


class UniformNumbers:
    """Real numbers between finite bounds, `inset` of the distance between them inside."""

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


def random_of(action: ActionSpec, spec: FamilySpec) -> Draws:
    """Return the explorer that takes uniformly random actions, see `uniform_of`."""
    if isinstance(spec, EnsembleSpec):  # its members differ in values, not in the choices that are allowed
        return OfEnsemble(spec, lambda values, rng: mean_values(values), UniformChoices(spec.one))
    return uniform_of(action, spec)


def uniform_of(action: ActionSpec, spec: FamilySpec) -> UniformChoices | UniformNumbers:
    """Return the sampler of uniformly random actions; real numbers must have finite bounds.

    If the policy stays strictly inside the bounds, so do these: it could not have taken others.
    """
    return UniformNumbers(action, spec.edge) if isinstance(action, BoxSpec) else UniformChoices(spec)


def explorer_of(parameters: ActionExploration, spec: FamilySpec, action: ActionSpec, rows: ActorRows) -> Draws:
    """Return the explorer of one action, of any kind but `policy`."""
    match parameters:
        case EpsilonGreedyParameters(epsilon=source) if spec.is_one_choice:
            return EpsilonGreedyChoice(epsilon_of(source, rows), spec)
        case EpsilonGreedyParameters(epsilon=source):
            return EpsilonGreedyMixture(epsilon_of(source, rows), spec, action)
        case MemberParameters(epsilon=source) | UcbParameters(epsilon=source):
            assert isinstance(spec, EnsembleSpec)  # `check_exploration` has refused these on any other
            reduce = MemberOfEpisode(spec, rows).values
            if isinstance(parameters, UcbParameters):
                reduce = partial(_bounds, parameters.deviations)
            return OfEnsemble(spec, reduce, EpsilonGreedyChoice(epsilon_of(source, rows), spec.one))
        case BoltzmannParameters(temperature=temperature):
            return Boltzmann(temperature, spec, rows)
        case TruncatedGaussianNoiseParameters(stddev=stddev):
            assert isinstance(action, BoxSpec)  # `check_exploration` has refused noise on any other
            return TruncatedNoise(lambda: stddev.at(rows.progress), spec, action)
        case NoiseSection(unit=unit):
            assert isinstance(action, BoxSpec)  # as above
            return NoisyAction(_noise_of(parameters, action.n, rows), unit, spec, action)
        case _:
            return Greedy(spec)


def _bounds(deviations: float, values: FloatArray, rng: np.random.Generator) -> FloatArray:
    del rng
    return upper_bounds(values, deviations)


def _noise_of(
    parameters: GaussianNoiseParameters | OrnsteinUhlenbeckParameters | ConstantNoiseParameters,
    size: int,
    rows: ActorRows,
) -> Callable[[np.random.Generator], Array]:
    """Return the draw of the next noise; see `NoisyAction`."""
    match parameters:
        case GaussianNoiseParameters(mean=mean, stddev=stddev):
            return lambda rng: mean + stddev.at(rows.progress) * rng.standard_normal((rows.count, size))
        case OrnsteinUhlenbeckParameters():
            return OrnsteinUhlenbeck(parameters, size, rows).draw
        case ConstantNoiseParameters(value=value):
            return lambda rng: np.array(value)


def epsilon_of(source: Epsilon, rows: ActorRows) -> NextEpsilon:
    """Return how the next epsilon is found."""
    match source:
        case EpsilonLadder():
            steps = ladder(source, rows).astype(np.float32)
            return lambda rng: steps
        case EpsilonByEpisode():
            return lambda rng: (rng.random(rows.count) / (rows.episodes + 1)).astype(np.float32)
        case _:
            return lambda rng: np.array(source.at(rows.progress), np.float32)


def ladder(parameters: EpsilonLadder, rows: ActorRows) -> Array:
    """Return epsilon of each row of an actor, float64 [B] or []; ids beyond the configured actors begin anew."""
    actor = rows.actor % rows.actors  # as many ids in a row, from any one on, take all steps
    if parameters.over == "actors":
        count, place = rows.actors, np.asarray(actor)
    else:
        count, place = rows.actors * rows.count, actor * rows.count + np.arange(rows.count)
    height = place / max(count - 1, 1)  # one alone stands on the first step
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
