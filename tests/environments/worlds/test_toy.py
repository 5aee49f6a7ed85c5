"""Toy environments: their numbers are what their docstrings say."""

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from distrl.config.environment import EnvironmentConfig
from distrl.environments.vector import VectorEnvironment
from distrl.environments.worlds.toy import Bandit, Homing, Identity, MemoryCue, Mixed, Reach, StepCounter


@pytest.mark.filterwarnings("ignore::UserWarning")  # the checker's style advice
@pytest.mark.parametrize("environment_class", [Identity, StepCounter, Bandit, MemoryCue, Mixed, Reach, Homing])
def test_keeps_gymnasium_s_contract(environment_class: type) -> None:
    check_env(environment_class(), skip_render_check=True)


def test_identity_pays_for_repeating_what_it_showed() -> None:
    environment = Identity(n=3, length_steps=40)
    shown, _ = environment.reset(seed=7)
    symbols = set()
    for step in range(1, 41):
        action = shown if step % 2 else (shown + 1) % 3
        shown, reward, terminated, truncated, _ = environment.step(action)
        symbols.add(int(shown))
        assert reward == float(step % 2)
        assert (terminated, truncated) == (step == 40, False)
    assert symbols == {0, 1, 2}


@pytest.mark.parametrize(
    ("terminate_at", "truncate_at", "flags"), [(3, None, (True, False)), (9, 3, (False, True)), (3, 3, (True, True))]
)
def test_step_counter_counts_and_ends_as_told(
    terminate_at: int, truncate_at: int | None, flags: tuple[bool, bool]
) -> None:
    environment = StepCounter(terminate_at, truncate_at)
    assert environment.max_episode_steps == truncate_at
    for _ in range(2):
        first, _ = environment.reset()
        rows = [environment.step(np.int64(0))[:4] for _ in range(3)]
        assert [float(first[0]), *(float(row[0][0]) for row in rows)] == [0, 1, 2, 3]
        assert [row[1] for row in rows] == [1, 2, 3]
        assert [row[2:] for row in rows] == [(False, False), (False, False), flags]


def test_bandit_arms_pay_their_means_in_episodes_of_one_step() -> None:
    environment = Bandit(means=(0.0, 0.25, 1.0))
    environment.reset(seed=3)
    paid = np.zeros(3)
    for arm in range(3):
        for _ in range(2000):
            observation, reward, terminated, truncated, _ = environment.step(np.int64(arm))
            assert (float(observation[0]), terminated, truncated) == (0.0, True, False)
            paid[arm] += reward
            environment.reset()
    # 2000 draws of p = 0.25: standard deviation 0.0097.
    np.testing.assert_allclose(paid / 2000, [0.0, 0.25, 1.0], atol=0.04)


@pytest.mark.parametrize("right", [True, False])
def test_memory_cue_pays_for_what_was_shown_ten_steps_ago(right: bool) -> None:
    environment = MemoryCue()
    cues = []
    for episode in range(30):
        shown, _ = environment.reset(seed=episode)
        assert (shown[:2].sum(), shown[2]) == (1.0, 0.0)
        cues.append(int(shown[1]))
        for step in range(11):
            # Before the last step the right answer earns nothing.
            action = cues[-1] if right or step < 10 else 1 - cues[-1]
            observation, reward, terminated, truncated, _ = environment.step(np.int64(action))
            assert observation.tolist() == [0.0, 0.0, np.float32((step + 1) / 11)]
            assert (reward, terminated, truncated) == (float(right and step == 10), step == 10, False)
    assert set(cues) == {0, 1}


def memory_cue(vectorization: str, count: int, **kwargs: int) -> VectorEnvironment:
    return VectorEnvironment(
        EnvironmentConfig(id="distrl.environments.worlds.toy:MemoryCue", vectorization=vectorization, kwargs=kwargs),
        count,
    )


@pytest.mark.parametrize(("n", "delay_steps"), [(2, 10), (5, 3), (3, 0)])
def test_memory_cue_s_own_vectorization_steps_as_sync(n: int, delay_steps: int) -> None:
    """Row by row, once the singles behind sync have own's cues: own draws them from one generator."""
    own, sync = (memory_cue(kind, 6, n=n, delay_steps=delay_steps) for kind in ("own", "sync"))
    assert memory_cue("auto", 1, n=n, delay_steps=delay_steps).vectorization == "own"
    assert (own.vectorization, sync.vectorization) == ("own", "sync")
    assert own.spec == sync.spec
    assert own.spec.reward_threshold == 0.95
    ours, theirs = own.reset(3)["observation"], sync.reset(3)["observation"]
    seen, paid = np.zeros(n, int), 0.0
    for actions in np.random.default_rng(0).integers(n, size=(300, 6), dtype=np.int32):
        if ours[0, -1] == 0.0:  # the first row of an episode
            np.testing.assert_array_equal(ours[:, -1], theirs[:, -1])
            np.testing.assert_array_equal(ours[:, :n].sum(axis=1), theirs[:, :n].sum(axis=1))
            seen += ours[:, :n].sum(axis=0).astype(int)
            for single, cue in zip(sync.vector.envs, ours[:, :n].argmax(axis=1), strict=True):
                single._cue = cue
        else:
            np.testing.assert_array_equal(ours, theirs)
        left, right = own.step({"action": actions}), sync.step({"action": actions})
        for name in ("rewards", "terminated", "truncated", "valid"):
            np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
        paid += left.rewards.sum()
        ours, theirs = left.observations["observation"], right.observations["observation"]
    assert paid > 0
    assert (seen > 0).all()
    assert seen.sum() == 6 * np.ceil(300 / (delay_steps + 2))  # with the row of the reset


def test_memory_cue_s_own_vectorization_repeats_with_its_seed() -> None:
    environment = memory_cue("own", 64)
    first, again, other = (environment.reset(seed)["observation"] for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_reach_pays_the_squared_distance_to_the_target_shown_before() -> None:
    environment = Reach(scale=4.0, length_steps=3)
    target, _ = environment.reset(seed=1)
    targets = [target]
    for step, offset in enumerate([(0.0, 0.0), (0.5, 0.0), (-0.5, 1.0)], start=1):
        action = 4.0 * (target + np.float32(offset))
        target, reward, terminated, truncated, _ = environment.step(action)
        targets.append(target)
        assert reward == pytest.approx(-(offset[0] ** 2) - offset[1] ** 2, abs=1e-6)
        assert (terminated, truncated) == (step == 3, False)
    assert len({tuple(row) for row in np.array(targets).tolist()}) == 4
    assert environment.action_space.high.tolist() == [4.0, 4.0]


def test_reach_without_moving_has_the_mean_that_it_says() -> None:
    environment = Reach(length_steps=3000)
    environment.reset(seed=2)
    rewards = [environment.step(np.zeros(2, np.float32))[1] for _ in range(3000)]
    # One step: variance 2 (1/5 - 1/9) = 0.178, so the mean of 3000 has a deviation of 0.008.
    assert np.mean(rewards) == pytest.approx(-2 / 3, abs=0.04)


def read_targets(shown: np.ndarray) -> dict[str, np.ndarray]:
    """The action that hits every target, out of the observation alone."""
    return {
        "symbol": 1 + shown[:3].argmax(),
        "choices": np.array([shown[3:5].argmax(), shown[5:8].argmax()]),
        "switches": shown[8:10].astype(np.int8),
        "bounded": shown[10:12],
        "free": shown[12:].reshape(1, 2).astype(np.float64),
    }


def test_mixed_pays_everything_for_what_the_observation_shows() -> None:
    environment = Mixed(length_steps=50)
    shown, _ = environment.reset(seed=4)
    for step in range(1, 51):
        action = read_targets(shown)
        assert environment.action_space.contains(action)
        shown, reward, terminated, truncated, _ = environment.step(action)
        assert reward == pytest.approx(1.0, abs=1e-6)
        assert (terminated, truncated) == (step == 50, False)


def test_mixed_closeness_of_each_action() -> None:
    environment = Mixed()
    shown, _ = environment.reset(seed=4)
    action = read_targets(shown)
    action["symbol"] = action["symbol"] % 3 + 1
    action["choices"] = action["choices"] ^ [1, 0]
    action["switches"] = 1 - action["switches"]
    action["bounded"] = action["bounded"] + np.float32([0.5, 0.0])
    action["free"] = action["free"] + np.array([[1.0, 1.0]])
    found = environment.closeness(action)
    expected = {"symbol": 0.0, "choices": 0.5, "switches": 0.0, "bounded": np.exp(-0.25), "free": np.exp(-2.0)}
    assert found == pytest.approx(expected, abs=1e-6)
    assert environment.step(action)[1] == pytest.approx(sum(expected.values()) / 5, abs=1e-6)


def test_homing_pays_for_where_the_point_was_and_ends_by_a_time_limit() -> None:
    env = Homing(length_steps=3, reach=0.5)
    start, _ = env.reset(seed=0)
    point, reward, terminated, truncated, _ = env.step(np.float32([-1.0]))
    assert reward == -abs(start[0])
    assert point[0] == pytest.approx(max(start[0] - 0.5, -1.0))
    assert (terminated, truncated) == (False, False)
    for expected in (False, True):
        before = point[0]
        point, reward, terminated, truncated, _ = env.step(np.float32([1.0]))
        assert reward == pytest.approx(-abs(before))
        assert point[0] == pytest.approx(min(before + 0.5, 1.0))
        assert (terminated, truncated) == (False, expected)
