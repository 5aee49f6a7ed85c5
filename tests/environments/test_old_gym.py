"""The old gym behind gymnasium's interface: ids, classes, spaces, and silence."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import distrl
from distrl.config.environment import EnvironmentConfig
from distrl.environments import gym_adapter, old_gym
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError, EnvironmentFailedError, MissingExtraError, how_to_install

old_gym.silence()
gym = pytest.importorskip("gym")

MODULE = """
import gym
import numpy as np


class Old(gym.Env):
    metadata = {"render_modes": ["ansi"]}
    max_episode_steps = 9
    reward_threshold = 4.5
    closed = 0

    def __init__(self, five=True):
        self.observation_space = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(3, start=1)
        self.five = five

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        first = self.np_random.random(2, np.float32)
        return (first, {}) if self.five else first

    def step(self, action):
        assert self.action_space.contains(action)
        result = (np.full(2, action / 4, np.float32), float(action), False, action == 3, {})
        return result if self.five else result[:4]

    def render(self):
        return "drawn"

    def close(self):
        Old.closed += 1


class Before026(Old):
    def reset(self):
        return np.zeros(2, np.float32)


gym.register("Mine-v0", entry_point=Old, max_episode_steps=4, reward_threshold=2.0)
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "old_ones.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("old_ones", None)
    gym.envs.registration.registry.pop("Mine-v0", None)


def make(name: str, **kwargs: Any) -> Any:
    return gym_adapter.make_one(EnvironmentConfig(id=name, kwargs=kwargs))


def refusal(name: str, **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make(name, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.row("M04")
def test_gym_cart_pole_is_gymnasium_s() -> None:
    old, new = make("gym:CartPole-v1"), gymnasium.make("CartPole-v1")
    assert isinstance(old, old_gym.OldGym)
    # Its largest float stands for no bound.
    np.testing.assert_array_equal(
        np.where(old.observation_space.high > 1e38, np.inf, old.observation_space.high), new.observation_space.high
    )
    assert old.action_space == new.action_space
    np.testing.assert_array_equal(old.reset(seed=7)[0], new.reset(seed=7)[0])
    for action in np.random.default_rng(0).integers(2, size=12):
        ours, theirs = old.step(action), new.step(action)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
        assert ours[1:4] == theirs[1:4]
    made = gym_adapter.make_vector(EnvironmentConfig(id="gym:CartPole-v1"), 2)
    assert (made.vectorization, made.reward_threshold, made.max_episode_steps) == ("sync", 475.0, 500)


def test_time_limits_are_told() -> None:
    assert make("gym:CartPole-v1", max_episode_steps=3).max_episode_steps == 3
    environment = VectorEnvironment(EnvironmentConfig(id="gym:CartPole-v1", kwargs={"max_episode_steps": 3}), 2)
    assert environment.spec.max_episode_steps == 3
    environment.reset(0)
    steps = [environment.step({"action": np.int32([0, 1])}) for _ in range(5)]
    assert [step.truncated.all() for step in steps] == [False, False, True, False, False]
    assert [step.valid.all() for step in steps] == [True, True, True, False, True]


@pytest.mark.parametrize("name", ["old_ones:Old", "old_ones:Mine-v0", "gym:old_ones:Mine-v0"])
def test_classes_and_ids_of_modules(name: str) -> None:
    environment = make(name)
    assert isinstance(environment, old_gym.OldGym)
    limits = (4.5, 9) if name == "old_ones:Old" else (2.0, 4)
    assert gym_adapter.limits(name, environment) == limits
    first, second = environment.reset(seed=3)[0], environment.reset(seed=3)[0]
    np.testing.assert_array_equal(first, second)
    observation, reward, terminated, truncated, _ = environment.step(np.int64(3))
    assert (observation.tolist(), reward, terminated, truncated) == ([0.75, 0.75], 3.0, False, True)
    assert environment.render() == "drawn"
    closed = sys.modules["old_ones"].Old.closed
    environment.close()
    assert sys.modules["old_ones"].Old.closed == closed + 1


def test_the_protocol_before_026_is_refused_in_words() -> None:
    environment = VectorEnvironment(EnvironmentConfig(id="old_ones:Old", kwargs={"five": False}), 1)
    with pytest.raises(
        EnvironmentFailedError, match=r"reset gave no .observation, info.: old_ones:Old is older than gym 0"
    ):
        environment.reset(0)
    stepping = make("old_ones:Old")
    stepping.reset()
    stepping._environment.five = False
    with pytest.raises(ValueError, match=r"step gave 4 values, not 5: .* apply_api_compatibility=True"):
        stepping.step(1)
    with pytest.raises(EnvironmentFailedError, match="unexpected keyword argument 'seed'"):
        VectorEnvironment(EnvironmentConfig(id="old_ones:Before026"), 1).reset(0)


SPACES = [
    (gym.spaces.Box(-1.0, 2.0, (2, 1), np.float32), gymnasium.spaces.Box(-1.0, 2.0, (2, 1), np.float32)),
    (gym.spaces.Box(0, 255, (3,), np.uint8), gymnasium.spaces.Box(0, 255, (3,), np.uint8)),
    (gym.spaces.Discrete(3, start=-1), gymnasium.spaces.Discrete(3, start=-1)),
    (gym.spaces.MultiDiscrete([2, 3]), gymnasium.spaces.MultiDiscrete([2, 3])),
    (gym.spaces.MultiBinary([2, 3]), gymnasium.spaces.MultiBinary([2, 3])),
    (gym.spaces.Text(5, charset="ab"), gymnasium.spaces.Text(5, charset="ab")),
    (
        gym.spaces.Dict(b=gym.spaces.Discrete(2), a=gym.spaces.Tuple([gym.spaces.Discrete(4)])),
        gymnasium.spaces.Dict(b=gymnasium.spaces.Discrete(2), a=gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(4)])),
    ),
]


@pytest.mark.row("M04")
@pytest.mark.parametrize(("old", "new"), SPACES, ids=[type(old).__name__ + str(old.shape) for old, _ in SPACES])
def test_spaces_have_a_counterpart(old: Any, new: Any) -> None:
    assert old_gym._converted("x", "observation", old) == new


def test_a_space_without_counterpart_is_refused_by_path() -> None:
    odd = gym.spaces.Dict(a=gym.spaces.Tuple([gym.spaces.Sequence(gym.spaces.Discrete(2))]))
    with pytest.raises(ConfigError) as caught:
        old_gym._converted("Odd-v0", "observation", odd)
    assert str(caught.value) == "environment Odd-v0: the space at 'observation/a/0' cannot be used: gym's Sequence"


def test_unknown_ids_come_with_the_nearest() -> None:
    assert refusal("gym:CartPoel-v1").startswith(
        "unknown environment 'gym:CartPoel-v1'; the nearest ids are gym:CartPole-v1, gym:CartPole-v0, "
    )
    assert "module 'nowhere' cannot be imported" in refusal("gym:nowhere:CartPole-v1")
    assert "cannot be made with kwargs {'gravity': 3}: TypeError" in refusal("gym:CartPole-v1", gravity=3)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    with pytest.raises(MissingExtraError) as caught:
        make("gym:CartPole-v1")
    assert str(caught.value) == f"what environment gym:CartPole-v1 needs is not installed: {how_to_install('gym')}"


def test_stepping_imports_no_learning_framework_and_gym_only_where_somebody_asks_for_it() -> None:
    program = (
        "import sys; from distrl.environments.vector import VectorEnvironment as V; "
        "from distrl.config.environment import EnvironmentConfig as C; "
        "V(C(id='CartPole-v1'), 2).reset(1); "
        "assert not {'gym', 'tensorflow', 'keras', 'jax', 'torch', 'ray', 'onnxruntime'} & set(sys.modules); "
        "V(C(id='gym:CartPole-v0'), 2).reset(1)"
    )
    root = Path(distrl.__file__).parent.parent
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
