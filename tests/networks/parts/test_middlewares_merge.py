import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.networks.parts.middlewares import merge

SPEED, CAMERA = np.float32([[3, 4]]), np.float32([[1, 2]])


@pytest.mark.row("A11", "L04.1")
def test_concat_joins_and_sum_adds_in_the_order_of_the_names():
    given = {"speed": SPEED, "camera": CAMERA}
    np.testing.assert_array_equal(np.asarray(merge(given, "Concat")), [[1, 2, 3, 4]])
    np.testing.assert_array_equal(np.asarray(merge(given, "Sum")), [[4, 6]])


@pytest.mark.row("L04.1")
def test_concat_takes_unequal_widths():
    merged = merge({"a": np.ones((5, 2), np.float32), "b": np.ones((5, 3), np.float32)}, "Concat")
    assert merged.shape == (5, 5)


@pytest.mark.row("A11")
def test_a_sum_of_unequal_widths_names_them():
    with pytest.raises(ConfigError, match="merger Sum needs inputs of one width, these have: camera 2, speed 1"):
        merge({"speed": SPEED[:, :1], "camera": CAMERA}, "Sum")


@pytest.mark.parametrize("kind", ["Concat", "Sum"])
def test_a_single_embedding_stays_as_it_is(kind):
    assert merge({"speed": SPEED}, kind) is SPEED
