"""BitFlip, the toy of hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495, section 3.1)."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from numpy.typing import NDArray

Bits = NDArray[np.int8]


class BitFlip(gymnasium.Env[Any, Any]):
    """Flip `n` bits, one per step, until they are those of the goal: a step pays 0 if it gets there, else -1.

    State and goal are uniform and differ. Getting there terminates the episode, a limit truncates it. Random actions
    hardly ever get there, so that DQN without hindsight learns nothing from 14 bits on (figure 1). The best mean return
    is ``-(n / 2 / (1 - 2^-n) - 1)``, -4.005 with 10 bits; an episode that does not get there returns ``-n``.

    Observations follow gymnasium's convention for goals: a Dict of `observation` and `achieved_goal`, both the bits,
    and `desired_goal`. `info["is_success"]` is whether the step got there.

    Args:
        n: Number of bits.
        max_episode_steps: Limit of an episode; None: n; 0: no limit.
        mean_zero: Bits are shown as -1 and 1, not as 0 and 1.
    """

    def __init__(self, n: int = 10, max_episode_steps: int | None = None, mean_zero: bool = False) -> None:
        if n < 1:
            raise ValueError(f"n: {n} bits; there must be at least one")
        if max_episode_steps is not None and max_episode_steps < 0:
            raise ValueError(f"max_episode_steps: {max_episode_steps} is less than 0, which means no limit")
        limit = n if max_episode_steps is None else max_episode_steps
        self.max_episode_steps = limit or None
        self.reward_threshold = 1.0 - 0.55 * n
        self.action_space = Discrete(n)
        bits = Box(-1 if mean_zero else 0, 1, (n,), np.int8)
        self.observation_space = Dict({"observation": bits, "achieved_goal": bits, "desired_goal": bits})
        self._mean_zero = mean_zero
        self._state, self._goal = np.zeros(n, np.int8), np.ones(n, np.int8)
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Bits], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._steps = 0
        self._state = self.np_random.integers(2, size=len(self._state), dtype=np.int8)
        self._goal = self._state.copy()
        while np.array_equal(self._goal, self._state):
            self._goal = self.np_random.integers(2, size=len(self._state), dtype=np.int8)
        return self._observation(), {"is_success": False}

    def step(self, action: np.int64) -> tuple[dict[str, Bits], float, bool, bool, dict[str, Any]]:
        self._state[action] ^= 1
        self._steps += 1
        observation = self._observation()
        reward = float(self.compute_reward(observation["achieved_goal"], observation["desired_goal"], {}))
        arrived = reward == 0.0
        return observation, reward, arrived, self._steps == self.max_episode_steps, {"is_success": arrived}

    def compute_reward(self, achieved_goal: Bits, desired_goal: Bits, info: Any) -> NDArray[np.float32]:
        """Return the rewards of steps that achieved these goals and were to achieve those.

        Args:
            achieved_goal, desired_goal: [..., n].
            info: Unused; of gymnasium's convention.

        Returns:
            float32 [...]: 0 where they are equal, else -1.
        """
        return np.where((achieved_goal == desired_goal).all(axis=-1), np.float32(0.0), np.float32(-1.0))

    def _observation(self) -> dict[str, Bits]:
        bits, goal = self._shown(self._state), self._shown(self._goal)
        return {"observation": bits, "achieved_goal": bits.copy(), "desired_goal": goal}

    def _shown(self, bits: Bits) -> Bits:
        return 2 * bits - 1 if self._mean_zero else bits.copy()
