"""EnvPool as a vector: ids exactly, seeds for each environment, gymnasium's spaces, and JAX kept out."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

import distrl
from distrl.config.environment import EnvironmentConfig
from distrl.environments import gym_adapter
from distrl.environments.vector import VectorEnvironment
from distrl.environments.vectors import envpool_adapter
from distrl.errors import ConfigError, MissingExtraError, how_to_install

pytest.importorskip("envpool")


def config(env_id: str, **kwargs: Any) -> EnvironmentConfig:
    return EnvironmentConfig(id=env_id, vectorization="envpool", kwargs=kwargs)


def refusal(env_id: str, **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        envpool_adapter.make_vector(config(env_id, **kwargs), 2)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "FrozenLake-v1"])
def test_what_is_known_beforehand_is_what_gymnasium_says(env_id: str) -> None:
    made = envpool_adapter.make_vector(config(env_id), 3)
    single = gym_adapter.make_one(EnvironmentConfig(id=env_id))
    assert single.spec is not None
    assert made.vector.single_observation_space == single.observation_space
    assert made.vector.single_action_space == single.action_space
    assert (made.reward_threshold, made.max_episode_steps) == gym_adapter.limits(env_id, single)
    assert (made.vectorization, made.vector.num_envs) == ("envpool", 3)
    assert made.vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    observations, _ = made.vector.reset(seed=[1, 2, 3])
    assert made.vector.observation_space.contains(observations) or env_id == "FrozenLake-v1"
    made.vector.close()


def test_half_cheetah_is_gymnasium_s_but_for_the_width_of_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo may write a log
    environment = VectorEnvironment(config("HalfCheetah-v5"), 2)
    sync = VectorEnvironment(EnvironmentConfig(id="HalfCheetah-v5", vectorization="sync"), 1)
    assert environment.spec == sync.spec
    sync.close()
    environment.reset(0)
    single = gymnasium.make("HalfCheetah-v5")
    single.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (2, 6)).astype(np.float32)
    before = environment.step({"action": actions}).observations["observation"][1]
    # From the same state the same step: the root's x is not observed and changes nothing.
    physics: Any = single.unwrapped
    physics.set_state(np.concatenate([[0.0], before[:8]]), before[8:])
    step = environment.step({"action": actions})
    observation, reward, terminated, truncated, _ = single.step(actions[1])
    np.testing.assert_allclose(step.observations["observation"][1], observation, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(step.rewards[1], reward, rtol=1e-5)
    assert (step.terminated[1], step.truncated[1]) == (terminated, truncated)
    environment.close()


def test_ids_are_exact() -> None:
    assert refusal("CartPoel-v1") == (
        "EnvPool has no environment 'CartPoel-v1'; the nearest ids are CartPole-v1, CartPole-v0, phys2d/CartPole-v1"
    )
    # Another version would be another task.
    assert refusal("CartPole-v7").startswith("EnvPool has no environment 'CartPole-v7'; the nearest ids are CartPole-v")
    assert "the nearest ids are Pong-v5, " in refusal("ALE/Pong-v5")
    assert "steps EnvPool's own environments, no others" in refusal("distrl.environments.worlds.toy:StepCounter")
    assert "steps EnvPool's own environments, no others" in refusal("gym:CartPole-v1")


def test_kwargs_are_envpool_s_own_but_for_what_distrl_sets() -> None:
    made = envpool_adapter.make_vector(config("CartPole-v1", num_threads=1, max_episode_steps=7), 2)
    assert made.max_episode_steps == 7
    assert (
        refusal("CartPole-v1", seed=3)
        == "environment CartPole-v1: environment.kwargs.seed is set by distrl; leave it out"
    )
    for name in ("max_episode_steps", "num_threads"):
        for value in (-1, 0, "abc", 1.5, True, None, [3]):
            message = refusal("CartPole-v1", **{name: value})
            assert message.startswith(f"environment CartPole-v1: environment.kwargs.{name}: {value!r} is not known to ")
    message = refusal("CartPole-v1", gravity=3)
    assert message.startswith(
        "environment CartPole-v1 cannot be made by EnvPool with kwargs {'gravity': 3}: TypeError: "
    )


def test_every_environment_has_a_seed_of_its_own_and_every_reset_takes_new_ones() -> None:
    environment = VectorEnvironment(config("CartPole-v1"), 32)
    first, again, neighbour = (environment.reset(seed)["observation"] for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(np.concatenate([first, neighbour]), axis=0)) == 64
    # Wherever it is in the vector: the seed alone decides.
    pool = envpool_adapter.EnvPoolVector("CartPole-v1", 2, {})
    forth, back = pool.reset(seed=[8, 9])[0], pool.reset(seed=[9, 8])[0]
    np.testing.assert_array_equal(forth, back[::-1])
    # Without seeds the streams go on.
    assert not (pool.reset()[0] == back).any()
    pool.close()


def test_reset_abandons_open_episodes() -> None:
    environment = VectorEnvironment(config("CartPole-v1", max_episode_steps=3), 2)
    zeros = {"action": np.zeros(2, np.int32)}
    environment.reset(1)
    for _ in range(3):
        step = environment.step(zeros)
    assert step.truncated.all()
    environment.reset(2)  # instead of the ignored step
    steps = [environment.step(zeros) for _ in range(4)]
    assert [step.valid.all() for step in steps] == [True, True, True, False]
    assert [step.truncated.all() for step in steps] == [False, False, True, False]
    environment.close()


def test_a_step_that_ends_an_episode_both_ways_is_told_as_truncated() -> None:
    """EnvPool as documented; gymnasium sets both flags. 200 poles are pushed to the right."""
    environment = VectorEnvironment(config("CartPole-v1", max_episode_steps=9), 200)
    environment.reset(0)
    for _ in range(9):
        step = environment.step({"action": np.ones(200, np.int32)})
    both = (np.abs(step.observations["observation"][:, 2]) > 12 * 2 * np.pi / 360) & step.valid
    assert both.sum() > 20
    assert not step.terminated[both].any()
    assert step.truncated[both].all()
    environment.close()


def test_bounds_that_mean_none_are_none() -> None:
    tiny, largest = np.finfo(np.float32).tiny, np.finfo(np.float32).max
    given = Box(np.float32([tiny, -1, -largest]), np.float32([largest, 1, 2]))
    assert envpool_adapter._bounded_truly(given) == Box(np.float32([-np.inf, -1, -np.inf]), np.float32([np.inf, 1, 2]))
    lander = envpool_adapter.make_vector(config("LunarLander-v3"), 1).vector.single_observation_space
    assert not lander.is_bounded("below")
    assert not lander.is_bounded("above")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    with pytest.raises(MissingExtraError) as caught:
        envpool_adapter.make_vector(config("CartPole-v1"), 1)
    assert str(caught.value) == (
        f"what environment.vectorization: envpool needs is not installed: {how_to_install('envpool')}"
    )


def test_actors_that_step_envpool_carry_no_jax() -> None:
    program = (
        "import sys; from distrl.environments.vector import VectorEnvironment as V; "
        "from distrl.config.environment import EnvironmentConfig as C; "
        "V(C(id='CartPole-v1', vectorization='envpool'), 2).reset(1); "
        "print(sorted({'tensorflow', 'keras', 'jax', 'torch', 'ray', 'onnxruntime'} & set(sys.modules)))"
    )
    root = Path(distrl.__file__).parent.parent
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
