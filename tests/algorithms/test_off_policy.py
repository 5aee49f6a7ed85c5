"""Actions as critics see them: in [-1, 1]."""

import numpy as np
import pytest

from distrl.algorithms.off_policy import action_scales
from distrl.errors import ConfigError
from distrl.types import NARROWEST, WIDEST, ArraySpec, BoxSpec, EnvSpec
from tests.algorithms import arm


def spec(action, observation="observation"):
    return EnvSpec("Arm-v0", {observation: ArraySpec((2,), "float32")}, {"action": action})


def test_bounds_become_minus_1_and_1():
    (scale,) = action_scales(spec(BoxSpec((2,), (-2.0, 0.0), (2.0, 10.0))), "sac").values()
    given = np.array([[-2.0, 0.0], [0.0, 5.0], [1.0, 10.0]], np.float32)
    np.testing.assert_allclose(scale(given), [[-1.0, -1.0], [0.0, 0.0], [0.5, 1.0]])
    np.testing.assert_allclose(scale.half_width, [2.0, 5.0])


@pytest.mark.parametrize("name", ["sac", *(pytest.param(name, marks=pytest.mark.long) for name in ("td3", "naf"))])
@pytest.mark.parametrize("width", [NARROWEST, WIDEST])
def test_the_widest_and_the_narrowest_bounds_that_are_taken_can_be_learned_from(name, width):
    low, high = -0.25 * width, 0.75 * width
    algorithm, networks = arm.make(
        name, spec=EnvSpec("Arm-v0", arm.OBSERVATIONS, {"action": BoxSpec((1,), (low,), (high,))})
    )
    shares = np.linspace(0.0, 1.0, arm.N, dtype=np.float32)[None, :, None]
    batch = arm.transitions(actions={"action": (low + shares * width).astype(np.float32)})
    assert algorithm.update(networks, batch).metrics["finite"]
    (spec,) = networks["main"].online.actions.values()
    rows, output = {"observation": batch.observations["observation"][0]}, getattr(spec, "output", "policy/action")
    parameters = networks["main"].online.predict(rows, [output])
    actions, log_probabilities = spec.sampler().sample(parameters, np.random.default_rng(0))
    assert ((actions >= np.float32(low)) & (actions <= np.float32(high))).all()
    assert np.isfinite(log_probabilities).all()


def test_an_observation_of_the_same_name_is_refused():
    with pytest.raises(ConfigError) as refused:
        action_scales(spec(BoxSpec((1,), (0.0,), (1.0,)), observation="action"), "sac")
    assert str(refused.value) == (
        "algorithm sac: action 'action' of Arm-v0 and an observation are both called 'action'; rename one of them"
    )
