"""An environment of every kind of space, which remembers its episodes."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

LOG = []
"""Episodes in the order in which they ended; open ones come at their place once they have."""
NUMBERS = Box(-1.0, 1.0, (3,), np.float32)
SPACES = {
    "plain": (NUMBERS, Discrete(3, start=2)),
    "vector": (NUMBERS, Box(-1.0, 1.0, (2,), np.float32)),
    "image": (Box(0, 255, (8, 6, 3), np.uint8), Discrete(2)),
    "masked": (Dict({"numbers": NUMBERS, "mask": MultiBinary(3)}), Discrete(3)),
    "goal": (Dict({"observation": NUMBERS, "achieved_goal": NUMBERS, "desired_goal": NUMBERS}), NUMBERS),
    "nested": (
        Tuple((Discrete(4, start=1), Dict({"deep": NUMBERS, "words": Text(5)}))),
        Dict({"push": Box(-2.0, 2.0, (2,), np.float64), "keys": Tuple((MultiDiscrete([2, 3]), MultiBinary(2)))}),
    ),
}


class Logged:
    """One episode: lists of observations, actions and rewards, and how it ended."""

    def __init__(self, first):
        self.observations, self.actions, self.rewards = [first], [], []
        self.terminated = self.over = False


class LoggedEnv(gymnasium.Env):
    """Episodes of 1 to 6 steps; every other one of an environment is cut off."""

    def __init__(self, kind="plain"):
        self.observation_space, self.action_space = SPACES[kind]
        self._episodes = 0

    def _observation(self):
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(1, 7))
        self._episodes += 1
        self._log = Logged(self._observation())
        return self._log.observations[-1], {}

    def step(self, action):
        self._left -= 1
        over, log = self._left == 0, self._log
        log.actions.append(action if isinstance(action, dict) else np.array(action))
        log.rewards.append(float(self.np_random.normal()))
        log.observations.append(self._observation())
        log.terminated = over and self._episodes % 2 == 1
        if over:
            log.over = True
            LOG.append(log)
        return log.observations[-1], log.rewards[-1], log.terminated, over and not log.terminated, {}
