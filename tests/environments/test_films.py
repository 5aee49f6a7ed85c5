"""Films: one picture after the reset and one after every step, of the first environment, in the right colours."""

import os
import resource
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from distrl.actors.baselines import ConstantPolicy
from distrl.actors.evaluator import Evaluator
from distrl.config.environment import EnvironmentConfig
from distrl.environments.films import Recorder, frames_per_s, renderable, rendered
from distrl.environments.vector import VectorEnvironment
from distrl.environments.worlds.toy import StepCounter
from distrl.errors import ConfigError, DistrlError, EnvironmentFailedError, MissingExtraError

cv2 = pytest.importorskip("cv2")


class Coloured(StepCounter):
    """Red grows with the steps of an episode, green marks every environment but the first, blue is always 0."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 12}
    made: ClassVar[int] = 0

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(terminate_at_steps=4)
        assert render_mode == "rgb_array"
        self._green = 200 * (Coloured.made > 0)
        Coloured.made += 1

    def render(self) -> Any:
        return np.tile(np.array([50 * self._steps, self._green, 0], np.uint8), (64, 96, 1))


def film(path, recorded, count=2, episodes=6, replaced=False):
    Coloured.made = 0
    environment = VectorEnvironment(renderable(EnvironmentConfig(id=f"{__name__}:Coloured")), count)
    with Recorder(environment, path, recorded, replaced=replaced) as recorder:
        policy = ConstantPolicy(environment.spec.actions, {"action": 0})
        assert len([*Evaluator(policy, environment, watch=recorder.watch).episodes(episodes, 0)]) == episodes
    environment.close()


@pytest.mark.parametrize("suffix", [".webm", ".mp4", ".WebM"])
def test_the_file_has_every_picture_of_the_first_episodes(tmp_path, capfd, suffix):
    path = tmp_path / "deep" / f"film{suffix}"
    film(path, 2)
    assert capfd.readouterr().err == ""
    opened = cv2.VideoCapture(str(path))
    assert opened.get(cv2.CAP_PROP_FPS) == 12.0
    pictures = []
    while (read := opened.read())[0]:
        pictures.append(read[1])
    assert [picture.shape for picture in pictures] == [(64, 96, 3)] * 10  # 4 steps and the reset, twice
    blue, green, red = np.array(pictures).mean(axis=(1, 2)).T
    assert red == pytest.approx([0, 50, 100, 150, 200] * 2, abs=8)
    assert (green.max(), blue.max()) == pytest.approx((0, 0), abs=8)


def test_what_cannot_be_filmed_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"--video .*film\.avi: films are \.webm or \.mp4 files"):
        film(tmp_path / "film.avi", 1)
    with pytest.raises(ConfigError, match="environment tcp://host:1 is on another machine and cannot be filmed"):
        renderable(EnvironmentConfig(id="tcp://host:1"))
    with pytest.raises(ConfigError, match=r"environment\.vectorization: envpool cannot be filmed"):
        renderable(EnvironmentConfig(vectorization="envpool"))
    (tmp_path / "taken.mp4").mkdir()
    with pytest.raises(ConfigError, match=r"taken\.mp4 is a directory; name a file in it"):
        film(tmp_path / "taken.mp4", 1)
    os.mkfifo(tmp_path / "pipe.mp4")
    with pytest.raises(ConfigError, match=r"pipe\.mp4 is no file, and one would take its place"):
        film(tmp_path / "pipe.mp4", 1)
    (tmp_path / "run.log").write_text("here")
    with pytest.raises(ConfigError, match=r"--video .*x\.mp4 cannot be written: .*run\.log: File exists"):
        film(tmp_path / "run.log" / "x.mp4", 1)
    (tmp_path / ".tmp-taken2.mp4").mkdir()  # whatever else OpenCV does not like
    with pytest.raises(DistrlError, match=r"taken2\.mp4 cannot be written as a film of 96 x 64 pixels"):
        film(tmp_path / "taken2.mp4", 1)


def pictures_of(path):
    return int(cv2.VideoCapture(str(path)).get(cv2.CAP_PROP_FRAME_COUNT))


def test_a_film_that_is_there_is_replaced_as_a_whole_if_at_all(tmp_path):
    path = tmp_path / "film.mp4"
    film(path, 1)
    with pytest.raises(ConfigError, match=r"film\.mp4 is there already; add --force to replace it"):
        film(path, 2)
    environment = VectorEnvironment(renderable(EnvironmentConfig(id=f"{__name__}:Coloured")), 1)

    def two_pictures(how):
        environment.reset(0)
        with Recorder(environment, path, 1, replaced=True) as recorder:
            recorder.watch(np.array([False]), np.array([True]))
            recorder.watch(np.array([False]), np.array([True]))
            assert pictures_of(path) == 5  # of a process that is killed here, too
            raise how

    def cut_short(how):
        with pytest.raises(type(how)):
            two_pictures(how)

    cut_short(DistrlError("broken"))
    assert (pictures_of(path), [found.name for found in tmp_path.iterdir()]) == (5, ["film.mp4"])
    cut_short(KeyboardInterrupt())
    assert (pictures_of(path), [found.name for found in tmp_path.iterdir()]) == (2, ["film.mp4"])
    environment.close()
    film(path, 2, replaced=True)
    assert pictures_of(path) == 10


class Growing(Coloured):
    """Its pictures grow with every step; `side` is that of the first."""

    def __init__(self, render_mode: str | None = None, side: int = 32, noise: bool = False) -> None:
        super().__init__(render_mode)
        self._side, self._noise = side, noise

    def render(self) -> Any:
        if self._noise:
            return np.random.default_rng(self._steps).integers(0, 256, (self._side, self._side, 3), np.uint8)
        return np.zeros((self._side + self._steps, self._side, 3), np.uint8)


def watched(path, pictures, **kwargs):
    environment = VectorEnvironment(renderable(EnvironmentConfig(id=f"{__name__}:Growing", kwargs=kwargs)), 1)
    environment.reset(0)
    looks = []
    try:
        with Recorder(environment, path, 1, show_life=lambda: looks.append(1)) as recorder:
            for _ in range(pictures):
                recorder.watch(np.array([False]), np.array([True]))
                environment.step({"action": np.array([0])})
    finally:
        environment.close()
    return len(looks)


def test_pictures_of_different_sizes_are_told(tmp_path):
    with pytest.raises(DistrlError, match=r"Growing renders pictures of different sizes, 32 x 32 and 32 x 33$"):
        watched(tmp_path / "film.webm", 3)
    assert [*tmp_path.iterdir()] == []


def test_a_full_disk_is_one_line_and_not_one_for_every_picture(tmp_path, capfd):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(DistrlError, match=r"only \d+ of 40 pictures could be written; is the disk full\?"):
            watched(tmp_path / "film.webm", 40, side=256, noise=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert capfd.readouterr().err == ""
    assert [*tmp_path.iterdir()] == []


def test_a_film_that_is_read_back_shows_life(tmp_path):
    assert watched(tmp_path / "film.webm", 3, side=32, noise=True) == 3


def test_opencv_may_be_missing(tmp_path, monkeypatch):
    def refuse(module, what, extra):
        raise ConfigError(f"{module}: {what} {extra}")

    monkeypatch.setattr("distrl.environments.films.require", refuse)
    with pytest.raises(ConfigError, match="cv2: OpenCV, which writes films, video"):
        Recorder(None, tmp_path / "film.mp4", 1)
    assert not (tmp_path / "film.mp4").exists()


def test_a_game_shows_its_screen_without_being_told():
    config = renderable(EnvironmentConfig.model_validate({"id": "ALE/Pong-v5", "atari": {}}))
    assert (config.kwargs, config.vectorization) == ({}, "sync")


def vector(render, **metadata):
    """Wrap an environment that renders as `render` does."""
    first = SimpleNamespace(render=render, metadata=metadata)
    return SimpleNamespace(unwrapped=SimpleNamespace(envs=[first, SimpleNamespace(render=pytest.fail)]))


def raises(error):
    def render():
        raise error

    return render


def test_the_first_environment_is_shown():
    shown = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    np.testing.assert_array_equal(rendered("e", vector(lambda: shown)), shown)
    assert frames_per_s("e", vector(None, render_fps=50)) == 50.0
    assert frames_per_s("e", vector(None)) == frames_per_s("e", vector(None, render_fps=None)) == 30.0
    for odd in ("fast", -1, np.nan):
        message = rf"its attribute metadata\['render_fps'\] is {odd!r}, it must be a number above 0, or left out"
        with pytest.raises(ConfigError, match=message):
            frames_per_s("e", vector(None, render_fps=odd))


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (None, "a NoneType"),
        ("text", "a str"),
        (np.zeros((2, 2), np.uint8), "uint8 [2, 2]"),
        (np.zeros((2, 2, 3)), "float64 [2, 2, 3]"),
        (np.zeros((2, 2, 4), np.uint8), "uint8 [2, 2, 4]"),
    ],
)
def test_what_is_no_picture_is_one_line(shown, said):
    with pytest.raises(ConfigError) as caught:
        rendered("e", vector(lambda: shown))
    assert str(caught.value) == (
        f"environment e renders {said}: a film is made of rgb_array pictures, uint8 [height, width, 3]"
    )


def test_what_it_draws_with_may_be_missing_and_it_may_fail():
    missing = gymnasium.error.DependencyNotInstalled("pygame")
    with pytest.raises(
        MissingExtraError, match=r"what environment e draws with is not installed: pip install .*\[video\]"
    ):
        rendered("e", vector(raises(missing)))
    with pytest.raises(EnvironmentFailedError, match="environment e failed in render: OSError: no display"):
        rendered("e", vector(raises(OSError("no display"))))
