import math

import numpy as np
from gymnasium.utils.env_checker import check_env

from benchmarks.fitting import Fitting


def test_the_reward_is_the_squared_distance_from_the_formula():
    environment = Fitting()
    (x, y), _ = environment.reset(seed=3)
    named = math.sin(3.0 * x) * math.cos(2.0 * y)
    _, reward, terminated, truncated, _ = environment.step(np.array([named], np.float32))
    assert (abs(reward) < 1e-12, terminated, truncated) == (True, True, False)
    environment.reset(seed=3)
    assert abs(environment.step(np.array([named + 0.5], np.float32))[1] + 1.0) < 1e-6
    check_env(environment, skip_render_check=True)
