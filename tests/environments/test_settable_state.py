"""The state of an environment in this process is set as that of a remote one is: by the same function."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from distrl.environments.settable_state import set_state
from distrl.environments.worlds.toy import StepCounter
from distrl.errors import ConfigError, EnvironmentFailedError


class Settable(gymnasium.Env):
    """Observes x; every step adds 1."""

    def __init__(self):
        self.observation_space, self.action_space = Box(0.0, np.inf, (1,), np.float32), Discrete(2)
        self.x = 0

    def reset(self, *, seed=None, options=None):
        self.x = 0
        return np.float32([0]), {}

    def step(self, action):
        self.x += 1
        return np.float32([self.x]), 0.0, False, False, {}

    def set_state(self, x):
        if x < 0:
            raise ValueError("x is negative")
        self.x = x
        return None if x == 7 else np.float32([x])


@pytest.mark.row("M16")
def test_the_state_of_a_local_environment_is_set_beneath_its_wrappers():
    environment = gymnasium.wrappers.TimeLimit(Settable(), 5)
    environment.reset()
    assert set_state(environment, {"x": 3}).tolist() == [3.0]
    assert environment.step(0)[0].tolist() == [4.0]


@pytest.mark.row("M16")
@pytest.mark.parametrize(
    ("environment", "state", "error", "line"),
    [
        (Settable(), {"y": 3}, ConfigError, r"^set_state: got an unexpected keyword argument 'y'; it takes x$"),
        (Settable(), {}, ConfigError, r"^set_state: missing a required argument: 'x'; it takes x$"),
        (StepCounter(), {"x": 3}, ConfigError, "^this environment has no set_state$"),
        (Settable(), {"x": 7}, EnvironmentFailedError, "returned nothing; it must return the observation$"),
        (Settable(), {"x": -1}, ValueError, "^x is negative$"),
    ],
)
def test_a_state_that_cannot_be_set_is_one_line(environment, state, error, line):
    with pytest.raises(error, match=line):
        set_state(environment, state)
