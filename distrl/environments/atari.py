"""Vectors of Atari games by `environment.atari`: they stack frames and tell lost lives from lost games.

A lost life may be `terminated` for the learner and yet end no episode: the game goes on, the next row is valid. The
vector therefore reports it apart, in `info`, and only `VectorEnvironment` joins the two.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from distrl.config.atari import AtariParameters
from distrl.config.environment import EnvironmentConfig
from distrl.environments import gym_adapter
from distrl.errors import ConfigError, require
from distrl.frames import FrameStack
from distrl.types import Array, BoolArray

LIFE_LOST = "distrl/life_lost"
"""In `info`: bool [B], where a lost life is `terminated` for the learner. Missing, unless that is wanted."""

_ENTRY_POINT = "ale_py.env:AtariEnv"
# Allowed in a registration or `environment.kwargs`; the rest is `AtariParameters`.
_KWARGS = {"game", "mode", "difficulty"}
_INFO = {"lives", "episode_frames"}


class AtariVector(VectorWrapper):
    """Games side by side; observations are stacks [B, height, width, stack * channels], the newest frame at the end.

    Args:
        vector: As `AtariGame`, with a batch axis, in NEXT_STEP autoreset.
    """

    def __init__(self, vector: VectorEnv[Any, Any, Any], parameters: AtariParameters) -> None:
        super().__init__(vector)
        *size, channels = vector.single_observation_space.shape or ()
        self.single_observation_space = Box(0, 255, (*size, parameters.stack * channels), np.uint8)
        self.observation_space = batch_space(self.single_observation_space, vector.num_envs)
        self._parameters = parameters
        self._stack = FrameStack(parameters.stack)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        frames, info = self.env.reset(seed=seed, options=options)
        self._lives: Array = np.array(info["lives"])
        self._ended: BoolArray = np.zeros(self.num_envs, np.bool_)
        self._stack.reset()
        return self._stack.push(frames, ~self._ended), info

    def step(self, actions: Array) -> tuple[Array, Array, BoolArray, BoolArray, dict[str, Any]]:
        frames, rewards, terminated, truncated, info = self.env.step(actions)
        lost = (info["lives"] < self._lives) & ~self._ended
        stacks = self._stack.push(frames, self._ended)
        self._lives = np.array(info["lives"])
        self._ended = terminated | truncated
        if self._parameters.episodic_life:
            info = {**info, LIFE_LOST: lost}
        return stacks, rewards + self._parameters.life_loss_reward * lost, terminated, truncated, info


def make_vector(config: EnvironmentConfig, count: int) -> gym_adapter.Made:
    """Make `count` games that step together.

    With vectorization `auto` they are single games, one after the other: on one thread as fast as ALE's vector, and
    right at the end of a game, too.
    """
    parameters = config.atari
    assert parameters is not None
    for module in ("ale_py", "cv2"):
        require(module, f"what environment {config.id} needs", "atari")
    kwargs = _game_kwargs(config)
    if unknown := sorted(config.metrics.keys() - _INFO):
        raise ConfigError(
            f"environment {config.id}: environment.metrics.{unknown[0]} is never in info; with environment.atari "
            f"it has {' and '.join(sorted(_INFO))}"
        )
    if config.vectorization not in ("auto", "sync", "ale"):
        raise ConfigError(
            f"environment {config.id}: environment.atari goes with vectorization auto, sync or ale, "
            f"not with {config.vectorization}"
        )
    if parameters.threads > 1 and config.vectorization != "ale":
        raise ConfigError(
            f"environment {config.id}: environment.atari.threads: {parameters.threads} goes with environment."
            f"vectorization: ale alone, not with {config.vectorization}; leave it out"
        )
    with gym_adapter.refused(f"environment {config.id} cannot be made with {kwargs}"):
        vector = _make(config, parameters, kwargs, count)
    vectorization: Literal["sync", "ale"] = "ale" if config.vectorization == "ale" else "sync"
    skip = parameters.frame_skip
    steps = -(-parameters.max_frames_per_episode // skip) if isinstance(skip, int) else None
    return gym_adapter.Made(vector, vectorization, None, steps, parameters.stack)


def _make(config: EnvironmentConfig, parameters: AtariParameters, kwargs: Mapping[str, Any], count: int) -> AtariVector:
    # Imported here: they need the extra.
    from distrl.environments.atari_game import AtariGame
    from distrl.environments.vectors.ale_vector import AleVector

    if config.vectorization == "ale":
        _check_ale(config, parameters, kwargs)
        return AtariVector(AleVector(parameters, kwargs["game"], count), parameters)
    games = [lambda: AtariGame(parameters, **kwargs)] * count
    vector: SyncVectorEnv[Any, Any] = SyncVectorEnv(games, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)
    return AtariVector(vector, parameters)


def _game_kwargs(config: EnvironmentConfig) -> dict[str, Any]:
    """A game's keyword arguments. The entry point shows that it is one, never the name."""
    entry_point, registered = gym_adapter.declared(config.id)
    if entry_point != _ENTRY_POINT:
        raise ConfigError(
            f"environment {config.id}: environment.atari is for games of the Arcade Learning Environment, such as "
            f"ALE/Pong-v5; leave it out"
        )
    unknown = sorted(config.kwargs.keys() - _KWARGS)
    if unknown:
        raise ConfigError(
            f"environment {config.id}: environment.kwargs has {', '.join(unknown)}; with environment.atari, which says "
            f"how a game is played, kwargs may have {', '.join(sorted(_KWARGS))}"
        )
    kwargs = {name: value for name, value in registered.items() if name in _KWARGS} | config.kwargs
    if "game" not in kwargs:
        raise ConfigError(f"environment {config.id}: environment.kwargs must name the game, such as {{game: pong}}")
    return kwargs


def _check_ale(config: EnvironmentConfig, parameters: AtariParameters, kwargs: Mapping[str, Any]) -> None:
    reasons = {
        "atari.frame_skip of several numbers": not isinstance(parameters.frame_skip, int),
        "atari.noop_max": parameters.noop_max > 0,
        "kwargs.mode": kwargs.get("mode") is not None,
        "kwargs.difficulty": kwargs.get("difficulty") is not None,
    }
    impossible = [what for what, is_wanted in reasons.items() if is_wanted]
    if impossible:
        raise ConfigError(
            f"environment {config.id}: environment.vectorization: ale cannot do environment.{impossible[0]}; "
            "use sync or auto"
        )
