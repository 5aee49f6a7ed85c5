"""GridWorld: rewards, ends, both kinds of actions, random starts, and the deterministic MDP that it states."""

import numpy as np
import pytest
from gymnasium.spaces import Dict
from gymnasium.utils.env_checker import check_env

from distrl.config.environment import EnvironmentConfig
from distrl.environments.vector import VectorEnvironment
from distrl.environments.worlds.grid_maps import MAPS
from distrl.environments.worlds.grid_world import GridWorld
from distrl.errors import ConfigError

UP, RIGHT, DOWN, LEFT = (np.int64(action) for action in range(4))


def ftj(forward=0, turn=0, jump=0):
    return {"forward": np.int64(forward), "turn": np.int64(turn), "jump": np.int64(jump)}


def walk(environment, actions):
    """(state, reward, terminated) after each action."""
    return [tuple(environment.step(action)[:3]) for action in actions]


@pytest.mark.filterwarnings("ignore::UserWarning")  # the checker's style advice
@pytest.mark.parametrize("action_type", ["udlr", "ftj"])
@pytest.mark.parametrize("representation", ["discr", "xy", "cam"])
def test_keeps_gymnasium_s_contract(representation, action_type):
    environment = GridWorld("8x16", state_representation=representation, action_type=action_type)
    check_env(environment, skip_render_check=True)


@pytest.mark.row("M06")
def test_the_2x2_map_is_solved_in_two_steps():
    environment = GridWorld("2x2")
    assert environment.reset(seed=0) == (0, {})
    assert walk(environment, [DOWN, RIGHT]) == [(1, -1.0, False), (3, 1.0, True)]


@pytest.mark.row("M06")
@pytest.mark.parametrize("save_mode", [False, True])
def test_the_2x2_map_s_hole(save_mode):
    environment = GridWorld("2x2", save_mode=save_mode)
    environment.reset()
    assert walk(environment, [RIGHT]) == [(0, -1.0, False) if save_mode else (2, -5.0, True)]


@pytest.mark.row("M06")
def test_walking_into_a_wall_or_off_the_map_leaves_one_where_one_was():
    environment = GridWorld(["S W", "  G"])
    environment.reset()
    assert walk(environment, [UP, LEFT, RIGHT, RIGHT]) == [
        (0, -1, False),
        (0, -1, False),
        (2, -1, False),
        (2, -1, False),
    ]


@pytest.mark.row("M06")
@pytest.mark.parametrize(
    ("reward_function", "fire", "step", "goal"), [("sparse", -3.0, -1.0, 1.0), ("rich", -10.0, -1.0, 50.0)]
)
def test_fire_costs_as_long_as_one_stays_in_it_and_does_not_end_the_episode(reward_function, fire, step, goal):
    environment = GridWorld(["SF G"], reward_function=reward_function)
    environment.reset()
    rewards = [reward for _, reward, _ in walk(environment, [RIGHT, UP, RIGHT, RIGHT])]
    assert rewards == [fire, fire, step, goal]


@pytest.mark.parametrize("limit", [3, None])
def test_an_episode_without_an_end_is_truncated_at_the_limit(limit):
    environment = GridWorld("4x4", max_episode_steps=limit)
    assert environment.max_episode_steps == limit
    for _ in range(2):
        environment.reset()
        flags = [environment.step(UP)[2:4] for _ in range(3)]
        assert flags == [(False, False), (False, False), (False, limit is not None)]


@pytest.mark.row("M08")
def test_ftj_actions_are_a_dict_of_three():
    space = GridWorld(action_type="ftj").action_space
    assert isinstance(space, Dict)
    assert {name: (part.start, part.n) for name, part in space.items()} == {
        "forward": (-1, 3),
        "turn": (-1, 3),
        "jump": (0, 2),
    }


@pytest.mark.row("M08")
def test_a_jump_over_a_hole_lands_two_ahead():
    environment = GridWorld(["SH G"], action_type="ftj", state_representation="xy")
    environment.reset()
    (state, reward, terminated), goal = walk(environment, [ftj(turn=1, jump=1), ftj(forward=1)])
    assert (state.tolist(), reward, terminated) == ([2, 0, 1, 0], -1.0, False)
    assert (goal[0].tolist(), *goal[1:]) == ([3, 0, 1, 0], 1.0, True)


@pytest.mark.row("M08")
@pytest.mark.parametrize(
    ("world", "action", "landed", "reward"),
    [
        (["SH G"], ftj(turn=1, forward=1), (1, 0), -5.0),  # walking falls into the hole
        (["SF G"], ftj(turn=1, jump=1), (2, 0), -1.0),  # over fire
        (["SW G"], ftj(turn=1, jump=1), (2, 0), -1.0),  # over a wall
        (["S FG"], ftj(turn=1, jump=1), (2, 0), -3.0),  # into fire
        (["S HG"], ftj(turn=1, jump=1), (2, 0), -5.0),  # into a hole
        (["S WG"], ftj(turn=1, jump=1), (0, 0), -1.0),  # onto a wall: stays
        (["S G "], ftj(turn=-1, jump=1), (0, 0), -1.0),  # off the map: stays
        (["S G "], ftj(turn=1, jump=1, forward=-1), (2, 0), 1.0),  # a jump replaces the walk
    ],
)
def test_where_jumps_land(world, action, landed, reward):
    environment = GridWorld(world, action_type="ftj")
    environment.reset()
    assert walk(environment, [action])[0][1] == reward
    assert environment.get_position() == landed


@pytest.mark.row("M08")
def test_turns_come_before_walking_and_backward_keeps_the_face():
    environment = GridWorld(["   ", " S ", "  G"], action_type="ftj", state_representation="xy", render_mode="ansi")
    environment.reset()
    actions = [ftj(forward=1), ftj(turn=1), ftj(forward=1), ftj(forward=-1), ftj(turn=-1, forward=-1), ftj(turn=-1)]
    seen = [state.tolist() for state, _, _ in walk(environment, actions)]
    assert seen == [[1, 0, 0, -1], [1, 0, 1, 0], [2, 0, 1, 0], [1, 0, 1, 0], [1, 1, 0, -1], [1, 1, -1, 0]]
    assert environment.render() == "   \n < \n  G"


@pytest.mark.row("M07")
@pytest.mark.parametrize("action_type", ["udlr", "ftj"])
def test_a_random_start_is_never_on_a_wall_a_hole_a_fire_or_a_goal(action_type):
    environment = GridWorld("8x16", randomize_start=True, action_type=action_type)
    starts = {environment.reset(seed=seed)[0] for seed in range(1500)}
    turns = 4 if action_type == "ftj" else 1
    free = {
        turns * (8 * x + y) + orientation
        for y, line in enumerate(MAPS["8x16"])
        for x, field in enumerate(line)
        if field in "S "
        for orientation in range(turns)
    }
    assert starts <= free
    assert len(starts) > 0.9 * len(free)
    assert environment.reset(options={"randomize": False})[0] == 0


@pytest.mark.row("M07")
def test_a_single_episode_can_start_anywhere():
    environment = GridWorld("16x16")
    assert [environment.reset(seed=seed)[0] for seed in range(3)] == [0, 0, 0]
    first, again = (environment.reset(seed=7, options={"randomize": True})[0] for _ in range(2))
    assert first == again != 0
    assert environment.reset()[0] == 0


@pytest.mark.row("M07")
@pytest.mark.parametrize("action_type", ["udlr", "ftj"])
def test_the_mdp_that_it_states_is_the_one_that_it_steps(action_type):
    environment = GridWorld("8x8", action_type=action_type, randomize_start=True, max_episode_steps=None)
    environment.action_space.seed(0)
    state, _ = environment.reset(seed=0)
    for _ in range(600):
        assert environment.get_discrete_pos() == state
        action = environment.action_space.sample()
        ((expected, probability),) = environment.get_possible_next_positions(state, action)
        state, _, terminated, _, _ = environment.step(action)
        assert (state, probability) == (expected, 1.0)
        if terminated:
            assert environment.get_possible_next_positions(state, action) == [(state, 1.0)]
            state, _ = environment.reset()


@pytest.mark.row("M07")
def test_positions_can_be_set():
    environment = GridWorld(["S W", "F G"])
    environment.reset()
    assert environment.get_dist_to_goal() == pytest.approx(np.sqrt(5))
    assert environment.set_discrete_pos(1) == 1
    assert (environment.get_position(), environment.get_discrete_pos()) == ((0, 1), 1)
    assert environment.get_dist_to_goal() == 2.0
    assert walk(environment, [RIGHT, RIGHT])[1] == (5, 1.0, True)
    assert environment.get_dist_to_goal() == 0.0
    for state, field in ((4, "W"), (5, "G")):
        with pytest.raises(ValueError, match=f"where a '{field}' is"):
            environment.set_discrete_pos(state)
    with pytest.raises(ValueError, match="no field 6"):
        environment.set_discrete_pos(6)


def test_the_nearest_of_several_goals_counts():
    environment = GridWorld("chain")
    environment.reset()
    assert environment.get_dist_to_goal() == 5.0
    environment.set_discrete_pos(8)
    assert environment.get_dist_to_goal() == 2.0


def test_what_people_see():
    image, text, nothing = (GridWorld("2x2", render_mode=mode) for mode in ("rgb_array", "ansi", None))
    for environment in (image, text, nothing):
        environment.reset()
    assert (image.render().shape, image.render()[0, 0].tolist()) == ((64, 64, 3), [0, 0, 255])
    assert text.render() == "XH\n G"
    assert nothing.render() is None


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"world": "3x3"}, "there is no map '3x3'"),
        ({"reward_function": "dense"}, "there is no 'dense'; there are sparse, rich"),
        ({"action_type": "nesw"}, "there is no 'nesw'; there are udlr, ftj"),
        ({"render_mode": "human"}, "there is no 'human'; there are None, rgb_array, ansi"),
    ],
)
def test_unknown_settings_are_refused_in_one_line(kwargs, message):
    config = EnvironmentConfig(id="distrl.environments.worlds.grid_world:GridWorld", kwargs=kwargs)
    with pytest.raises(ConfigError, match=message):
        VectorEnvironment(config, 1)


@pytest.mark.parametrize(("action_type", "action"), [("udlr", 4), ("ftj", ftj(forward=2)), ("ftj", 1)])
def test_an_action_outside_the_space_is_an_error(action_type, action):
    environment = GridWorld(action_type=action_type)
    environment.reset()
    with pytest.raises(ValueError, match="lies outside"):
        environment.step(action)


def test_both_kinds_of_actions_step_as_a_vector():
    for action_type, names in (("udlr", {"action"}), ("ftj", {"forward", "jump", "turn"})):
        kwargs = {"world": "2x2", "action_type": action_type, "state_representation": "cam"}
        environment = VectorEnvironment(
            EnvironmentConfig(id="distrl.environments.worlds.grid_world:GridWorld", kwargs=kwargs), 2
        )
        assert set(environment.spec.actions) == names
        assert environment.reset(0)["observation"].shape == (2, 2, 2, 3)
    # On the way choices are counted from 0: turn 2 is to the right, forward 2 ahead.
    actions = {"forward": [2, 1], "jump": [0, 0], "turn": [2, 0]}
    step = environment.step({name: np.array(values, np.int32) for name, values in actions.items()})
    assert step.terminated.tolist() == [True, False]
    assert step.rewards.tolist() == [-5.0, -1.0]
