"""BitFlip: goals as gymnasium names them, and numbers as its docstring says."""

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from distrl.config.environment import EnvironmentConfig
from distrl.environments.vector import VectorEnvironment
from distrl.environments.worlds.bit_flip import BitFlip
from distrl.types import ArraySpec


def started(bits_off, **kwargs):
    """Return an environment of which so many bits are off, and the bits that are."""
    environment = BitFlip(**kwargs)
    for seed in range(1000):
        shown, _ = environment.reset(seed=seed)
        off = np.flatnonzero(shown["achieved_goal"] != shown["desired_goal"])
        if len(off) == bits_off:
            return environment, off
    raise AssertionError(f"no start with {bits_off} bits off")


@pytest.mark.filterwarnings("ignore::UserWarning")  # the checker's style advice
@pytest.mark.parametrize("kwargs", [{}, {"n": 2}, {"mean_zero": True}, {"max_episode_steps": 0}])
def test_keeps_gymnasium_s_contract(kwargs):
    check_env(BitFlip(**kwargs), skip_render_check=True)


@pytest.mark.row("D193.1")
def test_the_last_bit_reaches_the_goal():
    environment, (bit,) = started(1, n=4)
    shown, reward, terminated, truncated, info = environment.step(bit)
    assert (reward, terminated, truncated, info) == (0.0, True, False, {"is_success": True})
    assert np.array_equal(shown["achieved_goal"], shown["desired_goal"])
    assert np.array_equal(shown["achieved_goal"], shown["observation"])


@pytest.mark.row("D193.1")
def test_four_wrong_flips_of_four_bits_are_truncated():
    environment, off = started(4, n=4)
    told = [environment.step(off[0])[1:] for _ in range(4)]
    wrong = {"is_success": False}
    assert told == [(-1.0, False, False, wrong)] * 3 + [(-1.0, False, True, wrong)]


def test_the_goal_at_the_limit_terminates_and_is_truncated():
    environment, off = started(3, n=3)
    assert [environment.step(bit)[1:4] for bit in off] == [(-1, False, False), (-1, False, False), (0, True, True)]


@pytest.mark.row("D193.1", "T10")
@pytest.mark.parametrize(("given", "limit"), [(None, 3), (7, 7), (0, None)])
def test_the_limit_is_the_number_of_bits_unless_another_one_is_given(given, limit):
    environment = BitFlip(3, max_episode_steps=given)
    assert environment.max_episode_steps == limit
    environment.reset(seed=0)
    told = []
    for _ in range(20):  # back and forth, never at a goal that is two bits away
        _, _, terminated, truncated, _ = environment.step(0)
        told.append(truncated)
        if terminated or truncated:
            break
    assert told.index(True) + 1 == limit if limit else not any(told)


@pytest.mark.row("D193.1")
def test_no_episode_begins_at_its_goal():
    environment = BitFlip(2)
    starts = [environment.reset(seed=seed)[0] for seed in range(200)]
    assert not any(np.array_equal(shown["achieved_goal"], shown["desired_goal"]) for shown in starts)
    assert len({(*shown["achieved_goal"], *shown["desired_goal"]) for shown in starts}) == 12


def test_rewards_of_many_goals_at_once():
    achieved, desired = np.array([[[0, 1], [1, 1]]]), np.array([[[0, 1], [1, 0]]])
    rewards = BitFlip(2).compute_reward(achieved, desired, {})
    assert (rewards.dtype, rewards.tolist()) == (np.float32, [[0.0, -1.0]])


def test_the_best_return_is_the_docstring_s():
    apart = [bin(state ^ goal).count("1") for state in range(16) for goal in range(16) if state != goal]
    assert -np.mean(np.array(apart) - 1.0) == pytest.approx(-(4 / 2 / (1 - 2**-4) - 1))


def test_bits_with_mean_zero_are_of_one_size():
    environment = BitFlip(5, mean_zero=True)
    first, _ = environment.reset(seed=1)
    shown, *_ = environment.step(2)
    for observation in (first, shown):
        assert all(set(np.abs(array).tolist()) == {1} for array in observation.values())
    assert np.flatnonzero(first["observation"] != shown["observation"]).tolist() == [2]


@pytest.mark.parametrize(("kwargs", "reason"), [({"n": 0}, "n: 0 bits"), ({"max_episode_steps": -1}, "-1 is less")])
def test_what_is_no_game_is_refused(kwargs, reason):
    with pytest.raises(ValueError, match=reason):
        BitFlip(**kwargs)


def test_a_vector_of_them_shows_three_arrays():
    environment = VectorEnvironment(EnvironmentConfig(id="distrl.environments.worlds.bit_flip:BitFlip"), 2)
    bits = ArraySpec((10,), "int8", 0.0, 1.0)
    assert environment.spec.observations == dict.fromkeys(("achieved_goal", "desired_goal", "observation"), bits)
    assert environment.spec.max_episode_steps == 10
    environment.close()
