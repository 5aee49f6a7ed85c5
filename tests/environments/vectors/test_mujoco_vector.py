"""MuJoCo's runners in one call: gymnasium's own results, to the last bit, through every end of an episode."""

import ctypes
import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import ClipReward, TimeLimit

from distrl.config.environment import EnvironmentConfig
from distrl.environments.gym_adapter import Made
from distrl.environments.vectors import mujoco_vector
from distrl.environments.vectors.vectorizations import make_vector
from distrl.errors import ConfigError

pytest.importorskip("mujoco")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo may write a log


def make(env_id: str, vectorization: Any, count: int, **kwargs: Any) -> Made:
    return make_vector(EnvironmentConfig(id=env_id, vectorization=vectorization, kwargs=kwargs), count)


CLASS = "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv"


@pytest.mark.parametrize(
    ("env_id", "count", "kwargs", "fewest_ends"),
    [
        ("HalfCheetah-v5", 3, {"max_episode_steps": 60}, 9),
        ("HalfCheetah-v5", 1, {"max_episode_steps": 9, "frame_skip": 2, "ctrl_cost_weight": 0.7}, 20),
        (CLASS, 2, {"exclude_current_positions_from_observation": False}, 0),
        ("Hopper-v5", 7, {"healthy_reward": 0.3}, 20),
        ("Hopper-v5", 2, {"healthy_state_range": (-2.0, 2.0), "exclude_current_positions_from_observation": False}, 5),
        ("Walker2d-v5", 4, {}, 8),
        ("Walker2d-v5", 4, {"terminate_when_unhealthy": False, "max_episode_steps": 50}, 12),
        ("Walker2d-v5", 2, {"terminate_when_unhealthy": 1}, 4),
        ("Swimmer-v5", 2, {"forward_reward_weight": 2.5, "max_episode_steps": 70}, 4),
    ],
)
def test_every_number_is_gymnasium_s(env_id: str, count: int, kwargs: Any, fewest_ends: int) -> None:
    ours, sync = make(env_id, "mujoco", count, **kwargs), make(env_id, "sync", count, **kwargs)
    assert (ours.reward_threshold, ours.max_episode_steps) == (sync.reward_threshold, sync.max_episode_steps)
    assert ours.vector.single_observation_space == sync.vector.single_observation_space
    assert ours.vector.single_action_space == sync.vector.single_action_space
    assert ours.vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    rng = np.random.default_rng(7)
    ends = 0
    # Again in the middle of episodes, and then without seeds: every environment goes on with its own generator.
    for seeds in ([*range(5, 5 + count)], 11, None):
        shown = [made.vector.reset(seed=seeds)[0] for made in (ours, sync)]
        np.testing.assert_array_equal(*shown, strict=True)
        for _ in range(75):
            joints = ours.vector.single_action_space.shape
            actions = rng.uniform(-1.0, 1.0, (count, *joints)).astype(np.float32)
            (*given, info), (*expected, _) = (made.vector.step(actions) for made in (ours, sync))
            for ours_is, theirs_is in zip(given, expected, strict=True):
                np.testing.assert_array_equal(ours_is, theirs_is, strict=True)
            assert info == {}
            ends += int((expected[2] | expected[3]).sum())
    assert ends >= fewest_ends
    ours.vector.close()
    sync.vector.close()


def test_what_it_hands_out_stays_as_it_is() -> None:
    vector = make("Hopper-v5", "mujoco", 2).vector
    shown, _ = vector.reset(seed=[1, 2])
    before = shown.copy()
    first = vector.step(np.ones((2, 3), np.float32))
    copies = [array.copy() for array in first[:4]]
    vector.step(-np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(shown, before)
    for array, copy in zip(first[:4], copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_auto_takes_it_wherever_nothing_else_would_change(tmp_path: Path) -> None:
    cheetah = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "half_cheetah.xml"
    sleepers = str(tmp_path / "sleepers.xml")
    Path(sleepers).write_text(cheetah.read_text().replace("<option", "<option><flag sleep='enable'/></option><option"))
    gymnasium.register("Tamed-v0", CLASS, additional_wrappers=(ClipReward.wrapper_spec(min_reward=-1.0),))
    twice = (TimeLimit.wrapper_spec(max_episode_steps=10),)
    gymnasium.register("Twice-v0", CLASS, max_episode_steps=5, additional_wrappers=twice)
    try:
        for env_id, kwargs, expected in (
            ("HalfCheetah-v5", {}, "mujoco"),
            (CLASS, {}, "mujoco"),
            ("HalfCheetah-v4", {}, "sync"),
            ("Ant-v5", {}, "sync"),
            ("Tamed-v0", {}, "sync"),
            ("Twice-v0", {}, "sync"),
            ("HalfCheetah-v5", {"xml_file": sleepers}, "sync"),
            ("HalfCheetah-v5", {"disable_env_checker": False}, "sync"),
            ("HalfCheetah-v5", {"render_mode": "rgb_array"}, "mujoco"),
        ):
            made = make(env_id, "auto", 2, **kwargs)
            assert made.vectorization == expected, env_id
            made.vector.close()
    finally:
        del gymnasium.registry["Tamed-v0"], gymnasium.registry["Twice-v0"]


@pytest.mark.parametrize(
    ("env_id", "kwargs", "reason"),
    [
        (
            "Ant-v5",
            {},
            r"it steps gymnasium's HalfCheetah, .* \(-v5\), no others; use auto or sync",
        ),
        ("HalfCheetah-v5", {"render_mode": "human"}, "a window shows one environment after every step"),
        ("HalfCheetah-v5", {"disable_env_checker": False}, "it is wrapped in a PassiveEnvChecker"),
    ],
)
def test_what_it_cannot_step_is_refused_in_one_line(env_id: str, kwargs: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"^environment {env_id}: .* is impossible: {reason}") as caught:
        make(env_id, "mujoco", 2, **kwargs)
    assert "\n" not in str(caught.value)


def test_an_old_mujoco_is_refused_and_auto_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mujoco_vector, "find_spec", lambda name: None)
    assert make("HalfCheetah-v5", "auto", 1).vectorization == "sync"
    with pytest.raises(ConfigError, match=r"mujoco is impossible: it needs MuJoCo 3\.17 or newer"):
        make("HalfCheetah-v5", "mujoco", 1)


def test_no_clock_is_read_in_the_physics() -> None:
    make("HalfCheetah-v5", "auto", 1).vector.close()
    bindings = importlib.import_module("mujoco")._callbacks.__file__
    assert ctypes.c_void_p.in_dll(ctypes.CDLL(bindings), "mjcb_time").value is None
    data = gymnasium.make("HalfCheetah-v5").unwrapped.data  # type: ignore[attr-defined]
    assert data.timer.duration.max() == 0.0


@pytest.mark.parametrize("built", [SimpleNamespace(), SimpleNamespace(_callbacks=SimpleNamespace(__file__=None))])
def test_a_mujoco_whose_clock_is_elsewhere_keeps_it(built: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        mujoco_vector._stop_profiler(built)
    assert "goes on reading the clock" in caplog.text
