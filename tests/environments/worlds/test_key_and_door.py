"""KeyAndDoor: numbers as its docstring says."""

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from distrl.environments.worlds.key_and_door import KeyAndDoor

UP, RIGHT, DOWN, LEFT = range(4)


@pytest.mark.filterwarnings("ignore::UserWarning")  # the checker's style advice
@pytest.mark.parametrize("kwargs", [{}, {"size": 2, "max_episode_steps": 3}])
def test_keeps_gymnasium_s_contract(kwargs):
    check_env(KeyAndDoor(**kwargs), skip_render_check=True)


@pytest.mark.row("D175")
def test_the_shortest_way_pays_1_at_its_end():
    environment = KeyAndDoor()
    environment.reset()
    told = [environment.step(action) for action in [RIGHT] * 9 + [UP] * 9 + [LEFT] * 9]
    assert [step[1] for step in told] == [0.0] * 26 + [1.0]
    assert [step[2] for step in told] == [False] * 26 + [True]
    assert [step[0][2] for step in told] == [0.0] * 17 + [1.0] * 10
    np.testing.assert_allclose(told[-1][0], [0.0, 1.0, 1.0])


def test_without_the_key_the_door_is_a_field():
    environment = KeyAndDoor(size=2, max_episode_steps=5)
    environment.reset()
    seen, reward, terminated, truncated, _ = environment.step(UP)
    assert (seen.tolist(), reward, terminated, truncated) == ([0.0, 1.0, 0.0], 0.0, False, False)
    assert environment.step(UP)[0].tolist() == [0.0, 1.0, 0.0]  # a wall
    assert environment.step(RIGHT)[0].tolist() == [1.0, 1.0, 1.0]
    assert environment.step(DOWN)[0].tolist() == [1.0, 0.0, 1.0]
    assert environment.step(LEFT)[1:4] == (0.0, False, True)  # the limit


def test_an_episode_begins_without_the_key():
    environment = KeyAndDoor(size=2, max_episode_steps=3)
    environment.reset()
    environment.step(RIGHT)
    environment.step(UP)
    assert environment.reset()[0].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"size": 1}, "size: 1 has no corners that differ; it must be at least 2"),
        ({"size": 5, "max_episode_steps": 11}, "max_episode_steps: 11 steps do not suffice; the shortest way has 12"),
    ],
)
def test_worlds_without_a_way_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        KeyAndDoor(**kwargs)
