"""An actor's episodes have the stage with which they began, in their metrics."""

import numpy as np
import pytest

from distrl.actors.curriculum import Curriculum
from distrl.config import RunConfig
from distrl.config.live_settings import steered
from distrl.config.schedules import Progress
from distrl.environments.vector import VectorEnvironment

RULE = {"kind": "by_metric", "values": [0, 3, 5], "metric": "success", "above": 0.5}
STAGE = "environment.curriculum.level.stage"


def configure(**more):
    environment = {
        "id": "tests.faults.leveled:Leveled",
        "kwargs": {"level": 0, "length_steps": 2},
        "curriculum": {"level": RULE},
        **more,
    }
    return RunConfig.model_validate({"environment": environment})


class Playing:
    def __init__(self, config):
        self.environment = VectorEnvironment(config.environment, 2)
        self.curriculum = Curriculum(config.environment, self.environment)
        self.curriculum.follow(config.environment, Progress())
        self.curriculum.begin()
        self.environment.reset(1)

    def step(self):
        step = self.environment.step({"action": np.zeros(2, np.int64)})
        return step, self.curriculum.add_to(self.environment.episode_metrics, step)


@pytest.mark.parametrize("metrics", [{}, {"reached": "last"}])
def test_an_episode_has_the_stage_with_which_it_began(metrics):
    config = configure(metrics=metrics)
    playing = Playing(config)
    assert playing.curriculum.columns == len(metrics) + 1
    playing.step()
    playing.curriculum.follow(steered(config, {STAGE: 1}).environment, Progress())  # within the episode
    _, ended = playing.step()
    assert ended.dtype == np.float32
    assert ended.tolist() == [[*([0.0] if metrics else []), 0.0]] * 2
    step, _ = playing.step()
    assert (step.valid.tolist(), step.observations["observation"].tolist()) == ([False, False], [[3.0], [3.0]])
    playing.step()
    replaced = steered(config, {STAGE: 1, "environment.kwargs.level": 4}, ["level"])
    playing.curriculum.follow(replaced.environment, Progress())
    assert playing.step()[1].tolist() == [[*([3.0] if metrics else []), 1.0]] * 2
    step, _ = playing.step()
    assert step.observations["observation"].tolist() == [[4.0], [4.0]]
    playing.step()
    assert np.isnan(playing.step()[1][:, -1]).all()  # of no stage: an operator chose the value


def test_a_schedule_follows_the_published_steps_and_has_no_column():
    schedule = {"kind": "stages", "values": [1, 2], "at_env_steps": [100]}
    config = configure(curriculum={"level": schedule})
    playing = Playing(config)
    assert playing.curriculum.columns == 0
    step, metrics = playing.step()
    assert (step.observations["observation"].tolist(), metrics) == ([[1.0], [1.0]], None)
    playing.curriculum.follow(config.environment, Progress(100))
    playing.step()
    step, _ = playing.step()
    assert step.observations["observation"].tolist() == [[2.0], [2.0]]
