"""16-bit weights: exact where the format is, rounded to nearest even where not, refused where they do not fit."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from distrl.errors import DecodeError, NonFiniteError
from distrl.memory_backend.codec import decode_weights, encode_weights, narrowed, widened
from distrl.types import Weights

FINITE = arrays(np.float32, (3, 2), elements=st.floats(-1e4, 1e4, width=32))


@given(FINITE)
def test_bfloat16_is_what_another_library_makes_of_it(array):
    there_and_back = widened("w", narrowed("w", array, "bfloat16"), "bfloat16")
    assert np.array_equal(there_and_back, array.astype(ml_dtypes.bfloat16).astype(np.float32))


@given(FINITE)
def test_float16_is_numpys(array):
    there_and_back = widened("w", narrowed("w", array, "float16"), "float16")
    assert np.array_equal(there_and_back, array.astype(np.float16).astype(np.float32))


def test_ties_go_to_even_and_scalars_work():
    # 1 + 2^-8 lies in the middle of 1 and 1 + 2^-7; 1 + 3 * 2^-8 in the middle of 1 + 2^-7 and 1 + 2^-6
    array = np.float32([1 + 2**-8, 1 + 3 * 2**-8])
    assert widened("w", narrowed("w", array, "bfloat16"), "bfloat16").tolist() == [1.0, 1 + 2**-6]
    assert widened("w", narrowed("w", np.array(2.5, np.float32), "bfloat16"), "bfloat16") == 2.5


def test_what_does_not_fit_is_refused():
    with pytest.raises(NonFiniteError, match="weights w do not fit float16, which ends at 65504"):
        narrowed("w", np.float32([7e4]), "float16")
    with pytest.raises(NonFiniteError, match="weights w do not fit bfloat16"):
        narrowed("w", np.float32([3.4e38]), "bfloat16")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_weights_travel_in_order_and_other_dtypes_stay(dtype):
    weights = Weights(
        3, {"b": np.float32([1.5, -0.25]), "a": np.array([7, 70_000], np.int32), "c": np.array(2.0, np.float32)}
    )
    blob = encode_weights(weights, dict.fromkeys(weights.arrays, dtype))
    decoded = decode_weights(blob)
    assert (decoded.version, list(decoded.arrays)) == (3, ["b", "a", "c"])
    for name, array in weights.arrays.items():
        assert decoded.arrays[name].dtype == array.dtype
        assert np.array_equal(decoded.arrays[name], array)


def test_16_bits_are_half_the_bytes():
    arrays = {"kernel": np.ones((256, 256), np.float32)}
    full, half = (len(encode_weights(Weights(1, arrays), {"kernel": dtype})) for dtype in ("float32", "bfloat16"))
    assert 0.5 < half / full < 0.502


@pytest.mark.parametrize(("array", "dtype"), [(np.ones(2, np.float32), "float16"), (np.ones(2, np.uint16), "evil")])
def test_a_description_that_does_not_fit_is_refused(array, dtype):
    with pytest.raises(DecodeError, match="weights w are"):
        widened("w", array, dtype)
