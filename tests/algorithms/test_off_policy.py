"""Actions as critics see them: in [-1, 1]."""

import numpy as np
import pytest

from distrl.algorithms.off_policy import action_scales
from distrl.errors import ConfigError
from distrl.types import ArraySpec, BoxSpec, EnvSpec


def spec(action, observation="observation"):
    return EnvSpec("Arm-v0", {observation: ArraySpec((2,), "float32")}, {"action": action})


def test_bounds_become_minus_1_and_1():
    (scale,) = action_scales(spec(BoxSpec((2,), (-2.0, 0.0), (2.0, 10.0))), "sac").values()
    given = np.array([[-2.0, 0.0], [0.0, 5.0], [1.0, 10.0]], np.float32)
    np.testing.assert_allclose(scale(given), [[-1.0, -1.0], [0.0, 0.0], [0.5, 1.0]])
    np.testing.assert_allclose(scale.half_width, [2.0, 5.0])


def test_an_observation_of_the_same_name_is_refused():
    with pytest.raises(ConfigError) as refused:
        action_scales(spec(BoxSpec((1,), (0.0,), (1.0,)), observation="action"), "sac")
    assert str(refused.value) == (
        "algorithm sac: action 'action' of Arm-v0 and an observation are both called 'action'; rename one of them"
    )
