"""Names become environments; what cannot be is said in one line."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode

from distrl.config.environment import EnvironmentConfig
from distrl.environments import gym_adapter, old_gym
from distrl.environments.vector import VectorEnvironment
from distrl.environments.worlds import toy
from distrl.errors import ConfigError, MissingExtraError, how_to_install
from distrl.types import ArraySpec, DiscreteSpec


class SameStepVector(CartPoleVectorEnv):
    metadata = CartPoleVectorEnv.metadata | {"autoreset_mode": AutoresetMode.SAME_STEP}
    closed: ClassVar[int] = 0

    def close(self, **kwargs: Any) -> None:
        SameStepVector.closed += 1


class OtherSpaceVector(CartPoleVectorEnv):
    def __init__(self, num_envs: int, max_episode_steps: int = 500) -> None:
        super().__init__(num_envs, max_episode_steps)
        self.single_observation_space = Box(0, 255, (4,), np.uint8)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    cart_pole = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    gymnasium.register(
        "Identity-v0", "distrl.environments.worlds.toy:Identity", vector_entry_point=f"{cart_pole[:-3]}VectorEnv"
    )
    for name, vector in {"SameStep-v0": SameStepVector, "OtherSpace-v0": OtherSpaceVector}.items():
        gymnasium.register(name, entry_point=cart_pole, vector_entry_point=vector, max_episode_steps=9)
    yield
    for name in ("SameStep-v0", "OtherSpace-v0", "Identity-v0"):
        del gymnasium.registry[name]


def make(env_id: str, vectorization: Any = "auto", count: int = 2, **kwargs: Any) -> gym_adapter.Made:
    made = gym_adapter.make_vector(EnvironmentConfig(id=env_id, vectorization=vectorization, kwargs=kwargs), count)
    made.vector.close()
    return made


def refusal(env_id: str, vectorization: Any = "auto", **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make(env_id, vectorization, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_cart_pole_has_its_own_vectorization_and_auto_takes_it() -> None:
    for vectorization, expected in [("auto", "own"), ("own", "own"), ("sync", "sync")]:
        made = make("CartPole-v1", vectorization, 3)
        assert (made.vectorization, made.vector.num_envs) == (expected, 3)
        assert (made.reward_threshold, made.max_episode_steps) == (475.0, 500)
        assert made.vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


@pytest.mark.parametrize("vectorization", ["own", "sync"])
def test_a_time_limit_in_kwargs_is_reported(vectorization: str) -> None:
    assert make("CartPole-v1", vectorization, max_episode_steps=7).max_episode_steps == 7


def test_auto_falls_back_to_sync_and_own_says_why() -> None:
    assert make("Acrobot-v1").vectorization == "sync"
    assert "own is impossible: it has no vector entry point; use sync, which steps single environments" in refusal(
        "Acrobot-v1", "own"
    )
    SameStepVector.closed = 0
    made = make("SameStep-v0")
    assert made.vectorization == "sync"
    assert SameStepVector.closed == 1
    why = (
        "its metadata['autoreset_mode'] is AutoresetMode.SAME_STEP, and distrl needs AutoresetMode.NEXT_STEP: the step "
        "after an episode's end ignores its action and resets"
    )
    assert made.notices == (f"environment SameStep-v0 is stepped by sync: its own vector cannot be used: {why}",)
    assert why in refusal("SameStep-v0", "own")
    # Known to single environments only: the entry point's signature lacks it.
    made = make("Identity-v0", n=3)
    assert made.vectorization == "sync"
    (notice,) = made.notices
    assert notice.startswith(
        "environment Identity-v0 is stepped by sync: its own vector cannot be used: it refuses kwargs"
    )
    assert "refuses kwargs {'n': 3}: TypeError" in refusal("Identity-v0", "own", n=3)
    assert make("CartPole-v1").notices == make("Acrobot-v1").notices == ()


def test_a_vector_of_ones_own_that_refuses_the_kwargs_is_not_left_aside_in_silence() -> None:
    """Its rows may be agents, and the single environment a dummy."""
    for vectorization, what in (
        ("auto", "its own vector cannot be used"),
        ("own", "environment.vectorization: own is impossible"),
    ):
        message = refusal("OtherSpace-v0", vectorization, sutton_barto_reward=True)
        assert message.startswith(
            f"environment OtherSpace-v0: {what}: it refuses kwargs {{'sutton_barto_reward': True}}: TypeError: "
        )
        assert message.endswith("; use sync, which steps single environments")
    assert make("OtherSpace-v0", "sync", sutton_barto_reward=True).vectorization == "sync"


def test_auto_never_changes_the_spaces() -> None:
    assert make("OtherSpace-v0").vector.single_observation_space.dtype == np.float32
    assert make("OtherSpace-v0", "own").vector.single_observation_space.dtype == np.uint8


def test_no_limit_is_known_to_sync_only() -> None:
    made = make("CartPole-v1", max_episode_steps=-1)
    assert (made.vectorization, made.max_episode_steps) == ("sync", None)
    assert "max_episode_steps: -1" in refusal("CartPole-v1", "own", max_episode_steps=-1)


def test_a_class_is_called_with_kwargs_and_states_its_limits() -> None:
    made = make("distrl.environments.worlds.toy:StepCounter", terminate_at_steps=9, truncate_at_steps=4)
    assert (made.vectorization, made.reward_threshold, made.max_episode_steps) == ("sync", None, 4)
    assert make("distrl.environments.worlds.toy:Identity", length_steps=10).reward_threshold == 9.5
    single = gym_adapter.make_one(EnvironmentConfig(id="distrl.environments.worlds.toy:Identity", kwargs={"n": 6}))
    assert isinstance(single, toy.Identity)
    assert single.action_space.n == 6


class WithVector(toy.Identity):
    """A class whose own vectorization accepts no kwargs and states its limits."""

    @classmethod
    def vector_entry_point(cls, num_envs: int) -> "StatingVector":
        return StatingVector(num_envs)


class StatingVector(CartPoleVectorEnv):
    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        single = toy.Identity()
        self.single_observation_space, self.single_action_space = single.observation_space, single.action_space
        self.reward_threshold, self.max_episode_steps = 12.0, 34


class Inheriting(WithVector):
    """Would be stepped as its parent."""


def test_a_class_may_have_its_own_vectorization() -> None:
    name = f"{__name__}:WithVector"
    for vectorization in ("auto", "own"):
        made = make(name, vectorization, 3)
        assert (made.vectorization, made.vector.num_envs) == ("own", 3)
        assert (made.reward_threshold, made.max_episode_steps) == (12.0, 34)
    assert make(name, "sync", n=3).vectorization == "sync"
    assert "refuses kwargs {'n': 3}: TypeError" in refusal(name, n=3)
    assert "refuses kwargs {'n': 3}: TypeError" in refusal(name, "own", n=3)


def test_a_vectorization_is_not_inherited() -> None:
    assert make(f"{__name__}:Inheriting").vectorization == "sync"
    assert "own is impossible: it has no vector entry point" in refusal(f"{__name__}:Inheriting", "own")


class Stating(toy.Identity):
    """States what it is told to; by itself, a threshold of 7.6."""

    def __init__(self, stated: dict[str, Any]) -> None:
        super().__init__()
        for name, value in stated.items():
            setattr(self, name, value)


class Raising(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)

    @property
    def reward_threshold(self) -> float:
        raise OSError("not yet")


class NoSpace(gymnasium.Env):
    """Forgets its observation space."""

    action_space = gymnasium.spaces.Discrete(2)


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("async", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("stated", "limits"),
    [
        ({}, (7.6, None)),
        ({"reward_threshold": np.float32(0.5), "max_episode_steps": np.int64(9)}, (0.5, 9)),
        ({"reward_threshold": float("inf"), "max_episode_steps": float("inf")}, (None, None)),
        ({"reward_threshold": 3, "max_episode_steps": -1}, (3.0, None)),
        ({"spec": "mine", "max_episode_steps": 7.0}, (7.6, 7)),
        ({"max_episode_steps": "many"}, "max_episode_steps is 'many', it must be a number, or None"),
        ({"max_episode_steps": True}, "max_episode_steps is True, it must be a number, or None"),
        ({"max_episode_steps": 7.5}, "max_episode_steps is 7.5, it must be a whole number from 1 on, or None"),
        ({"reward_threshold": [1, 2]}, "reward_threshold is [1, 2], it must be a number, or None"),
        ({"reward_threshold": 10**400}, "it must be a number that float64 holds, or None"),
        ({"metadata": None}, "metadata is None, it must be a dict"),
        ({"observation_space": (3,)}, "observation_space is (3,), it must be a space of gymnasium"),
    ],
)
def test_what_an_environment_states_is_checked_by_name(vectorization: str, stated: dict[str, Any], limits: Any) -> None:
    config = EnvironmentConfig(id=f"{__name__}:Stating", kwargs={"stated": stated}, vectorization=vectorization)
    if isinstance(limits, str):
        with pytest.raises(ConfigError) as caught:
            VectorEnvironment(config, 1)
        assert str(caught.value).startswith(f"environment {config.id}: its attribute {next(iter(stated))} is ")
        assert str(caught.value).endswith(limits)
        return
    environment = VectorEnvironment(config, 1)
    assert (environment.spec.reward_threshold, environment.spec.max_episode_steps) == limits
    environment.close()


def test_what_cannot_be_read_or_is_not_there_is_named_too() -> None:
    assert refusal(f"{__name__}:Raising").endswith("its attribute reward_threshold cannot be read: OSError: not yet")
    assert refusal(f"{__name__}:NoSpace").endswith(
        "its attribute observation_space is None, it must be a space of gymnasium"
    )


def test_a_vector_of_ones_own_is_checked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StatingVector, "metadata", None)
    assert refusal(f"{__name__}:WithVector").endswith("its attribute metadata is None, it must be a dict")
    monkeypatch.setattr(WithVector, "vector_entry_point", staticmethod(lambda num_envs: toy.Identity()))
    assert refusal(f"{__name__}:WithVector").endswith("its vector entry point made a Identity, no VectorEnv")


def test_an_id_behind_the_module_that_registers_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "registers_it.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Late-v3', entry_point='distrl.environments.worlds.toy:Bandit', max_episode_steps=2)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    made = make("registers_it:Late-v3")
    del gymnasium.registry["Late-v3"]
    assert made.max_episode_steps == 2
    assert isinstance(made.vector.envs[0].unwrapped, toy.Bandit)


def test_an_id_of_both_gyms_behind_a_module_is_gymnasiums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_gym, "is_registered", lambda name: name == "CartPole-v1")
    assert make("distrl.environments.worlds.toy:CartPole-v1", "sync").vector.envs[0].spec.id == "CartPole-v1"
    monkeypatch.setattr(old_gym, "maker", lambda *_: toy.Bandit)
    monkeypatch.delitem(gymnasium.registry, "CartPole-v1")
    assert isinstance(make("distrl.environments.worlds.toy:CartPole-v1", "sync").vector.envs[0], toy.Bandit)


def test_unknown_names_come_with_the_nearest() -> None:
    assert refusal("CartPoel-v1") == (
        "unknown environment 'CartPoel-v1'; the nearest ids are CartPole-v1, CartPole-v0, phys2d/CartPole-v1; "
        "a class of your own is package.module:Class"
    )
    # Gymnasium would pick a version by itself.
    assert "the nearest ids are CartPole-v" in refusal("cartpole")
    assert refusal("distrl.environments.worlds.toy:StepCount") == (
        "unknown environment 'distrl.environments.worlds.toy:StepCount': "
        "distrl.environments.worlds.toy has no class StepCount; "
        "the nearest classes are StepCounter, Identity, MemoryCue"
    )
    assert "the nearest ids are CartPole-v1" in refusal("json:CartPole-v7")
    assert refusal("no_such.module:Env") == (
        "environment no_such.module:Env: module 'no_such.module' cannot be imported: "
        "ModuleNotFoundError: No module named 'no_such'"
    )


def test_what_is_not_an_environment_is_refused() -> None:
    wanted = "name a subclass of gymnasium.Env, or a function of your own that makes one"
    assert refusal("math:pi") == f"environment math:pi is a float; {wanted}"
    assert refusal("collections:OrderedDict") == (
        f"environment collections:OrderedDict is a class collections.OrderedDict; {wanted}"
    )


def test_a_partial_of_a_class_makes_an_environment(tmp_path, monkeypatch) -> None:
    (tmp_path / "partial_of_mine.py").write_text(
        "import functools\nfrom distrl.environments.worlds.toy import Masked\nshort = functools.partial(Masked, n=3)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert make("partial_of_mine:short", "sync").vector.single_action_space == Discrete(3)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("subprocess:Popen", {"args": ["touch", "ran"]}),
        ("subprocess:run", {"args": ["touch", "ran"]}),
        ("os:mkdir", {"path": "ran"}),
        ("environments_of_mine:run", {"args": ["touch", "ran"]}),  # imported there
        ("environments_of_mine:touch", {"args": ["touch", "ran"]}),  # a partial of the same
        ("environments_of_mine:called", {}),  # no class, no function
    ],
)
def test_what_makes_no_environment_is_not_called(tmp_path, monkeypatch, name: str, kwargs: dict[str, Any]) -> None:
    (tmp_path / "environments_of_mine.py").write_text(
        "import functools\nfrom subprocess import run\ntouch = functools.partial(run)\n"
        "class Called:\n    def __call__(self):\n        open('ran', 'w')\ncalled = Called()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert "; name a subclass of gymnasium.Env, or a function of your own" in refusal(name, **kwargs)
    finally:
        sys.modules.pop("environments_of_mine", None)
    assert not (tmp_path / "ran").exists()


def test_refused_kwargs_name_environment_and_error() -> None:
    message = refusal("CartPole-v1", gravity=3)
    assert message.startswith("environment CartPole-v1 cannot be made with kwargs {'gravity': 3}: TypeError: ")
    assert "unexpected keyword argument 'gravity'" in message
    assert refusal("distrl.environments.worlds.toy:Bandit", arms=2) == (
        "environment distrl.environments.worlds.toy:Bandit cannot be made with kwargs {'arms': 2}: "
        "TypeError: Bandit.__init__() got an unexpected keyword argument 'arms'"
    )


@pytest.mark.parametrize(
    ("env_id", "absent", "extra"),
    [
        ("LunarLander-v3", "Box2D", "box2d"),
        ("HalfCheetah-v5", "mujoco", "mujoco"),
        ("ALE/Pong-v5", "ale_py", "atari"),
        ("dm_control/cartpole-balance-v0", "shimmy", "dm-control"),
        ("MinAtar/Breakout-v1", "minatar", "minatar"),
    ],
)
def test_a_missing_extra_is_named(env_id: str, absent: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)  # what `require` asks
    monkeypatch.setitem(sys.modules, absent, None)  # makes importing it an ImportError
    for module in [name for name in sys.modules if name.startswith(("gymnasium.envs.box2d", "gymnasium.envs.mujoco"))]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(MissingExtraError) as caught:
        make(env_id)
    assert str(caught.value) == f"what environment {env_id} needs is not installed: {how_to_install(extra)}"


def test_a_name_tells_what_makes_it_and_with_what() -> None:
    entry_point, kwargs = gym_adapter.declared("CartPole-v1")
    assert (entry_point, dict(kwargs)) == ("gymnasium.envs.classic_control.cartpole:CartPoleEnv", {})
    entry_point, kwargs = gym_adapter.declared("FrozenLake8x8-v1")
    assert kwargs == {"map_name": "8x8"}
    assert gym_adapter.declared("distrl.environments.worlds.toy:Identity") == (
        "distrl.environments.worlds.toy:Identity",
        {},
    )


@pytest.mark.row("M01")
def test_a_single_environment_is_seeded_reset_stepped_drawn_and_closed() -> None:
    config = EnvironmentConfig(id="CartPole-v1", kwargs={"render_mode": "rgb_array"})
    environment: Any = gym_adapter.make_one(config)
    environment.reset(seed=5)
    assert environment.unwrapped.np_random_seed == 5
    observation, reward, terminated, truncated, _ = environment.step(1)
    assert (observation.shape, reward, terminated, truncated) == ((4,), 1.0, False, False)
    with pytest.raises(AssertionError, match="invalid"):
        environment.step(2)
    # Without a seed it takes one, and says which.
    fresh: Any = gym_adapter.make_one(config)
    fresh.reset()
    assert isinstance(fresh.unwrapped.np_random_seed, int)
    environment.close()
    fresh.close()


def test_dm_control_comes_through_shimmy() -> None:
    pytest.importorskip("dm_control")
    pytest.importorskip("shimmy.registration", reason="Shimmy is not installed")
    name = "dm_control/cartpole-balance-v0"
    environment = VectorEnvironment(EnvironmentConfig(id=name), 2)
    assert {key: array.shape for key, array in environment.spec.observations.items()} == {
        "position": (3,),
        "velocity": (2,),
    }
    first, again = environment.reset(3)["position"], environment.reset(3)["position"]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    step = environment.step({"action": np.float32([[1.0], [-1.0]])})
    assert step.observations["velocity"][0, 0] > 0 > step.observations["velocity"][1, 0]
    assert (step.rewards >= 0).all()
    assert (step.rewards <= 1).all()
    environment.close()
    assert f"the nearest ids are {name}, " in refusal("dm_control/cartpole-balanc-v0")


def test_minatar_registers_its_games_when_one_is_named() -> None:
    pytest.importorskip("minatar")
    environment = VectorEnvironment(EnvironmentConfig(id="MinAtar/Breakout-v1"), 2)
    assert environment.spec.observations == {"observation": ArraySpec((10, 10, 4), "bool", 0.0, 1.0)}
    assert environment.spec.actions == {"action": DiscreteSpec(3)}
    first, again = environment.reset(3)["observation"], environment.reset(3)["observation"]
    np.testing.assert_array_equal(first, again)
    environment.close()
    assert "the nearest ids are MinAtar/Breakout-v" in refusal("MinAtar/Breakou-v1")
