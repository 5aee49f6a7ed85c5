"""Observations as images or bars of text, and films of episodes as .webm or .mp4 files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from distrl.config.environment import EnvironmentConfig
from distrl.environments.remote.connection import is_remote
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError, DistrlError, require
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


CODECS = {".webm": "VP80", ".mp4": "mp4v"}
"""Suffix -> codec: VP8, which browsers play, and MPEG-4 Part 2, which other players do."""


def renderable(config: EnvironmentConfig) -> EnvironmentConfig:
    """Return the same environments with rendering, stepped one after the other in this process."""
    if is_remote(config.id):
        raise ConfigError(f"environment {config.id} is on another machine and cannot be filmed")
    if config.vectorization in ("envpool", "ale"):
        raise ConfigError(
            f"environment {config.id}: environment.vectorization: {config.vectorization} cannot be filmed; evaluate "
            "without --video"
        )
    # A game of `environment.atari` always shows its screen.
    kwargs = config.kwargs if config.atari is not None else {**config.kwargs, "render_mode": "rgb_array"}
    return config.model_copy(update={"vectorization": "sync", "kwargs": kwargs})


class Recorder:
    """Films the first environment of a vector from its reset on, for a number of episodes.

    Each episode adds the picture after its reset and one after every step. The film gets its name when it is left, also
    when that is early; if by an error, or if the process is killed, what had that name before stays.

    Args:
        environment: Made as `renderable` says.
        path: Its directory is made.
        replaced: A film that is there is replaced.

    Raises:
        MissingExtraError: OpenCV is not installed.
        ConfigError: Another kind of file than `CODECS` has, it is there already, or it cannot be made.
    """

    def __init__(self, environment: VectorEnvironment, path: Path, episodes: int, *, replaced: bool = False) -> None:
        require("cv2", "OpenCV, which writes films,", "video")
        if path.suffix.lower() not in CODECS:
            raise ConfigError(f"--video {path}: films are {' or '.join(CODECS)} files")
        if path.is_dir():
            raise ConfigError(f"--video {path} is a directory; name a file in it")
        if path.exists() and not replaced:
            raise ConfigError(f"--video {path} is there already; add --force to replace it, or choose another file")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--video {path} cannot be written: {error.filename}: {error.strerror}") from error
        self._environment = environment
        self._path = path
        self._unfinished = path.with_name(f".tmp-{path.name}")
        self._left = episodes
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writer is None:
            return
        self._writer.release()
        if kind is None or not issubclass(kind, Exception):  # Ctrl-C, or who plays has had enough
            self._unfinished.replace(self._path)
        else:
            self._unfinished.unlink(missing_ok=True)

    def watch(self, ended: Array) -> None:
        """Add a picture; `ended`: bool [B], of the step that led to it. Errors are those of `rendering.picture`."""
        if self._left == 0:
            return
        picture = self._environment.render()
        if self._writer is None:
            self._writer = self._open(picture)
        self._writer.write(np.ascontiguousarray(picture[:, :, ::-1]))  # RGB -> OpenCV's BGR
        self._left -= int(ended[0])

    def _open(self, picture: Array) -> Any:
        import cv2

        height, width = picture.shape[:2]
        fps = self._environment.frames_per_s
        codec = cv2.VideoWriter.fourcc(*CODECS[self._path.suffix.lower()])
        with _unheard():
            writer = cv2.VideoWriter(str(self._unfinished), codec, fps, (width, height))
        if not writer.isOpened():
            raise DistrlError(f"{self._path} cannot be written as a film of {width} x {height} pixels")
        return writer


@contextmanager
def _unheard() -> Iterator[None]:
    """Silence standard error inside: OpenCV prints there that WebM has another tag for VP8."""
    saved = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
