import keras
import numpy as np
import pytest

from distrl.networks.weights import check_rate, checked_array, is_mixed, stable_names, to_numpy


def variable(value, **options):
    return keras.Variable(np.asarray(value), name="w", **options)


def test_copies_share_no_memory():
    weight = variable(np.float32([1, 2]))
    copy = to_numpy(weight)
    copy[...] = 9.0
    np.testing.assert_array_equal(to_numpy(weight), [1, 2])


def test_trainable_floats_alone_are_mixed():
    assert is_mixed(variable(np.float32([1.0])))
    assert not is_mixed(variable(np.float32([1.0]), trainable=False))
    assert not is_mixed(variable(np.int32([1]), dtype="int32"))


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_rate_outside_the_interval_is_refused(rate):
    with pytest.raises(ValueError, match=r"rate must be in \[0, 1\]"):
        check_rate(rate)


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_rates_inside_are_taken(rate):
    check_rate(rate)


def test_a_fitting_array_is_taken_in_the_variables_dtype():
    array = checked_array(variable(np.float32([1, 2])), np.array([3.0, 4.0]))
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, [3.0, 4.0])


@pytest.mark.parametrize(
    ("weight", "given", "message"),
    [
        (np.float32([1, 2]), np.zeros(3), r"weight w has shape \(2,\), given \(3,\)"),
        (np.float32([1, 2]), np.float32(1.0), r"weight w has shape \(2,\), given \(\)"),  # nothing is broadcast
        (np.float32([1, 2]), np.array([1.0, np.nan]), "weight w: the given values are not finite"),
        (np.float32([1, 2]), np.array([1.0, -np.inf]), "weight w: the given values are not finite"),
        (np.float32([1, 2]), np.array([1.0, 1e300]), "weight w: the given values are not finite"),  # in float32
        (np.int32([1, 2]), np.array([1.0, np.nan]), "weight w: the given values are not finite"),
        (np.int32([1, 2]), np.array([1.0, 2.5]), "weight w: int32 cannot hold the given values"),
        (np.float32([1, 2]), np.array(["a", "b"]), "weight w: the given values are not numbers"),
    ],
)
def test_what_does_not_fit_is_one_line_of_error(weight, given, message):
    with pytest.raises(ValueError, match=message) as raised:
        checked_array(variable(weight, dtype=str(weight.dtype)), given)
    assert "\n" not in str(raised.value)


class Named:
    """As much of a variable as has a name."""

    def __init__(self, path):
        self.path = path


def test_names_inside_users_layers_are_counted_anew():
    """The same layers, built later in a process: Keras has counted on, and the names stay."""
    first = ["main/model/dense/kernel", "main/model/dense/bias", "main/model/dense_1/kernel", "main/value_head/bias"]
    later = [
        "main/model/dense_7/kernel",
        "main/model/dense_7/bias",
        "main/model/dense_8/kernel",
        "main/value_head/bias",
    ]
    for paths in (first, later):
        assert stable_names([Named(path) for path in paths], ["model"]) == first


def test_names_of_our_own_layers_stay_as_they_are():
    paths = ["main/middleware_dense_0/kernel", "main/middleware_dense_1/kernel"]
    assert stable_names([Named(path) for path in paths], []) == paths


def test_generators_that_keras_counts_through_the_process_are_counted_anew():
    paths = ["main/seed_generator_4/seed_generator_state", "main/seed_generator_9/seed_generator_state"]
    assert stable_names([Named(path) for path in paths], []) == [
        "main/seed_generator/seed_generator_state",
        "main/seed_generator_1/seed_generator_state",
    ]


def test_two_variables_of_one_name_are_told_apart():
    """A user may give several layers one name; none of their weights may vanish from a checkpoint for that."""
    paths = ["main/model/cell/kernel", "main/model/cell/kernel", "main/model/cell/bias"]
    names = stable_names([Named(path) for path in paths], ["model"])
    assert names == ["main/model/cell/kernel", "main/model/cell/kernel_1", "main/model/cell/bias"]
