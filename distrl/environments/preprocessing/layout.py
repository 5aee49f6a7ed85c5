"""The order of an image's axes: the channels of images are last in everything that follows the environment."""

from collections.abc import Sequence

from distrl.config.environment import EnvironmentConfig
from distrl.config.preprocessing import MoveAxisStep, PreprocessingStep, TransposeStep
from distrl.errors import ConfigError
from distrl.types import ArraySpec, EnvSpec

_MOST_COLOURS = 4
"""Channels of a single picture: an image whose last axis has no more of them has its channels there."""


def turning(config: EnvironmentConfig, raw: EnvSpec) -> tuple[MoveAxisStep, ...]:
    """Return the steps that put the channels of images last, before any other.

    Args:
        raw: The environment's own spec.

    Raises:
        ConfigError: `environment.image_channels: first`, and no observation has three axes.
    """
    images = [name for name, array in raw.observations.items() if len(array.shape) == 3 and array.frames == 1]
    if config.image_channels == "first" and not images:
        raise ConfigError(
            f"environment {config.id}: environment.image_channels: first, but no observation has three axes; "
            "leave it out"
        )
    if config.image_channels == "auto":
        turned_already = _turned_by(config.preprocessing, images)
        images = [name for name in images if _is_first(raw.observations[name]) and name not in turned_already]
    if config.image_channels == "last":
        images = []
    return tuple(MoveAxisStep(of=name, source=0, destination=2) for name in images)


def notices(config: EnvironmentConfig, raw: EnvSpec, steps: Sequence[MoveAxisStep]) -> tuple[str, ...]:
    """Return a line for each image whose axes are turned because they look so."""
    if config.image_channels != "auto":
        return ()
    return tuple(
        f"environment {config.id}: observation '{step.of}' {list(raw.observations[step.of].shape)} looks like an image "
        "with its channels first; networks take them last. If its axes are height, width and channels, set "
        "environment.image_channels: last"
        for step in steps
        if step.of is not None
    )


def _is_first(array: ArraySpec) -> bool:
    channels, height, width = array.shape
    return channels < min(height, width) and width > _MOST_COLOURS


def _turned_by(steps: Sequence[PreprocessingStep], names: Sequence[str]) -> set[str]:
    """Return which observations the user's own steps turn."""
    turning = [step for step in steps if isinstance(step, MoveAxisStep | TransposeStep)]
    return {name for name in names if any(step.of in (None, name) for step in turning)}
