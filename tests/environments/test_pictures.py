"""Images and bars of observations, by content."""

import cv2
import numpy as np
import pytest

from distrl.environments import pictures as module
from distrl.environments.pictures import bars, picture, write_png
from distrl.errors import ConfigError, MissingExtraError
from distrl.types import ArraySpec


def spec_of(array, **kwargs):
    return ArraySpec(array.shape, array.dtype.name, **kwargs)


@pytest.mark.parametrize("shape", [(200, 160, 3), (200, 160, 1), (160, 200)])
def test_an_image_of_bytes_stays_as_it_is(shape):
    image = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    found = picture(spec_of(image), image)
    np.testing.assert_array_equal(found, image if image.ndim == 3 else image[..., None])


def test_small_images_are_enlarged_by_a_whole_factor():
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    found = picture(spec_of(image), image)
    assert found.shape == (160, 160, 3)
    np.testing.assert_array_equal(found[::80, ::80], image)
    np.testing.assert_array_equal(found[79::80, 79::80], image)


def test_frames_and_unknown_channels_stand_side_by_side_the_oldest_first():
    frames = np.stack([np.full((160, 84), value, np.uint8) for value in (10, 20, 30, 40)], axis=-1)
    for frame_count in (4, 1):
        found = picture(spec_of(frames, frames=frame_count), frames)
        assert found.shape == (160, 4 * 84, 1)
        assert found[0, ::84, 0].tolist() == [10, 20, 30, 40]
    colours = np.concatenate([np.full((160, 84, 3), value, np.uint8) for value in (1, 2)], axis=-1)
    found = picture(spec_of(colours, frames=2), colours)
    assert found.shape == (160, 168, 3)
    assert found[0, ::84].tolist() == [[1] * 3, [2] * 3]


def test_numbers_become_bytes_from_their_bounds_or_from_what_there_is():
    values = np.array([[0.0, 0.5], [1.0, np.nan]], np.float32)
    assert picture(spec_of(values, low=0.0, high=2.0), values)[::80, ::80, 0].tolist() == [[0, 64], [128, 0]]
    assert picture(spec_of(values), values)[::80, ::80, 0].tolist() == [[0, 128], [255, 0]]
    same = np.full((2, 2), 3.0)
    assert picture(spec_of(same), same).max() == 0


@pytest.mark.parametrize("shape", [(4,), (), (1, 9), (9, 1, 3), (3, 3, 3, 3)])
def test_what_is_no_image(shape):
    array = np.zeros(shape, np.uint8)
    assert picture(spec_of(array), array) is None


def test_a_file_holds_the_colours_as_they_are(tmp_path):
    image = np.zeros((2, 2, 3), np.uint8)
    image[0, 0] = (255, 128, 0)
    path = tmp_path / "new" / "x.png"
    write_png(path, image)
    assert cv2.imread(str(path))[0, 0].tolist() == [0, 128, 255]  # blue first
    write_png(path, image[..., :1])
    assert cv2.imread(str(path), cv2.IMREAD_UNCHANGED).tolist() == [[255, 0], [0, 0]]


def test_without_opencv_the_extra_is_named(tmp_path, monkeypatch):
    def missing(name, what, extra):
        assert name == "cv2"
        raise MissingExtraError(what, extra)

    monkeypatch.setattr(module, "require", missing)
    with pytest.raises(MissingExtraError, match=r"pip install '.*\[image\]'"):
        write_png(tmp_path / "x.png", np.zeros((2, 2, 3), np.uint8))


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/x\.png cannot be written: "):
        write_png(tmp_path / "file" / "x.png", np.zeros((2, 2, 3), np.uint8))


def test_bars_go_both_ways_from_the_axis():
    empty, half, whole = " " * 20, "█" * 10, "█" * 20
    assert bars(np.array([2.0, -1.0, 0.0, np.nan, -2.0])).split("\n") == [
        f"  [0]           2 {empty}│{whole}",
        f"  [1]          -1 {' ' * 10}{half}│",
        f"  [2]           0 {empty}│",
        f"  [3]         nan {empty}│",
        f"  [4]          -2 {whole}│",
    ]


def test_bars_of_much_of_nothing_and_of_one_number():
    assert bars(np.arange(30.0)).splitlines()[24:] == ["and 6 more numbers"]
    assert bars(np.zeros((2, 2))).count("│") == 4
    assert bars(np.float32(1.5)).startswith("  [0]         1.5 ")
    assert bars(np.array([np.nan])) == f"  [0]         nan {' ' * 20}│"
