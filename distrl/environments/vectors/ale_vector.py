"""The Arcade Learning Environment's own vector: many games in C++ threads.

It is used with single frames, raw rewards and whole games. Three of its options are left alone, because they do
something else than `AtariParameters` says: `noop_max` draws 0 … n - 1 no-ops, `episodic_life` resets the game at a lost
life, and a game that its frame limit ends shows an old screen.

Where a game is over, its last observation is the one of the step before: ALE leaves the last screen out, and it
cannot be had. No formula reads that observation: its value counts as 0.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from distrl.config.atari import AtariParameters
from distrl.environments.vectors.next_step import NextStepVector
from distrl.types import Array, BoolArray

_NO_LIMIT = 2**30


class AleVector(NextStepVector):
    """Games in NEXT_STEP autoreset; observations and `info` as `AtariGame`, with a batch axis.

    The limit of frames is kept here: where it ends a game, the vector does not know, so that it shows the true screen.
    """

    def __init__(self, parameters: AtariParameters, game: str, count: int) -> None:
        """Make the games, whose `frame_skip` is one number, without no-ops."""
        assert isinstance(parameters.frame_skip, int)
        height, width = parameters.size
        self._vector = AtariVectorEnv(
            game,
            count,
            num_threads=parameters.threads,
            max_num_frames_per_episode=_NO_LIMIT,
            repeat_action_probability=parameters.repeat_action_probability,
            full_action_space=parameters.full_action_space,
            autoreset_mode=AutoresetMode.NEXT_STEP,
            img_height=height,
            img_width=width,
            grayscale=parameters.greyscale,
            stack_num=1,
            frameskip=parameters.frame_skip,
            maxpool=parameters.max_pool,
            noop_max=0,
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=False,
            use_fire_reset=parameters.fire_reset,
        )
        self._shape = (height, width, 1 if parameters.greyscale else 3)
        super().__init__(count, Box(0, 255, self._shape, np.uint8), self._vector.single_action_space)
        self._limit = parameters.max_frames_per_episode

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        raw, info = self._vector.reset(seed=seed if seed is None or isinstance(seed, int) else np.array(seed))
        self._truncated: BoolArray = np.zeros(self.num_envs, np.bool_)
        self._ended = self._truncated
        self._began_at = info["episode_frame_number"].astype(np.int64)
        return self._shown(raw), self._info(info)

    def step(self, actions: Array) -> tuple[Array, Array, BoolArray, BoolArray, dict[str, Any]]:
        raw, rewards, terminated, _, info = self._vector.step(actions)
        if self._truncated.any():
            # These have played on, as all must be stepped; the result is dropped.
            raw, info = self._vector.reset(options={"reset_mask": self._truncated})
            rewards = np.where(self._truncated, 0, rewards)
            terminated = terminated & ~self._truncated
        self._began_at[self._ended] = info["episode_frame_number"][self._ended]
        shown = self._info(info)
        truncated = (shown["episode_frames"] >= self._limit) & ~terminated
        self._truncated, self._ended = truncated, terminated | truncated
        return self._shown(raw), rewards, terminated, truncated, shown

    def _shown(self, raw: Array) -> Array:
        return raw.reshape(self.num_envs, *self._shape)

    def _info(self, info: dict[str, Array]) -> dict[str, Any]:
        return {"lives": info["lives"], "episode_frames": info["episode_frame_number"] - self._began_at}
