"""Makes remote environments from an address in the configuration: one of them, or several that step at once."""

import time
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import iterate

from distrl.config.environment import EnvironmentConfig
from distrl.environments.remote.connection import Route
from distrl.environments.remote.environment import RemoteEnvironment
from distrl.errors import ConfigError


class RemoteVectorEnvironment(SyncVectorEnv[Any, Any]):
    """Several remote environments that step at once: every request is sent before the first reply is waited for."""

    def __init__(self, route: Route, count: int) -> None:
        made: list[RemoteEnvironment] = []
        try:
            began = time.monotonic()
            for _ in range(count):
                made.append(RemoteEnvironment(route, connect=False))
                made[-1].call_began(began)
                made[-1].connect()
            makers = [lambda each=each: each for each in made]
            super().__init__(makers, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)
        except BaseException:
            for each in made:
                each.close()
            raise
        self._remote = made
        self._over = np.zeros(count, np.bool_)
        self.max_episode_steps, self.reward_threshold = made[0].max_episode_steps, made[0].reward_threshold

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if isinstance(seed, int):
            seed = [int(word) >> 1 for word in np.random.SeedSequence(seed).generate_state(self.num_envs)]
        self._over = np.zeros(self.num_envs, np.bool_)
        self._begin()
        return super().reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._begin()
        for each, over, action in zip(self._remote, self._over, iterate(self.action_space, actions), strict=True):
            if over:
                each.begin_reset()
            else:
                each.begin_step(action)
        result = super().step(actions)
        self._over = result[2] | result[3]
        return result

    def _begin(self) -> None:
        """Begin a call: all time-outs count from here, so that those of several environments do not add up."""
        now = time.monotonic()
        for each in self._remote:
            each.call_began(now)


def make_one(config: EnvironmentConfig) -> RemoteEnvironment:
    """Connect to the environment behind an address; raise ConfigError or EnvironmentFailedError."""
    return RemoteEnvironment(Route.of(config))


def make_vector(config: EnvironmentConfig, count: int) -> RemoteVectorEnvironment:
    """Connect to `count` environments behind one address, each by a connection of its own; errors as `make_one`."""
    if config.vectorization not in ("auto", "own"):
        raise ConfigError(
            f"environment {config.id}: environment.vectorization: {config.vectorization} is impossible: remote "
            "environments have a vectorization of their own; use auto"
        )
    return RemoteVectorEnvironment(Route.of(config), count)
