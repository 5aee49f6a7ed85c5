"""Actions in [-1, 1], and which of them have such a scale."""

import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.networks.parts.action_scales import action_scales
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec


def spec(actions, observation="observation"):
    return EnvSpec("Arm-v0", {observation: ArraySpec((2,), "float32")}, actions)


def test_bounds_become_minus_1_and_1():
    (scale,) = action_scales(spec({"action": BoxSpec((2,), (-2.0, 0.0), (2.0, 10.0))}), "sac").values()
    given = np.array([[-2.0, 0.0], [0.0, 5.0], [1.0, 10.0]], np.float32)
    np.testing.assert_allclose(scale(given), [[-1.0, -1.0], [0.0, 0.0], [0.5, 1.0]])
    np.testing.assert_allclose(scale.half_width, [2.0, 5.0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (spec({"action": DiscreteSpec(2)}), "is discrete, which it does not take; use algorithm impala"),
        (
            spec({"action": BoxSpec((1,), (0.0,), (None,))}),
            "has no bounds; bound the environment's action space, or use algorithm impala",
        ),
        (
            spec({"action": BoxSpec((2,), (-1.0, 1.0), (1.0, 1.0))}),
            "has equal lower and upper bounds; remove such actions from the environment's space",
        ),
        (
            spec({"action": BoxSpec((1,), (0.0,), (1.0,))}, observation="action"),
            "and an observation are both called 'action'; rename one of them",
        ),
    ],
)
def test_what_has_no_scale_is_refused_by_name(given, message):
    with pytest.raises(ConfigError) as refused:
        action_scales(given, "sac")
    assert str(refused.value) == f"algorithm sac: action 'action' of Arm-v0 {message}"
