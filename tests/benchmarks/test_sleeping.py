import numpy as np
import pytest

from benchmarks import sleeping
from distrl.config.environment import EnvironmentConfig
from distrl.environments.vector import VectorEnvironment


def test_every_step_sleeps_and_episodes_end(monkeypatch):
    slept = []
    monkeypatch.setattr(sleeping.time, "sleep", slept.append)
    config = EnvironmentConfig(id="benchmarks.sleeping:Sleeping", kwargs={"step_s": 0.5, "features": 3})
    environment = VectorEnvironment(config, 1)
    assert environment.reset(0)["observation"].tolist() == [[0.0, 0.0, 0.0]]
    steps = [environment.step({"action": np.array([1])}) for _ in range(sleeping.EPISODE_STEPS)]
    environment.close()
    assert slept == [0.5] * sleeping.EPISODE_STEPS
    assert [bool(step.terminated[0]) for step in steps] == [False] * 99 + [True]
    assert sum(step.rewards[0] for step in steps) == pytest.approx(100.0)
