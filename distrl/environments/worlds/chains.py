"""Worlds on a line, whose values are sums that can be written down: a corridor, and chains."""

from typing import Literal

import numpy as np
from gymnasium.spaces import Box, Discrete

from distrl.environments.worlds import counted


class Corridor(counted.CountedEnv):
    """Walk to the right end: action 1 goes right, 0 left; every step pays -1, and arriving terminates.

    The agent starts at 0 and is to reach `length - 1`; at 0 there is a wall. Observed is where it stands.

    Solution: always right. From position s that takes ``n = length - 1 - s`` steps, so with the discount γ

        V(s) = -(1 - γ^n) / (1 - γ),   and undiscounted -n: the best return is -(length - 1).
    """

    def __init__(self, length: int = 8, max_episode_steps: int | None = 200) -> None:
        if length < 2:
            raise ValueError(f"a corridor has a start and an end; its length is {length}")
        self.observation_space = Discrete(length)
        self.action_space = Discrete(2)
        self.reward_threshold = -1.25 * (length - 1)
        self.max_episode_steps = max_episode_steps
        self._goal = length - 1
        self._position = 0

    def _start(self) -> np.int64:
        self._position = 0
        return self._show()

    def _show(self) -> np.int64:
        return np.int64(self._position)

    def _pay(self, action: np.int64) -> float:
        self._position = max(0, self._position + (1 if action == 1 else -1))
        return -1.0

    def _ends(self) -> tuple[bool, bool]:
        truncated = self.max_episode_steps is not None and self._steps >= self.max_episode_steps
        return self._position == self._goal, truncated


class Chain(counted.CountedEnv):
    """Five states that follow each other whatever the action: 0, 1, 2, 3, 4, then 2, 3, 4 for ever.

    Leaving state s pays ``REWARDS[s]``: 1, 0, 2, 0, 4. Episodes start in state 0 and end after `steps` steps, at first
    in state 2. `end` says what that means, and nothing else differs:

    - ``time_limit``: it is truncated. The limit is no part of the task, so values are those of the endless chain
      (Pardo et al. 2018, arXiv:1712.00378), whether or not a state tells how many steps are left:

          V(2) = (2 + 4γ²) / (1 - γ³),   V(3) = 4γ + γ² V(2),   V(4) = 4 + γ V(2),
          V(1) = γ V(2),                  V(0) = 1 + γ V(1)

    - ``termination``: there is nothing beyond. With 5 steps no state is seen twice, so that the state tells the time
      and its value is the sum of what is still to come:

          V(4) = 4,   V(3) = 4γ,   V(2) = 2 + 4γ²,   V(1) = γ V(2),   V(0) = 1 + γ V(1)

    With γ = 0.99, in the order of states: 196.37, 197.34, 199.33, 199.33, 201.34; and 6.80, 5.86, 5.92, 3.96, 4.00.

    A learner that takes an end for the other gets the other values. One that bootstraps from the first observation of
    the next episode, state 0, in place of the true final one, state 2, gets neither.
    """

    REWARDS = (1.0, 0.0, 2.0, 0.0, 4.0)

    def __init__(self, end: Literal["time_limit", "termination"] = "time_limit", steps: int = 5) -> None:
        if end not in ("time_limit", "termination"):
            raise ValueError(f"an episode ends by time_limit or by termination, not by {end!r}")
        self.observation_space = Discrete(5)
        self.action_space = Discrete(2)
        self.max_episode_steps = steps if end == "time_limit" else None
        self._terminates = end == "termination"
        self._length_steps = steps
        self._state = 0

    def _start(self) -> np.int64:
        self._state = 0
        return self._show()

    def _show(self) -> np.int64:
        return np.int64(self._state)

    def _pay(self, action: np.int64) -> float:
        reward = self.REWARDS[self._state]
        self._state = self._state + 1 if self._state < 4 else 2
        return reward

    def _ends(self) -> tuple[bool, bool]:
        over = self._steps >= self._length_steps
        return over and self._terminates, over and not self._terminates


class ExplorationChain(counted.CountedEnv):
    """A chain whose large reward lies far away from a small one (Osband et al. 2016, arXiv:1602.04621, section 5.1).

    Action 0 goes left, 1 right. Every step that ends at the left end pays .001, at the right end 1, elsewhere 0. The
    agent starts at state 1, and the episode is truncated after `max_steps`.

    Solution: always right. It arrives after ``length - 2`` steps and stays: the return is
    ``max_steps - length + 3``. Actions drawn at random seldom arrive: of 20 states in one of 1,650 episodes.

    Args:
        length: Number of states, at least 4.
        max_steps: Steps of an episode; by default ``length + 9``, as in the paper.
        thermometer: States are shown as 1 up to where the agent stands and 0 beyond; False: 1 there alone.
    """

    def __init__(self, length: int = 16, max_steps: int | None = None, thermometer: bool = True) -> None:
        if length < 4:
            raise ValueError(
                f"length: {length}; the chain has at least 4 states, of which the agent starts in the second"
            )
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"max_steps: {max_steps}; an episode has at least 1 step")
        self.observation_space = Box(0.0, 1.0, (length,), np.float32)
        self.action_space = Discrete(2)
        self.max_episode_steps = self._length_steps = length + 9 if max_steps is None else max_steps
        self.reward_threshold = float(self._length_steps - length + 3)
        shown = np.tri(length, dtype=np.float32) if thermometer else np.eye(length, dtype=np.float32)
        self._shown = shown
        self._state = 1

    def _start(self) -> np.ndarray:
        self._state = 1
        return self._show()

    def _show(self) -> np.ndarray:
        shown: np.ndarray = self._shown[self._state].copy()
        return shown

    def _pay(self, action: np.int64) -> float:
        last = len(self._shown) - 1
        self._state = min(max(self._state + (1 if action == 1 else -1), 0), last)
        return 1.0 if self._state == last else 0.001 if self._state == 0 else 0.0

    def _ends(self) -> tuple[bool, bool]:
        return False, self._steps >= self._length_steps
