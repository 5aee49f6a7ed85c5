"""Small environments whose every number can be computed by hand, for tests and for trying distrl out.

Name them as `distrl.environments.worlds.toy:Identity` and so on.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import VectorEnv

from distrl.environments.vectors.next_step import NextStepVector
from distrl.environments.worlds import counted
from distrl.types import Array, BoolArray, FloatArray


class Identity(counted.CountedEnv):
    """Reward 1 for repeating the observation, else 0; terminates after `length_steps`.

    The best return is `length_steps`, a random policy's mean is `length_steps / n`.
    """

    def __init__(self, n: int = 4, length_steps: int = 8) -> None:
        self.observation_space = Discrete(n)
        self.action_space = Discrete(n)
        self.reward_threshold = 0.95 * length_steps
        self._n = n
        self._length_steps = length_steps
        self._shown = np.int64(0)

    def _show(self) -> np.int64:
        self._shown = self.np_random.integers(self._n)
        return self._shown

    def _pay(self, action: np.int64) -> float:
        return float(action == self._shown)


class StepCounter(counted.CountedEnv):
    """Observes its own step counter, float32 [1]: 0 at reset, t after t steps; step t pays t. Actions change nothing.

    An episode ends at `terminate_at_steps`, at `truncate_at_steps`, or with both flags where they are equal.
    """

    def __init__(self, terminate_at_steps: int | None = 5, truncate_at_steps: int | None = None) -> None:
        self.observation_space = Box(0.0, np.inf, (1,), np.float32)
        self.action_space = Discrete(2)
        self.max_episode_steps = truncate_at_steps
        self._terminate_at_steps = terminate_at_steps
        self._truncate_at_steps = truncate_at_steps

    def _show(self) -> FloatArray:
        return np.full(1, self._steps, np.float32)

    def _pay(self, action: np.int64) -> float:
        return float(self._steps + 1)

    def _ends(self) -> tuple[bool, bool]:
        return self._steps == self._terminate_at_steps, self._steps == self._truncate_at_steps


class Bandit(counted.CountedEnv):
    """Episodes of one step: arm i pays 1 with probability `means[i]`, else 0. The observation is always [0]."""

    def __init__(self, means: Sequence[float] = (0.1, 0.5, 0.9)) -> None:
        self.observation_space = Box(0.0, 0.0, (1,), np.float32)
        self.action_space = Discrete(len(means))
        self.max_episode_steps = 1
        self._length_steps = 1
        self._means = tuple(means)

    def _show(self) -> FloatArray:
        return np.zeros(1, np.float32)

    def _pay(self, action: np.int64) -> float:
        return float(self.np_random.random() < self._means[action])


class MemoryCue(counted.CountedEnv):
    """A cue is shown at step 0 alone; at step `delay_steps`, the last, the action that names it pays 1.

    Without memory the best mean return is 1 / n, with memory it is 1. Observation: float32 [n + 1], the cue as one-hot
    (zeros after step 0) and the share of the episode that is over, so that remembering is all there is to learn.
    """

    vector_entry_point: ClassVar[type[VectorEnv[Any, Any, Any]]]

    def __init__(self, n: int = 2, delay_steps: int = 10) -> None:
        self.observation_space = Box(0.0, 1.0, (n + 1,), np.float32)
        self.action_space = Discrete(n)
        self.reward_threshold = 0.95
        self._n = n
        self._length_steps = delay_steps + 1
        self._cue = 0

    def _start(self) -> FloatArray:
        self._cue = int(self.np_random.integers(self._n))
        observation = self._show()
        observation[self._cue] = 1.0
        return observation

    def _show(self) -> FloatArray:
        observation = np.zeros(self._n + 1, np.float32)
        observation[-1] = self._steps / self._length_steps
        return observation

    def _pay(self, action: np.int64) -> float:
        return float(self._steps + 1 == self._length_steps and action == self._cue)


class MemoryCueVector(NextStepVector):
    """`MemoryCue`, `num_envs` at once. All episodes have one length, so the environments never fall out of step."""

    def __init__(self, num_envs: int, n: int = 2, delay_steps: int = 10) -> None:
        single = MemoryCue(n, delay_steps)
        super().__init__(num_envs, single.observation_space, single.action_space)
        self.reward_threshold = single.reward_threshold
        self._n = n
        self._delay_steps = delay_steps
        self._steps = 0
        self._cues = np.zeros(num_envs, np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return self._show(), {}

    def step(self, actions: Array) -> tuple[FloatArray, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        rewards = np.zeros(self.num_envs, np.float32)
        never = np.zeros(self.num_envs, np.bool_)
        if self._steps > self._delay_steps:
            return self._show(), rewards, never, never, {}
        last = self._steps == self._delay_steps
        if last:
            rewards[:] = actions == self._cues
        self._steps += 1
        return self._after(), rewards, np.full(self.num_envs, last), never, {}

    def _show(self) -> FloatArray:
        self._steps = 0
        self._cues = self.np_random.integers(self._n, size=self.num_envs)
        observations = self._after()
        observations[np.arange(self.num_envs), self._cues] = 1.0
        return observations

    def _after(self) -> FloatArray:
        observations = np.zeros((self.num_envs, self._n + 1), np.float32)
        observations[:, -1] = self._steps / (self._delay_steps + 1)
        return observations


MemoryCue.vector_entry_point = MemoryCueVector


class Reach(counted.CountedEnv):
    """Put a point on a target: a step pays ``-|action / scale - target|^2``, then the target moves.

    Actions are float32 [2] in [-scale, scale], targets are uniform in [-1, 1]. The best return is 0; never moving from
    the middle has the mean ``-2/3 length_steps``.
    """

    def __init__(self, scale: float = 2.0, length_steps: int = 8) -> None:
        self.observation_space = Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = Box(-scale, scale, (2,), np.float32)
        self.reward_threshold = -0.05 * length_steps
        self._scale = scale
        self._length_steps = length_steps

    def _show(self) -> FloatArray:
        self._target = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return self._target.copy()

    def _pay(self, action: FloatArray) -> float:
        return -float(np.square(action / self._scale - self._target).sum())


class Homing(counted.CountedEnv):
    """Bring a point home to 0: a step pays ``-|where the point was|``, and then the action moves it by up to `reach`.

    No action changes what its own step pays, so that a policy that does not look ahead learns nothing. The point starts
    uniform in [-1, 1] and stays there; a time limit ends episodes. Observation and action: float32 [1] in [-1, 1]. With
    the default reach the best mean return is ``-(1/2 + 1/8)``, that of never moving ``-length_steps / 2``.
    """

    def __init__(self, length_steps: int = 8, reach: float = 0.5) -> None:
        self.observation_space = Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.max_episode_steps = length_steps
        self._length_steps = length_steps
        self._reach = reach

    def _start(self) -> FloatArray:
        self._point = self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)
        return self._show()

    def _show(self) -> FloatArray:
        return self._point.copy()

    def _pay(self, action: FloatArray) -> float:
        reward = -float(np.abs(self._point).sum())
        self._point = np.clip(self._point + self._reach * action, -1.0, 1.0).astype(np.float32)
        return reward

    def _ends(self) -> tuple[bool, bool]:
        return False, self._steps >= self._length_steps


class Mixed(counted.CountedEnv):
    """Five actions of every kind at once, each to be put on a target of its own that the observation shows.

    A step pays the mean of the five `closeness` values, each in [0, 1]; the best return is `length_steps`. A mean of
    0.96 a step says that every one of the five is above 0.8. Observation: float32 [14]: one-hot of the symbol (3)
    and of both choices (2 + 3), the switches (2), the bounded point (2) and the free one (2).
    """

    def __init__(self, length_steps: int = 8) -> None:
        self.observation_space = Box(-1.0, 1.0, (14,), np.float32)
        self.action_space = Dict(
            {
                "symbol": Discrete(3, start=1),
                "choices": MultiDiscrete([2, 3]),
                "switches": MultiBinary(2),
                "bounded": Box(-1.0, 1.0, (2,), np.float32),
                "free": Box(-np.inf, np.inf, (1, 2), np.float64),
            }
        )
        self.reward_threshold = 0.9 * length_steps
        self._length_steps = length_steps

    def _pay(self, action: dict[str, Any]) -> float:
        closeness = self.closeness(action)
        return sum(closeness.values()) / len(closeness)

    def closeness(self, action: Mapping[str, Any]) -> dict[str, float]:
        """Each action against its target now: the share of choices that are right; ``exp(-|difference|^2)``."""
        right = {name: np.equal(action[name], self._targets[name]) for name in ("symbol", "choices", "switches")}
        apart = {name: np.ravel(action[name] - self._targets[name]) for name in ("bounded", "free")}
        return {name: np.count_nonzero(hits) / np.size(hits) for name, hits in right.items()} | {
            name: math.exp(-np.dot(difference, difference)) for name, difference in apart.items()
        }

    def _show(self) -> FloatArray:
        random = self.np_random
        symbol, two, three = (int(random.integers(n)) for n in (3, 2, 3))
        switches, points = random.integers(2, size=2), random.uniform(-1.0, 1.0, (2, 2))
        self._targets = {
            "symbol": 1 + symbol,
            "choices": np.array([two, three]),
            "switches": switches,
            "bounded": points[0],
            "free": points[1:],
        }
        shown = [np.eye(3)[symbol], np.eye(2)[two], np.eye(3)[three], switches, points.ravel()]
        return np.concatenate(shown).astype(np.float32)


class Masked(counted.CountedEnv):
    """Allows two of its `n` choices at a time, as a board game does, and raises at any other.

    Reward 1 for the greater of the two; terminates after `length_steps`. The best return is `length_steps`, that of
    random allowed choices half of it. The last observation of an episode allows nothing.

    Args:
        mask: Name of the observation that is 1 for an allowed choice.
    """

    def __init__(self, n: int = 6, length_steps: int = 8, mask: str = "action_mask") -> None:
        self.observation_space = Dict({mask: MultiBinary(n), "x": Box(0.0, 1.0, (2,), np.float32)})
        self.action_space = Discrete(n)
        self._n, self._length_steps, self._mask = n, length_steps, mask
        self._allowed = np.zeros(n, np.int8)

    def _pay(self, action: np.int64) -> float:
        if not self._allowed[action]:
            raise ValueError(f"action {action} is not allowed by {self._allowed}")
        return float(action == self._allowed.nonzero()[0].max())

    def _show(self) -> dict[str, Any]:
        self._allowed = np.zeros(self._n, np.int8)
        if self._steps < self._length_steps:
            self._allowed[self.np_random.choice(self._n, 2, replace=False)] = 1
        return {self._mask: self._allowed.copy(), "x": np.zeros(2, np.float32)}
