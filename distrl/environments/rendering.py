"""Rendering of the first environment of a vector."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from distrl.environments import gym_adapter
from distrl.errors import ConfigError, EnvironmentFailedError, MissingExtraError
from distrl.types import Array

FRAMES_PER_S = 30.0


def picture(env_id: str, vector: VectorEnv[Any, Any, Any]) -> Array:
    """uint8 [height, width, 3], RGB.

    Raises:
        MissingExtraError: The library that the environment draws with is not installed.
        ConfigError: It renders nothing, or something else than such an array.
        EnvironmentFailedError: It raised.
    """
    try:
        shown = _first(vector).render()
    except gymnasium.error.DependencyNotInstalled as error:
        raise MissingExtraError(f"what environment {env_id} draws with", "video") from error
    except Exception as error:
        raise EnvironmentFailedError(f"environment {env_id} failed in render: {gym_adapter.describe(error)}") from error
    if not isinstance(shown, np.ndarray) or shown.dtype != np.uint8 or shown.ndim != 3 or shown.shape[2] != 3:
        raise ConfigError(f"environment {env_id} renders no pictures (rgb_array): a film cannot be made of it")
    return shown


def frames_per_s(vector: VectorEnv[Any, Any, Any]) -> float:
    """As the environment's metadata say; `FRAMES_PER_S` where they do not."""
    return float(_first(vector).metadata.get("render_fps") or FRAMES_PER_S)


def _first(vector: VectorEnv[Any, Any, Any]) -> Any:
    """The first of the environments that SyncVectorEnv steps, beneath whatever wraps it."""
    return vector.unwrapped.envs[0]  # type: ignore[attr-defined]
