"""Films of episodes as .webm or .mp4 files, from the pictures of a vector's first environment."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from distrl.config.environment import EnvironmentConfig
from distrl.environments import attributes, gym_adapter
from distrl.environments.remote.connection import is_remote
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError, DistrlError, EnvironmentFailedError, MissingExtraError, require
from distrl.files import check_place
from distrl.types import Array

FRAMES_PER_S = 30.0
CODECS = {".webm": "VP80", ".mp4": "mp4v"}
"""Suffix -> codec: VP8, which browsers play, and MPEG-4 Part 2, which other players do."""


def renderable(config: EnvironmentConfig) -> EnvironmentConfig:
    """Return the same environments with rendering, stepped one after the other in this process."""
    if is_remote(config.id):
        raise ConfigError(f"environment {config.id} is on another machine and cannot be filmed")
    if config.vectorization in ("envpool", "ale"):
        raise ConfigError(
            f"environment {config.id}: environment.vectorization: {config.vectorization} cannot be filmed; leave the "
            "film out"
        )
    # A game of `environment.atari` always shows its screen.
    kwargs = config.kwargs if config.atari is not None else {**config.kwargs, "render_mode": "rgb_array"}
    return config.model_copy(update={"vectorization": "sync", "kwargs": kwargs})


def require_encoder() -> None:
    """Raise MissingExtraError if OpenCV is not installed; do not import it."""
    require("cv2", "OpenCV, which writes films,", "video")


class Recorder:
    """Films the first environment of a vector from its reset on, for a number of episodes.

    Each episode adds the picture after its reset and one after every step. The film gets its name when it is left, also
    when that is early; if by an error, or if the process is killed, what had that name before stays. The same holds if
    the file lacks pictures, which is a DistrlError: OpenCV raises nothing on a full disk.

    Args:
        environment: Made as `renderable` says.
        path: Its directory is made.
        replaced: A film that is there is replaced.
        show_life: Called for each picture that is read back, as a long film takes its time.

    Raises:
        MissingExtraError: OpenCV is not installed.
        ConfigError: Another kind of file than `CODECS` has, it is there already, or it cannot be made.
    """

    def __init__(
        self,
        environment: VectorEnvironment,
        path: Path,
        episodes: int,
        *,
        replaced: bool = False,
        show_life: Callable[[], object] = lambda: None,
    ) -> None:
        require_encoder()
        if path.suffix.lower() not in CODECS:
            raise ConfigError(f"--video {path}: films are {' or '.join(CODECS)} files")
        check_place(path, "--video", force=replaced)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--video {path} cannot be written: {error.filename}: {error.strerror}") from error
        self._environment = environment
        self._path = path
        self._unfinished = path.with_name(f".tmp-{path.name}")
        self._left = episodes
        self._show_life = show_life
        self._pictures = 0
        self._size: tuple[int, ...] = ()
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writer is None:
            return
        self._writer.release()
        failed = kind is not None and issubclass(kind, Exception)  # not Ctrl-C, and not a player that has had enough
        written = 0 if failed else _pictures_in(self._unfinished, self._show_life)
        if written == self._pictures:
            self._unfinished.replace(self._path)
            return
        self._unfinished.unlink(missing_ok=True)
        if not failed:
            raise DistrlError(
                f"{self._path}: only {written:,} of {self._pictures:,} pictures could be written; is the disk full?"
            )

    def watch(self, ended: Array, plays: Array) -> None:
        """Add a picture, of the step that led to it; bool [B] each: its episode ended, or counts at all.

        Raises:
            DistrlError: The picture has another size than those before, or the encoder refuses it; or as `rendered`.
        """
        if self._left == 0 or not plays[0]:
            return
        picture = rendered(self._environment.spec.id, self._environment.vector)
        if self._writer is None:
            self._writer, self._size = self._open(picture), picture.shape[:2]
        if picture.shape[:2] != self._size:
            sizes = " and ".join(f"{width} x {height}" for height, width in (self._size, picture.shape[:2]))
            raise DistrlError(f"environment {self._environment.spec.id} renders pictures of different sizes, {sizes}")
        self._writer.write(np.ascontiguousarray(picture[:, :, ::-1]))  # RGB -> OpenCV's BGR
        self._pictures += 1
        self._left -= int(ended[0])

    def _open(self, picture: Array) -> Any:
        import cv2

        silent = cv2.utils.logging.LOG_LEVEL_SILENT
        cv2.utils.logging.setLogLevel(silent)  # else it prints a line for every picture that a full disk refuses
        height, width = picture.shape[:2]
        fps = frames_per_s(self._environment.spec.id, self._environment.vector)
        codec = cv2.VideoWriter.fourcc(*CODECS[self._path.suffix.lower()])
        with _unheard():
            writer = cv2.VideoWriter(str(self._unfinished), codec, fps, (width, height))
        if not writer.isOpened():
            raise DistrlError(f"{self._path} cannot be written as a film of {width} x {height} pixels")
        return writer


def rendered(env_id: str, vector: VectorEnv[Any, Any, Any]) -> Array:
    """uint8 [height, width, 3], RGB.

    Raises:
        MissingExtraError: The library that the environment draws with is not installed.
        ConfigError: It renders nothing, or something else than such an array.
        EnvironmentFailedError: It raised.
    """
    try:
        shown = first_of(vector).render()
    except gymnasium.error.DependencyNotInstalled as error:
        raise MissingExtraError(f"what environment {env_id} draws with", "video") from error
    except Exception as error:
        raise EnvironmentFailedError(f"environment {env_id} failed in render: {gym_adapter.describe(error)}") from error
    if isinstance(shown, np.ndarray) and shown.dtype == np.uint8 and shown.ndim == 3 and shown.shape[2] == 3:
        return shown
    is_array = isinstance(shown, np.ndarray)
    what = f"{shown.dtype} {list(shown.shape)}" if is_array else f"a {type(shown).__name__}"
    raise ConfigError(
        f"environment {env_id} renders {what}: a film is made of rgb_array pictures, uint8 [height, width, 3]"
    )


def frames_per_s(env_id: str, vector: VectorEnv[Any, Any, Any]) -> float:
    """Return what the environment's metadata say; `FRAMES_PER_S` where they do not.

    Raises:
        ConfigError: They say something that is no number above 0.
    """
    fps = first_of(vector).metadata.get("render_fps")
    if fps is None or fps == 0:
        return FRAMES_PER_S
    if not isinstance(fps, Real) or not 0.0 < float(fps) < math.inf:
        raise attributes.wrong(env_id, "metadata['render_fps']", fps, "a number above 0, or left out")
    return float(fps)


def first_of(vector: VectorEnv[Any, Any, Any]) -> Any:
    """Return the first of the environments that SyncVectorEnv steps, beneath whatever wraps it."""
    return vector.unwrapped.envs[0]  # type: ignore[attr-defined]


def _pictures_in(path: Path, show_life: Callable[[], object] = lambda: None) -> int:
    """Return the number of pictures that can be read."""
    import cv2

    with _unheard():
        film = cv2.VideoCapture(str(path))
        count = 0
        while film.grab():
            count += 1
            show_life()
        film.release()
    return count


@contextmanager
def _unheard() -> Iterator[None]:
    """Silence standard error inside: OpenCV prints that WebM has another tag for VP8, or that a file is damaged."""
    saved = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
