"""Hindsight without goals, or with items whose rewards are not of one goal, is refused in one line."""

import pytest

from distrl.config.hindsight import check_goals
from distrl.config.load import load
from distrl.errors import ConfigError
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, OneHot

GOAL = ArraySpec((3,), "float32")


def spec_of(**observations):
    return EnvSpec("Task-v0", observations, {"action": DiscreteSpec(2)})


def test_the_defaults_are_the_papers():
    """Section 4.4: future with k = 4; rewards of section 3.2."""
    hindsight = load(sets=["algorithm.name=dqn", "algorithm.replay.hindsight={}"]).config.algorithm.replay.hindsight
    assert (hindsight.strategy, hindsight.ratio, hindsight.terminates) == ("future", 4.0, False)
    assert (hindsight.reward.kind, hindsight.reward.reached, hindsight.reward.otherwise) == ("sparse", 0.0, -1.0)


@pytest.mark.parametrize("name", ["dqn", "c51", "qrdqn", "sac", "td3", "rainbow", "apex"])
def test_every_algorithm_that_learns_from_transitions_has_it(name):
    sets = [f"algorithm.name={name}", "algorithm.replay={item: {n_step: 1}, hindsight: {strategy: final}}"]
    assert load(sets=sets).config.algorithm.replay_parameters.hindsight.strategy == "final"


@pytest.mark.parametrize(
    ("sets", "reason"),
    [
        (
            ["algorithm.name=apex", "algorithm.replay.hindsight={}"],
            "hindsight: the rewards of item.n_step: 3 steps are summed for one goal; set item.n_step to 1, or "
            "hindsight to null",
        ),
        (
            ["algorithm.name=dqn", "algorithm.replay={item: {kind: sequence}, hindsight: {}}"],
            "hindsight: it gives single transitions another goal, and item.kind is sequence; use transition, or set "
            "hindsight to null",
        ),
        (
            ["algorithm.name=dqn", "algorithm.replay={item: {terminations: false}, hindsight: {}}"],
            "hindsight: transitions with another goal may terminate, and item.terminations: false leaves out those "
            "that do; set item.terminations to true, or hindsight to null",
        ),
        (
            ["algorithm.name=ppo", "algorithm.replay.hindsight={}"],
            "unknown key algorithm.replay .*; only kind acer or dqn",
        ),
        (["algorithm.name=dqn", "algorithm.replay.hindsight.ratio=0"], "hindsight.ratio: 0 .* must be greater than 0"),
        (
            ["algorithm.name=dqn", "algorithm.replay.hindsight.reward={kind: function, function: mine}"],
            "hindsight.reward.function: 'mine'",
        ),
    ],
)
def test_what_cannot_be_relabelled_is_refused(sets, reason):
    with pytest.raises(ConfigError, match=reason) as error:
        load(sets=sets)
    assert "\n" not in str(error.value)


def test_goals_fit():
    check_goals(spec_of(achieved_goal=GOAL, desired_goal=ArraySpec((3,), "float32", -1.0, 1.0)))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (
            spec_of(observation=GOAL),
            "environment Task-v0 has no observation 'achieved_goal', only observation; set hindsight to null, or use "
            "an environment with goals: a Dict of observation, achieved_goal and desired_goal",
        ),
        (
            spec_of(achieved_goal=GOAL, observation=GOAL),
            "environment Task-v0 has no observation 'desired_goal', only achieved_goal, observation; set hindsight to "
            "null, or use an environment with goals: a Dict of observation, achieved_goal and desired_goal",
        ),
        (
            spec_of(achieved_goal=GOAL, desired_goal=ArraySpec((2,), "float32")),
            "environment Task-v0: achieved_goal is float32 [3], desired_goal is float32 [2]; one must be able to take "
            "the place of the other",
        ),
        (
            spec_of(achieved_goal=GOAL, desired_goal=ArraySpec((3,), "int8")),
            "environment Task-v0: achieved_goal is float32 [3], desired_goal is int8 [3]; one must be able to take "
            "the place of the other",
        ),
        (
            spec_of(
                achieved_goal=ArraySpec((2,), "uint8", 0.0, 4.0, one_hot=OneHot((2,), (5, 3), (0, 0))),
                desired_goal=ArraySpec((2,), "uint8", 0.0, 4.0, one_hot=OneHot((2,), (3, 5), (0, 0))),
            ),
            "environment Task-v0: achieved_goal is of choices [5, 3] from [0, 0], desired_goal is of choices [3, 5] "
            "from [0, 0]; one must be able to take the place of the other",
        ),
        (
            spec_of(
                achieved_goal=ArraySpec((1,), "uint8", 0.0, 4.0, one_hot=OneHot((), (5,), (0,))),
                desired_goal=ArraySpec((1,), "uint8", 0.0, 4.0, one_hot=OneHot((), (5,), (1,))),
            ),
            "environment Task-v0: achieved_goal is of choices [5] from [0], desired_goal is of choices [5] from [1]; "
            "one must be able to take the place of the other",
        ),
        (
            spec_of(**dict.fromkeys(("achieved_goal", "desired_goal"), ArraySpec((3,), "float32", frames=3))),
            "environment Task-v0: achieved_goal is a stack of 3; stack other observations",
        ),
    ],
)
def test_an_environment_without_goals_is_refused(spec, reason):
    with pytest.raises(ConfigError) as error:
        check_goals(spec)
    assert str(error.value) == f"algorithm.replay.hindsight: {reason}"
