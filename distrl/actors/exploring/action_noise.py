"""Noise on actions of real numbers: on the policy's best action, cut to the action's bounds.

No probabilities are told: where the bounds cut, there is no density.
"""

from typing import Protocol

import numpy as np

from distrl.config.exploration import (
    ConstantNoiseParameters,
    GaussianNoiseParameters,
    NoiseSection,
    OrnsteinUhlenbeckParameters,
)
from distrl.networks.actions import FamilySpec
from distrl.types import Array, BoolArray, BoxSpec, FloatArray


class NoiseProcess(Protocol):
    """Where noise comes from, float64 [B, n], in whatever unit."""

    def reset(self) -> None:
        """As at first, with every environment at an episode's start."""

    def move_to(self, env_steps: int) -> None:
        """All actors together have made so many environment steps."""

    def begin_episodes(self, begun: BoolArray) -> None:
        """A new episode begins where `begun`, bool [B]."""

    def draw(self, rng: np.random.Generator) -> Array:
        """The next noise."""


class NoisyAction:
    """The policy's best action, noise, and the bounds. Log-probabilities are 0: there are none.

    Args:
        parameters: One of the kinds of noise.
        spec: What the policy's outputs mean.
        action: Its bounds.
        environments: B.
    """

    def __init__(self, parameters: NoiseSection, spec: FamilySpec, action: BoxSpec, environments: int) -> None:
        self._sampler = spec.sampler()
        self._process = _process(parameters, (environments, action.n))
        low = np.array([-np.inf if bound is None else bound for bound in action.low])
        high = np.array([np.inf if bound is None else bound for bound in action.high])
        self._scale = high - low if parameters.unit == "range" else np.ones(action.n)
        # Where the policy keeps inside the bounds, so does the noise.
        margin = spec.edge * (high - low) if spec.edge else 0.0
        self._low, self._high = (low + margin).astype(np.float32), (high - margin).astype(np.float32)

    def reset(self) -> None:
        self._process.reset()

    def move_to(self, env_steps: int) -> None:
        self._process.move_to(env_steps)

    def begin_episodes(self, begun: BoolArray) -> None:
        self._process.begin_episodes(begun)

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        noise = (self._scale * self._process.draw(rng)).astype(np.float32)
        actions = np.minimum(np.maximum(self._sampler.mode(parameters) + noise, self._low), self._high)
        return actions, np.zeros(len(parameters), np.float32)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        return np.zeros(len(parameters), np.float32)

    def mode(self, parameters: FloatArray) -> Array:
        return self._sampler.mode(parameters)


class _Independent:
    """Noise that remembers nothing."""

    def reset(self) -> None:
        """It begins anew at every step."""

    def begin_episodes(self, begun: BoolArray) -> None:
        """It begins anew at every step."""

    def move_to(self, env_steps: int) -> None:
        """It stays the same."""


class ConstantNoise(_Independent):
    """The same value all the time."""

    def __init__(self, parameters: ConstantNoiseParameters, shape: tuple[int, int]) -> None:
        self._noise = np.full(shape, parameters.value)

    def draw(self, rng: np.random.Generator) -> Array:
        return self._noise


class GaussianNoise(_Independent):
    """Independent normal noise."""

    def __init__(self, parameters: GaussianNoiseParameters, shape: tuple[int, int]) -> None:
        self._mean, self._schedule, self._shape = parameters.mean, parameters.stddev, shape
        self.move_to(0)

    def move_to(self, env_steps: int) -> None:
        self._stddev = self._schedule.at(env_steps)

    def draw(self, rng: np.random.Generator) -> Array:
        return self._mean + self._stddev * rng.standard_normal(self._shape)


class OrnsteinUhlenbeck:
    """``x += theta (mean - x) dt + sigma sqrt(dt) N(0, 1)``, from 0 in every episode (Lillicrap et al. 2016)."""

    def __init__(self, parameters: OrnsteinUhlenbeckParameters, shape: tuple[int, int]) -> None:
        self._mean = parameters.mean
        self._pull, self._push = parameters.theta * parameters.dt, parameters.sigma * parameters.dt**0.5
        self._shape = shape
        self.reset()

    def reset(self) -> None:
        self.state: Array = np.zeros(self._shape)

    def begin_episodes(self, begun: BoolArray) -> None:
        self.state[begun] = 0.0

    def move_to(self, env_steps: int) -> None:
        """It stays the same."""

    def draw(self, rng: np.random.Generator) -> Array:
        moved = self._pull * (self._mean - self.state) + self._push * rng.standard_normal(self._shape)
        self.state = self.state + moved
        return self.state


def _process(parameters: NoiseSection, shape: tuple[int, int]) -> NoiseProcess:
    match parameters:
        case GaussianNoiseParameters():
            return GaussianNoise(parameters, shape)
        case OrnsteinUhlenbeckParameters():
            return OrnsteinUhlenbeck(parameters, shape)
        case ConstantNoiseParameters():
            return ConstantNoise(parameters, shape)
        case _:
            raise AssertionError(f"{parameters} is no noise")
