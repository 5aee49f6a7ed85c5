"""The corridor and the chain: their rewards, ends and values are what their docstrings say."""

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from distrl.environments.worlds.chains import Chain, Corridor, ExplorationChain

GAMMA = 0.99


@pytest.mark.filterwarnings("ignore::UserWarning")  # the checker's style advice
@pytest.mark.parametrize("environment", [Corridor(), Chain(), Chain("termination"), ExplorationChain()], ids=str)
def test_keeps_gymnasium_s_contract(environment) -> None:
    check_env(environment, skip_render_check=True)


def test_the_corridor_s_best_return_and_its_discounted_value() -> None:
    environment = Corridor(length=6)
    seen = [environment.reset(seed=0)[0]]
    rewards, terminated = [], False
    while not terminated:
        observation, reward, terminated, truncated, _ = environment.step(np.int64(1))
        seen.append(observation)
        rewards.append(reward)
        assert not truncated
    assert seen == [0, 1, 2, 3, 4, 5]
    assert sum(rewards) == -5
    discounted = sum(GAMMA**t * reward for t, reward in enumerate(rewards))
    assert discounted == pytest.approx(-(1 - GAMMA**5) / (1 - GAMMA))
    assert environment.reward_threshold <= -5 * 1.25


def test_the_corridor_has_a_wall_at_its_start_and_a_limit() -> None:
    environment = Corridor(length=3, max_episode_steps=4)
    for _ in range(2):
        environment.reset()
        rows = [environment.step(np.int64(action)) for action in (0, 0, 1, 0)]
        assert [int(row[0]) for row in rows] == [0, 0, 1, 0]
        assert [row[2:4] for row in rows] == [(False, False)] * 3 + [(False, True)]
    assert Corridor(length=3, max_episode_steps=None).max_episode_steps is None


@pytest.mark.parametrize("make", [lambda: Corridor(length=1), lambda: Chain("never")])
def test_what_is_no_line_is_refused(make) -> None:
    with pytest.raises(ValueError, match=r"its length is 1|not by 'never'"):
        make()


@pytest.mark.parametrize(
    ("end", "steps", "flags"),
    [("time_limit", 5, (False, True)), ("termination", 5, (True, False)), ("time_limit", 9, (False, True))],
)
def test_the_chain_goes_on_whatever_is_done_and_ends_as_told(end, steps, flags) -> None:
    environment = Chain(end, steps)
    assert environment.max_episode_steps == (steps if flags[1] else None)
    expected = [0, 1, 2, 3, 4, 2, 3, 4, 2, 3]
    pays = [1, 0, 2, 0, 4, 2, 0, 4, 2]
    for action in (0, 1):
        first, _ = environment.reset()
        rows = [environment.step(np.int64(action)) for _ in range(steps)]
        assert [int(first), *(int(row[0]) for row in rows)] == expected[: steps + 1]
        assert [row[1] for row in rows] == pays[:steps]
        assert [row[2:4] for row in rows] == [(False, False)] * (steps - 1) + [flags]


def test_the_chain_s_values_as_written_solve_its_equations() -> None:
    v2 = (2 + 4 * GAMMA**2) / (1 - GAMMA**3)
    endless = [1 + GAMMA**2 * v2, GAMMA * v2, v2, 4 * GAMMA + GAMMA**2 * v2, 4 + GAMMA * v2]
    following = [1, 2, 3, 4, 2]
    for state, reward in enumerate(Chain.REWARDS):
        assert endless[state] == pytest.approx(reward + GAMMA * endless[following[state]])
    np.testing.assert_allclose(endless, [196.37, 197.34, 199.33, 199.33, 201.34], atol=0.005)
    f2 = 2 + 4 * GAMMA**2
    finite = [1 + GAMMA**2 * f2, GAMMA * f2, f2, 4 * GAMMA, 4.0, 0.0]
    for state, reward in enumerate(Chain.REWARDS):
        assert finite[state] == pytest.approx(reward + GAMMA * finite[state + 1])
    np.testing.assert_allclose(finite[:5], [6.80, 5.86, 5.92, 3.96, 4.00], atol=0.005)


@pytest.mark.row("D193.2", "T10")
def test_the_exploration_chain_pays_at_both_ends():
    environment = ExplorationChain(length=5)
    assert environment.max_episode_steps == 14
    shown, _ = environment.reset()
    assert shown.tolist() == [1, 1, 0, 0, 0]
    assert [environment.step(1)[1] for _ in range(4)] == [0.0, 0.0, 1.0, 1.0]  # and it stays at the right end
    environment.reset()
    shown, reward, terminated, truncated, _ = environment.step(0)
    assert (shown.tolist(), reward, terminated, truncated) == ([1, 0, 0, 0, 0], 0.001, False, False)
    one_hot = ExplorationChain(length=5, thermometer=False)
    assert one_hot.reset()[0].tolist() == [0, 1, 0, 0, 0]
    with pytest.raises(ValueError, match="length: 3; the chain has at least 4 states"):
        ExplorationChain(length=3)
    with pytest.raises(ValueError, match="max_steps: 0; an episode has at least 1 step"):
        ExplorationChain(max_steps=0)


@pytest.mark.row("D193.2")
def test_always_right_earns_what_the_exploration_chain_promises():
    environment = ExplorationChain(length=20)
    environment.reset()
    steps = [environment.step(1) for _ in range(29)]
    assert sum(step[1] for step in steps) == environment.reward_threshold == 12.0
    assert [step[3] for step in steps] == [False] * 28 + [True]
    assert not any(step[2] for step in steps)
