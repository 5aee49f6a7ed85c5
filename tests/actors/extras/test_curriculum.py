"""An actor's episodes have the stage with which they began, in their metrics."""

import numpy as np
import pytest

from distrl.actors.extras.curriculum import Curriculum
from distrl.actors.extras.episode_infos import EpisodeInfos
from distrl.config import RunConfig
from distrl.config.live_settings import steered
from distrl.config.schedules import Progress
from distrl.environments.vector import VectorEnvironment
from distrl.types import EPISODE_METRICS
from tests.actors.extras.unrolls import EMPTY

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
    """Two environments; unrolls have the metrics of episodes and their stages."""

    def __init__(self, config):
        self.environment = VectorEnvironment(config.environment, 2)
        self.extras = EpisodeInfos(self.environment), Curriculum(config.environment, self.environment)
        for extra in self.extras:
            extra.reset(config, Progress())
        self.begin(config)
        self.environment.reset(1)

    def begin(self, config, progress=0):
        for extra in self.extras:
            extra.begin(config, Progress(progress))

    def step(self):
        step = self.environment.step({"action": np.zeros(2, np.int64)})
        for extra in self.extras:
            extra.add(None, step)
        return step

    def metrics(self):
        """Return the metrics of the unroll's ended episodes; None: it has none."""
        unroll = EMPTY
        for extra in self.extras:
            unroll = extra.close(unroll)
        return unroll.extras.get(EPISODE_METRICS)


@pytest.mark.parametrize("metrics", [{}, {"reached": "last"}])
def test_an_episode_has_the_stage_with_which_it_began(metrics):
    config = configure(metrics=metrics)
    playing = Playing(config)
    playing.step()
    assert playing.metrics().shape == (0, len(metrics) + 1)
    playing.begin(steered(config, {STAGE: 1}))  # within the episode
    playing.step()
    ended = playing.metrics()
    assert ended.dtype == np.float32
    assert ended.tolist() == [[*([0.0] if metrics else []), 0.0]] * 2
    step = playing.step()
    assert (step.valid.tolist(), step.observations["observation"].tolist()) == ([False, False], [[3.0], [3.0]])
    playing.step()
    replaced = steered(config, {STAGE: 1, "environment.kwargs.level": 4}, ["level"])
    playing.begin(replaced)
    playing.step()
    assert playing.metrics().tolist() == [[*([3.0] if metrics else []), 1.0]] * 2
    step = playing.step()
    assert step.observations["observation"].tolist() == [[4.0], [4.0]]
    playing.step()
    playing.begin(replaced)
    playing.step()
    assert np.isnan(playing.metrics()[:, -1]).all()  # of no stage: an operator chose the value


def test_episodes_of_one_unroll_stand_in_order_of_time():
    config = configure(metrics={"reached": "last"})
    playing = Playing(config)
    for _ in range(2):
        playing.step()
    playing.begin(steered(config, {STAGE: 2}))
    for _ in range(6):
        playing.step()
    assert playing.metrics().tolist() == [[5.0, 2.0]] * 4


def test_a_schedule_follows_the_published_steps_and_has_no_column():
    schedule = {"kind": "stages", "values": [1, 2], "at_env_steps": [100]}
    config = configure(curriculum={"level": schedule})
    playing = Playing(config)
    step = playing.step()
    assert (step.observations["observation"].tolist(), playing.metrics()) == ([[1.0], [1.0]], None)
    playing.begin(config, 100)
    playing.step()
    step = playing.step()
    assert step.observations["observation"].tolist() == [[2.0], [2.0]]
