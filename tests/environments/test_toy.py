"""Toy environments: their numbers are what their docstrings say."""

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from distrl.environments.toy import Bandit, Identity, StepCounter


@pytest.mark.filterwarnings("ignore::UserWarning")  # the checker's style advice
@pytest.mark.parametrize("environment_class", [Identity, StepCounter, Bandit])
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
