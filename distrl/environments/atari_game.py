"""One game of the Arcade Learning Environment, stepped frame by frame by the protocol of `AtariParameters`.

Not gymnasium's `AtariPreprocessing`, which skips a fixed number of frames only and, where a game ends inside a skip,
shows what it had shown before.
"""

from typing import Any

import cv2
import gymnasium
import numpy as np
from ale_py import Action
from ale_py.env import AtariEnv
from gymnasium.spaces import Box

from distrl.config.atari import AtariParameters
from distrl.types import Array


class AtariGame(gymnasium.Env[Array, np.int64]):
    """One game. Observations are uint8 [height, width, channels], with one channel of grey or three colours.

    `info` has "lives", those that are left (0 in games that count none), and "episode_frames", since the game began.
    """

    def __init__(self, parameters: AtariParameters, game: str, **kwargs: Any) -> None:
        """Make the game.

        Args:
            game: Name of the ROM, such as "ms_pacman".
            kwargs: `mode` and `difficulty` of `AtariEnv`.
        """
        self._parameters = parameters
        self._console = AtariEnv(
            game=game,
            frameskip=1,
            repeat_action_probability=parameters.repeat_action_probability,
            full_action_space=parameters.full_action_space,
            **kwargs,
        )
        self._ale = self._console.ale
        full = parameters.full_action_space
        self._actions = self._ale.getLegalActionSet() if full else self._ale.getMinimalActionSet()
        channels = 1 if parameters.greyscale else 3
        self._screens = np.empty((2, *self._ale.getScreenDims(), channels), np.uint8)
        self.action_space = self._console.action_space
        # Of a console's 60 frames a second, as many as there are steps.
        skip = parameters.frame_skip if isinstance(parameters.frame_skip, int) else 1
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 60 / skip}
        self.observation_space = Box(0, 255, (*parameters.size, channels), np.uint8)

    @property
    def action_names(self) -> tuple[str, ...]:
        """NOOP, FIRE, …, in the order of the actions' numbers."""
        return tuple(self._console.get_action_meanings())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._console.reset(seed=seed)
        if self._parameters.noop_max:
            self._press(Action.NOOP, int(self.np_random.integers(1, self._parameters.noop_max + 1)))
        if self._parameters.fire_reset and Action.FIRE in self._actions:
            self._press(Action.FIRE, 1)
        self._began_at = self._ale.getEpisodeFrameNumber()
        self._photograph(0)
        return self._observation(1), self._info()

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Hold the action for as many frames as it lasts, or until the game is over."""
        skip, pool = self._draw_skip(), 2 if self._parameters.max_pool else 1
        pressed = self._actions[int(action)]
        reward, photographed, over = 0.0, 0, False
        for frame in range(1, skip + 1):
            reward += self._ale.act(pressed)
            over = self._ale.game_over(with_truncation=False)
            # A game that is over shows its last frame, also where the skip would have gone on.
            if over or frame > skip - pool:
                self._photograph(photographed)
                photographed += 1
            if over:
                break
        info = self._info()
        truncated = not over and info["episode_frames"] >= self._parameters.max_frames_per_episode
        return self._observation(photographed), reward, over, truncated, info

    def render(self) -> Array:
        screen: Array = self._ale.getScreenRGB()
        return screen

    def _draw_skip(self) -> int:
        skip = self._parameters.frame_skip
        return skip if isinstance(skip, int) else int(self.np_random.integers(*skip))

    def _press(self, action: Action, count: int) -> None:
        for _ in range(count):
            self._ale.act(action)
            if self._ale.game_over(with_truncation=False):
                self._ale.reset_game()

    def _photograph(self, position: int) -> None:
        screen = self._screens[position]
        if self._parameters.greyscale:
            self._ale.getScreenGrayscale(screen[..., 0])
        else:
            self._ale.getScreenRGB(screen)

    def _observation(self, screens: int) -> Array:
        """The maximum over the first `screens` of those photographed, scaled down."""
        screen = self._screens[0] if screens == 1 else np.maximum(*self._screens)
        height, width = self._parameters.size
        scaled: Array = cv2.resize(screen, (width, height), interpolation=cv2.INTER_AREA)
        return scaled.reshape(height, width, -1)

    def _info(self) -> dict[str, Any]:
        frames = self._ale.getEpisodeFrameNumber() - self._began_at
        return {"lives": self._ale.lives(), "episode_frames": frames}
