"""Successes of episodes and `environment.metrics`, as environments report them in `info`."""

from dataclasses import replace

import numpy as np

from distrl.actors.acting import PolicyOutput
from distrl.actors.extras.extra import Extra
from distrl.config import RunConfig
from distrl.config.schedules import Progress
from distrl.environments.vector import EnvironmentStep, VectorEnvironment
from distrl.types import EPISODE_METRICS, Array, BoolArray, FloatArray, Unroll


class EpisodeInfos(Extra):
    """Adds successes to an unroll, and the extra `EPISODE_METRICS` if the environment has metrics."""

    def __init__(self, environment: VectorEnvironment) -> None:
        self._environment = environment

    def begin(self, config: RunConfig, progress: Progress) -> None:
        self._ended: list[BoolArray] = []
        self._succeeded: list[Array | None] = []
        self._metrics: list[FloatArray] = []

    def add(self, output: PolicyOutput, step: EnvironmentStep) -> None:
        environment = self._environment
        self._ended.append(step.ended)
        self._succeeded.append(environment.succeeded)
        if environment.episode_metrics is not None:
            self._metrics.append(environment.episode_metrics)

    def close(self, unroll: Unroll) -> Unroll:
        ended = np.stack(self._ended)  # [T, B]
        places = zip(*np.nonzero(ended), strict=True)  # in order of time, as episodes are in unrolls
        successes = np.array([_success(self._succeeded[time], row) for time, row in places], np.int8)
        metrics = {EPISODE_METRICS: np.stack(self._metrics)[ended]} if self._metrics else {}
        return replace(unroll, episode_successes=successes, extras=unroll.extras | metrics)


def _success(succeeded: Array | None, row: int) -> int:
    """Return whether the episode that ended in this row succeeded: 1, 0, or -1 if the environment does not say."""
    success = None if succeeded is None else succeeded[row]
    return -1 if success is None else int(success)
