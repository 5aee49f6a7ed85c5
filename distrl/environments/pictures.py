"""Observations as images or bars of text."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distrl.errors import ConfigError, require
from distrl.types import Array, ArraySpec

Image = NDArray[np.uint8]

_SMALLEST_SIDE_PIXELS = 160
_MOST_BARS = 24
_BAR_CELLS = 20
_CHANNELS = (1, 3)


def picture(spec: ArraySpec, observation: Array) -> Image | None:
    """Return an observation as an image, or None if it is none.

    Args:
        spec: Of the observation. Images have two or three axes; where there are several `frames`, or channels that are
            neither grey nor red, green and blue, they stand side by side, the oldest on the left.
        observation: As the network gets it, without batch axes.

    Returns:
        uint8 [height, width, 1 or 3], red first; small ones enlarged by a whole factor.
    """
    if observation.ndim not in (2, 3) or min(observation.shape[:2]) < 2:
        return None
    pixels = _bytes(spec, observation if observation.ndim == 3 else observation[..., None])
    channels = pixels.shape[-1] // spec.frames
    channels = channels if channels in _CHANNELS else 1
    # [H, W, k * channels] -> k images, side by side
    image = np.concatenate(np.split(pixels, pixels.shape[-1] // channels, axis=-1), axis=1)
    factor = -(-_SMALLEST_SIDE_PIXELS // max(image.shape[:2]))
    return image.repeat(factor, axis=0).repeat(factor, axis=1)


def write_png(path: Path, image: Image) -> None:
    """Write an image of `picture`; raise ConfigError where the file cannot be written."""
    require("cv2", "OpenCV, which writes images,", "image")
    import cv2

    # OpenCV has blue first.
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        written = cv2.imwrite(str(path), image[..., ::-1])
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    if not written:
        raise ConfigError(f"{path} cannot be written")


def bars(observation: Array) -> str:
    """Return one line per number, at most 24: index, value, and a bar to the left or right of the axis.

    The longest bar is that of the largest absolute value; numbers that are not finite have none.
    """
    values = np.asarray(observation, np.float64).ravel()
    finite = values[np.isfinite(values)]
    largest = float(np.abs(finite).max()) if finite.size else 0.0
    lines = []
    for index, value in enumerate(values[:_MOST_BARS]):
        cells = round(_BAR_CELLS * abs(value) / largest) if largest > 0.0 and np.isfinite(value) else 0
        bar = f"{'█' * cells if value < 0 else '':>{_BAR_CELLS}}│{'█' * cells if value > 0 else ''}"
        lines.append(f"[{index}]".rjust(5) + f"{value:12.4g} {bar}")
    if values.size > _MOST_BARS:
        lines.append(f"and {values.size - _MOST_BARS:,} more numbers")
    return "\n".join(lines)


def _bytes(spec: ArraySpec, observation: Array) -> Image:
    """Scale to 0 … 255: bytes stay as they are, others are scaled from their bounds or, without, from their range."""
    if observation.dtype == np.uint8:
        return observation
    values = np.nan_to_num(np.asarray(observation, np.float64), posinf=0.0, neginf=0.0)
    low = values.min() if spec.low is None else spec.low
    high = values.max() if spec.high is None else spec.high
    return np.round(255.0 * np.clip((values - low) / max(high - low, 1e-12), 0.0, 1.0)).astype(np.uint8)
