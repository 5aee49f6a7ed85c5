"""Baselines: random actions are spread over all that is allowed, constant ones are what was given."""

import numpy as np
import pytest

from distrl.actors.baselines import ConstantPolicy, MemorylessPolicy, OwnPolicy
from distrl.actors.evaluator import Evaluator
from distrl.config.environment import EnvironmentConfig
from distrl.environments.random_actions import RandomActions
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec

SPECS = {
    "arm": DiscreteSpec(3, start=5),
    "choices": MultiDiscreteSpec((2, 4), (0, 0)),
    "switches": MultiBinarySpec((2, 2)),
    "point": BoxSpec((2,), (-1.0, 0.0), (1.0, 4.0)),
    "free": BoxSpec((1,), (None,), (None,)),
}
VALUES = {"arm": 2, "choices": [1, 3], "switches": [[0, 1], [1, 0]], "point": [0.5, 3.5], "free": -7.25}
ROWS = {"observation": np.zeros((4, 1), np.float32)}


@pytest.mark.row("G33")
def test_constant_returns_the_given_values_for_every_environment():
    policy = ConstantPolicy(SPECS, VALUES)
    actions, state = policy.choose(ROWS, policy.initial_state(4))
    assert state == {}
    told = {name: (array.dtype.name, array.tolist()) for name, array in actions.items()}
    assert told == {
        "arm": ("int32", [2] * 4),
        "choices": ("int32", [[1, 3]] * 4),
        "switches": ("int32", [[0, 1, 1, 0]] * 4),
        "point": ("float32", [[0.5, 3.5]] * 4),
        "free": ("float32", [[-7.25]] * 4),
    }


@pytest.mark.row("G33")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arm": None}, "action arm has no value; each of arm, choices, switches, point, free needs one"),
        ({"other": 1}, "there is no action other; there are arm, choices, switches, point, free"),
        ({"arm": 3}, "action arm takes 0 … 2, not 3"),
        ({"arm": -1}, "action arm takes 0 … 2, not -1"),
        ({"arm": 0.5}, "action arm takes 0 … 2, not 0.5"),
        ({"arm": "left"}, "action arm takes numbers, not 'left'"),
        ({"arm": [1, 2]}, "action arm takes 1 finite number, not [1, 2]"),
        ({"choices": [2, 0]}, "action choices takes 0 … 1, 0 … 3, not [2, 0]"),
        ({"switches": [0, 1, 2, 0]}, "action switches takes 0 … 1, 0 … 1, 0 … 1, 0 … 1, not [0, 1, 2, 0]"),
        ({"point": [1.0, float("nan")]}, "action point takes 2 finite numbers, not [1.0, nan]"),
    ],
)
def test_what_no_action_can_be_is_refused(change, message):
    values = {name: value for name, value in {**VALUES, **change}.items() if value is not None}
    with pytest.raises(ConfigError) as caught:
        ConstantPolicy(SPECS, values)
    assert str(caught.value) == f"constant policy: {message}"


@pytest.mark.row("G33")
def test_random_is_uniform_where_there_are_bounds():
    spec = EnvSpec("Many-v0", {"observation": ArraySpec((1,), "float32")}, SPECS)
    policy = MemorylessPolicy(RandomActions(spec, np.random.default_rng(1)))
    rows = {"observation": np.zeros((4000, 1), np.float32)}
    actions, _ = policy.choose(rows, {})
    assert np.bincount(actions["arm"]) / 4000 == pytest.approx([1 / 3] * 3, abs=0.04)
    assert np.bincount(actions["choices"][:, 1]) / 4000 == pytest.approx([1 / 4] * 4, abs=0.04)
    assert actions["switches"].mean(axis=0) == pytest.approx([0.5] * 4, abs=0.04)
    assert actions["point"].mean(axis=0) == pytest.approx([0.0, 2.0], abs=0.1)
    assert (actions["point"].min(), actions["point"].max(axis=0).round(1).tolist()) == (
        pytest.approx(-1.0, abs=0.01),
        [1.0, 4.0],
    )
    again, _ = MemorylessPolicy(RandomActions(spec, np.random.default_rng(1))).choose(rows, {})
    assert all((actions[name] == again[name]).all() for name in SPECS)


@pytest.mark.row("G33")
def test_a_baseline_is_worth_what_chance_is():
    """Chance names one of n = 4 symbols in four steps: 8 steps pay 2."""
    environment = VectorEnvironment(EnvironmentConfig(id="distrl.environments.worlds.toy:Identity"), 10)
    random = MemorylessPolicy(RandomActions(environment.spec, np.random.default_rng(0)))
    constant = ConstantPolicy(environment.spec.actions, {"action": 3})
    for policy in (random, constant):
        totals = [episode.total for episode in Evaluator(policy, environment).episodes(300, 0)]
        assert np.mean(totals) == pytest.approx(2.0, abs=0.25)  # standard error: 1.22 / sqrt(300) = 0.07
    environment.close()


class LeftThenRight:
    """A policy of a user's with a memory of its own."""

    def __init__(self):
        self._calls = 0

    def __call__(self, observations):
        self._calls += 1
        return np.full(len(observations), self._calls % 2)


def test_a_function_of_the_user_s_acts_for_all_environments_at_once():
    one = {"arm": SPECS["arm"]}
    policy = OwnPolicy(lambda observations: (observations[:, 0] > 0).astype(int), one, "--baseline m:f")
    actions, state = policy.choose({"observation": np.array([[-1.0], [2.0]], np.float32)}, policy.initial_state(2))
    assert (actions["arm"].dtype.name, actions["arm"].tolist(), state) == ("int32", [0, 1], {})
    several = OwnPolicy(
        lambda seen: {"arm": seen["a"][:, 0], "point": seen["b"]},
        {name: SPECS[name] for name in ("arm", "point")},
        "m:f",
    )
    seen = {
        "a": np.array([[1], [2]]),
        "b": np.array([[0.5, 9.0], [0.0, 1.0]]),
    }  # beyond its bounds: cut by the environment
    told = {name: array.tolist() for name, array in several.choose(seen, {})[0].items()}
    assert told == {"arm": [1, 2], "point": [[0.5, 9.0], [0.0, 1.0]]}
    own = OwnPolicy(LeftThenRight, one, "m:LeftThenRight")
    assert [own.choose(ROWS, {})[0]["arm"].tolist() for _ in range(2)] == [[1] * 4, [0] * 4]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.zeros(3), "m:f: action arm has shape (3,), 4 observations need (4,)"),
        (np.full(4, 3), "m:f: action arm takes 0 … 2, not [3.0, 3.0, 3.0, 3.0]"),
        (np.full(4, 0.5), "m:f: action arm takes 0 … 2, not [0.5, 0.5, 0.5, 0.5]"),
        (np.full(4, np.nan), "m:f: action arm is not finite"),
        ("left", "m:f: action arm is no array of numbers: could not convert string to float: 'left'"),
        ({"leg": np.zeros(4)}, "m:f: it returns actions leg, not arm"),
    ],
)
def test_what_a_function_of_the_user_s_may_not_return(returned, message):
    policy = OwnPolicy(lambda observations: returned, {"arm": SPECS["arm"]}, "m:f")
    with pytest.raises(ConfigError) as caught:
        policy.choose(ROWS, {})
    assert str(caught.value) == message


def test_a_function_of_the_user_s_that_raises_is_one_line():
    with pytest.raises(ConfigError, match=r"^m:f: it raises IndexError: list index out of range$"):
        OwnPolicy(lambda observations: [][0], {"arm": SPECS["arm"]}, "m:f").choose(ROWS, {})
    with pytest.raises(ConfigError, match=r"^m:f: it is 3, which is no function$"):
        OwnPolicy(3, {"arm": SPECS["arm"]}, "m:f")
