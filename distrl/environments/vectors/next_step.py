"""The frame of vectors that distrl steps itself."""

from typing import Any

from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class NextStepVector(VectorEnv[Any, Any, Any]):
    """`count` environments in NEXT_STEP autoreset, whose spaces are batches of a single environment's."""

    def __init__(self, count: int, observation_space: Space[Any], action_space: Space[Any]) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs = count
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, count)
        self.action_space = batch_space(action_space, count)
