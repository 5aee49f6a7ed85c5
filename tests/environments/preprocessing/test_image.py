import cv2
import numpy as np
import pytest

from distrl.errors import ConfigError, MissingExtraError
from distrl.types import ArraySpec

IMAGE = np.arange(100, dtype=np.uint8).reshape(10, 10)
PIXEL = np.uint8([[[100, 150, 200]]])
COACH = [0.2989, 0.5870, 0.1140]


@pytest.mark.row("L08.5")
def test_crop_takes_x_for_columns_and_y_for_rows(through):
    crop = {"step": "crop", "x": 1, "y": 2, "width": 3, "height": 4}
    np.testing.assert_array_equal(through(IMAGE, crop), IMAGE[2:6, 1:4], strict=True)
    colour = np.stack([IMAGE, IMAGE + 100], axis=-1)
    np.testing.assert_array_equal(through(colour, crop), colour[2:6, 1:4], strict=True)


@pytest.mark.parametrize(
    ("crop", "why"),
    [
        ({"x": 8, "width": 3, "height": 1}, r"uint8 \(10, 10\): x \+ width is 11, its width is 10"),
        ({"y": 7, "width": 3, "height": 4}, r"y \+ height is 11, its height is 10"),
    ],
)
def test_a_crop_beyond_the_image_is_refused(pipeline, crop, why):
    with pytest.raises(ConfigError, match=why):
        pipeline(ArraySpec((10, 10), "uint8"), {"step": "crop", **crop})


@pytest.mark.row("L08.6", "L10.5", "T21")
@pytest.mark.parametrize("channels", [None, 1, 3, 4, 5, 9])
@pytest.mark.parametrize("interpolation", ["area", "bilinear", "nearest", "bicubic", "lanczos"])
def test_resize_to_width_and_height(through, channels, interpolation):
    shape = (210, 160) if channels is None else (210, 160, channels)
    # Left half black, right half white: a swap of width and height would show.
    image = np.zeros(shape, np.uint8)
    image[:, 80:] = 255
    resized = through(image, {"step": "resize", "width": 84, "height": 60, "interpolation": interpolation})
    assert resized.shape == (60, 84, *shape[2:])
    assert (resized[:, :38] == 0).all()
    assert (resized[:, 46:] == 255).all()


@pytest.mark.row("D106")
def test_resize_by_factor_and_to_size(through):
    image = np.random.default_rng(0).integers(0, 256, (84, 84), np.uint8)
    halved = through(image, {"step": "resize", "factor": 0.5})
    blocks = image.reshape(42, 2, 42, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(halved, blocks, atol=0.5)  # area: the mean of each block
    assert through(image, {"step": "resize", "width": 64, "height": 64}).shape == (64, 64)


@pytest.mark.row("L08.6")
def test_resize_is_opencvs_area_by_default(through):
    image = np.random.default_rng(1).integers(0, 256, (210, 160, 3), np.uint8)
    expected = cv2.resize(image, (84, 60), interpolation=cv2.INTER_AREA)
    np.testing.assert_array_equal(through(image, {"step": "resize", "width": 84, "height": 60}), expected)


@pytest.mark.parametrize("interpolation", ["area", "bicubic", "lanczos"])
def test_what_is_resized_keeps_dtype_and_bounds(pipeline, interpolation):
    given = ArraySpec((9, 7), "float32", 0.0, 1.0)
    made = pipeline(given, {"step": "resize", "width": 5, "height": 13, "interpolation": interpolation})
    assert made.spec.observations["observation"] == ArraySpec((13, 5), "float32", 0.0, 1.0)
    images = np.random.default_rng(0).integers(0, 2, (4, 9, 7)).astype(np.float32)
    out = made.observations({"observation": images}, np.ones(4, bool))["observation"]
    assert (out.min(), out.max()) == (0.0, 1.0)


@pytest.mark.row("D107", "L08.3", "L10.4")
def test_grayscale(through):
    coach = {"step": "grayscale", "weights": COACH}
    assert through(PIXEL, coach).tolist() == [[140]]
    np.testing.assert_allclose(through(PIXEL.astype(np.float32), coach), [[140.74]], rtol=1e-6)
    grey = {"step": "grayscale"}
    np.testing.assert_allclose(through(PIXEL.astype(np.float64), grey), [[140.75]])
    assert through(np.zeros((84, 84, 3), np.uint8), grey).shape == (84, 84)
    assert through(np.zeros((84, 84, 3), np.uint8), {**grey, "keep_axis": True}).shape == (84, 84, 1)


@pytest.mark.row("D107")
def test_grayscale_equals_the_slow_sum_and_white_stays_white(through):
    image = np.random.default_rng(2).integers(0, 256, (64, 64, 3), np.uint8)
    image[0] = 255
    grey = through(image, {"step": "grayscale"})
    # In whole numbers, so that nothing is rounded before it is cut.
    np.testing.assert_array_equal(grey, image.astype(np.int64) @ [299, 587, 114] // 1000)
    assert (grey[0] == 255).all()


@pytest.mark.parametrize("high", [1.0, 255.0])
def test_grey_cropped_small_images_in_stacks_keep_their_bounds(pipeline, high):
    steps = [
        {"step": "crop", "width": 8, "height": 8},
        {"step": "grayscale"},
        {"step": "resize", "width": 4, "height": 4},
        {"step": "stack"},
    ]
    spec = pipeline(ArraySpec((10, 10, 3), "uint8", 0.0, high), *steps).spec.observations["observation"]
    assert spec == ArraySpec((4, 4, 4), "uint8", 0.0, high, frames=4)


def test_grey_bounds_are_the_weighed_ones(pipeline):
    grey = {"step": "grayscale", "weights": [0.5, -0.25]}
    spec = pipeline(ArraySpec((2, 2, 2), "float32", -1.0, 3.0), grey).spec.observations["observation"]
    assert spec == ArraySpec((2, 2), "float32", -1.25, 1.75)
    spec = pipeline(ArraySpec((2, 2, 2), "uint8", 0.0, 255.0), grey).spec.observations["observation"]
    assert spec == ArraySpec((2, 2), "uint8", 0.0, 127.0)


@pytest.mark.row("L08.4")
def test_binary(through):
    assert through(np.uint8([0, 5]), {"step": "binary"}).tolist() == [0, 1]
    assert through(np.float32([0.5, 0.7]), {"step": "binary", "threshold": 0.5}).tolist() == [0, 1]
    image = np.uint8([[[0, 0], [100, 200]]])
    assert through(image, {"step": "binary", "sum_channels": True, "threshold": 299}).tolist() == [[0, 1]]
    assert through(image, {"step": "binary", "sum_channels": True, "keep_axis": True}).tolist() == [[[0], [1]]]


@pytest.mark.parametrize(
    ("given", "step", "why"),
    [
        (ArraySpec((4,), "uint8"), "resize", r"images are \[height, width\] or \[height, width, channels\]"),
        (ArraySpec((4, 4), "int64"), "resize", "images are of uint8, int16, uint16, float32, float64; put to_dtype"),
        (ArraySpec((4, 4), "uint8"), "grayscale", "it has no channels, and there are 3 weights"),
        (ArraySpec((4, 4, 4), "uint8"), "grayscale", "it has 4 channels, and there are 3 weights"),
        (ArraySpec((4, 4, 3), "int16"), "grayscale", "images are of uint8, float32, float64; put to_dtype before it"),
    ],
)
def test_what_is_no_image_is_refused(pipeline, given, step, why):
    parameters = {"factor": 0.5} if step == "resize" else {}
    with pytest.raises(ConfigError, match=why):
        pipeline(given, {"step": step, **parameters})


def test_without_opencv_the_extra_is_named(pipeline, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install '.*\[image\]'"):
        pipeline(ArraySpec((4, 4), "uint8"), {"step": "resize", "factor": 0.5})


def test_a_picture_that_no_memory_holds_is_refused(pipeline):
    with pytest.raises(ConfigError, match="200000 x 200000 make 40000000000 numbers of it; 16777216 is the most"):
        pipeline(ArraySpec((4, 4), "uint8"), {"step": "resize", "width": 200_000, "height": 200_000})
