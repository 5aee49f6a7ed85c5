"""RandomEnv: everything is in its space, episodes have the mean length asked for, and determinism repeats."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from distrl.config.environment import EnvironmentConfig
from distrl.environments.vector import VectorEnvironment
from distrl.environments.worlds.random_env import RandomEnv


@pytest.mark.filterwarnings("ignore::UserWarning")  # the checker's style advice
def test_keeps_gymnasium_s_contract() -> None:
    check_env(RandomEnv(), skip_render_check=True)


def lengths_of_episodes(environment: RandomEnv, steps: int) -> np.ndarray:
    environment.reset(seed=3)
    ends = []
    for step in range(steps):
        _, _, terminated, truncated, _ = environment.step(1)
        assert not truncated
        if terminated:
            ends.append(step)
            environment.reset()
    return np.diff([-1, *ends])


@pytest.mark.row("M09")
@pytest.mark.parametrize("deterministic", [True, pytest.param(False, marks=pytest.mark.long)])
def test_episodes_have_a_mean_length_of_ten(deterministic: bool) -> None:
    lengths = lengths_of_episodes(RandomEnv(deterministic=deterministic), 30_000)
    # Geometric: deviation 9.5, so that the mean of 3,000 has one of 0.17.
    assert lengths.mean() == pytest.approx(10.0, abs=0.9)
    assert lengths.min() == 1


def test_the_probability_of_an_end_is_a_parameter() -> None:
    assert set(lengths_of_episodes(RandomEnv(terminal_prob=1.0), 50)) == {1}
    assert lengths_of_episodes(RandomEnv(terminal_prob=0.0), 50).size == 0


def rollout(environment: RandomEnv, seed: int | None) -> list[float]:
    numbers = [*environment.reset(seed=seed)[0]]
    for _ in range(40):
        observation, reward, terminated, _, _ = environment.step(environment.action_space.sample())
        numbers += [*observation, reward, float(terminated)]
        environment.observation_space.sample()  # other draws must not change the results
        if terminated:
            numbers += [*environment.reset()[0]]
    return numbers


@pytest.mark.row("M09")
def test_deterministic_repeats_whatever_the_seed() -> None:
    first = rollout(RandomEnv(deterministic=True), 1)
    environment = RandomEnv(deterministic=True)
    assert rollout(environment, None) == first
    assert rollout(environment, 99) == first
    assert rollout(RandomEnv(), 10) == first


def test_otherwise_the_seed_decides() -> None:
    environment = RandomEnv()
    first, again, other = (rollout(environment, seed) for seed in (5, 5, 6))
    assert first == again
    assert first != other
    assert first[:4] != first[4:8]


def test_every_space_can_be_described_in_a_file() -> None:
    description = {
        "kind": "dict",
        "spaces": {
            "camera": {"kind": "box", "low": 0, "high": 255, "shape": [3, 2], "dtype": "uint8"},
            "pair": {"kind": "tuple", "spaces": [4, {"kind": "multi_binary", "n": 3}]},
            "said": {"kind": "text", "max_length": 5},
        },
    }
    actions = {"kind": "multi_discrete", "nvec": [2, 3]}
    environment = RandomEnv(description, actions, {"kind": "discrete", "n": 3, "start": 5})
    assert environment.observation_space == spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (3, 2), np.uint8),
            "pair": spaces.Tuple([spaces.Discrete(4), spaces.MultiBinary(3)]),
            "said": spaces.Text(5),
        }
    )
    assert environment.action_space == spaces.MultiDiscrete([2, 3])
    assert environment.observation_space.contains(environment.reset(seed=0)[0])
    rows = [environment.step(np.array([1, 2])) for _ in range(60)]
    assert all(environment.observation_space.contains(row[0]) for row in rows)
    assert {row[1] for row in rows} == {5.0, 6.0, 7.0}


def test_the_same_space_given_as_an_object() -> None:
    space = spaces.Box(2.0, 3.0, (1,), np.float64)
    environment = RandomEnv(state_space=space, reward_space=space)
    assert environment.observation_space is space
    environment.reset(seed=0)
    assert all(2.0 <= environment.step(0)[1] <= 3.0 for _ in range(20))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"terminal_prob": 1.5}, "terminal_prob is a probability, not 1.5"),
        ({"state_space": {"kind": "sphere"}}, "no kind of space 'sphere'; there are box, discrete"),
        ({"state_space": {"n": 3}}, "no kind of space None"),
        ({"reward_space": {"kind": "box", "low": 0, "high": 1, "shape": [2]}}, "a reward is one number"),
        ({"reward_space": {"kind": "multi_binary", "n": 1}}, "a reward is one number"),
    ],
)
def test_what_makes_no_sense_is_refused(kwargs: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RandomEnv(**kwargs)


def test_an_action_outside_the_space_is_an_error() -> None:
    environment = RandomEnv(action_space=3)
    environment.reset(seed=0)
    with pytest.raises(ValueError, match=r"action 3 lies outside Discrete\(3\)"):
        environment.step(3)


def test_it_steps_as_a_vector() -> None:
    kwargs = {"state_space": {"kind": "box", "low": 0, "high": 1, "shape": [2]}, "terminal_prob": 0.5}
    environment = VectorEnvironment(
        EnvironmentConfig(id="distrl.environments.worlds.random_env:RandomEnv", kwargs=kwargs), 16
    )
    rows = environment.reset(4)["observation"]
    assert rows.shape == (16, 2)
    assert len(np.unique(rows)) == 32  # no environment repeats another
    step = environment.step({"action": np.zeros(16, np.int32)})
    assert 0 < step.terminated.sum() < 16


def test_null_is_an_infinite_bound():
    environment = RandomEnv(action_space={"kind": "box", "low": None, "high": None, "shape": (2,)})
    assert not environment.action_space.is_bounded("both")
