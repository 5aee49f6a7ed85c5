"""One configuration value chooses who steps; `auto` is never anything but own or sync."""

from typing import Any

import pytest

from distrl.config.environment import EnvironmentConfig
from distrl.environments.vectors.vectorizations import make_vector
from distrl.errors import ConfigError

pytest.importorskip("envpool")


@pytest.mark.row("M18")
@pytest.mark.parametrize(
    ("env_id", "asked", "given"),
    [
        ("CartPole-v1", "auto", "own"),
        ("CartPole-v1", "sync", "sync"),
        ("CartPole-v1", "async", "async"),
        ("CartPole-v1", "envpool", "envpool"),
        ("Acrobot-v1", "auto", "sync"),
        ("gym:CartPole-v1", "auto", "sync"),
    ],
)
def test_the_one_that_is_asked_for(env_id: str, asked: Any, given: str) -> None:
    made = make_vector(EnvironmentConfig(id=env_id, vectorization=asked), 2)
    assert (made.vectorization, made.vector.num_envs) == (given, 2)
    assert made.max_episode_steps == 500
    made.vector.close()


def test_ale_steps_nothing_else() -> None:
    with pytest.raises(ConfigError, match=r"environment CartPole-v1: environment\.vectorization: ale"):
        make_vector(EnvironmentConfig(vectorization="ale"), 2)
