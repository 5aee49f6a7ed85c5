import keras
import numpy as np
import pytest

from distrl.algorithms.maths.td_targets import chosen_values, greedy_values, mean_over_choices


def numpy(tensor):
    return np.asarray(keras.ops.convert_to_numpy(tensor))


@pytest.mark.row("D150")
def test_the_best_choice_of_the_target_network():
    np.testing.assert_array_equal(numpy(greedy_values(np.float32([[1.0, 3.0], [5.0, -1.0]]))), [3.0, 5.0])


@pytest.mark.row("D151")
def test_double_the_online_network_chooses_and_the_target_network_values():
    """The online network prefers choice 0, which the target network values at 1; y = 1 + .99 x 1."""
    value = numpy(greedy_values(np.float32([[1.0, 3.0]]), np.float32([[5.0, 1.0]])))
    np.testing.assert_array_equal(value, [1.0])
    assert 1.0 + 0.99 * value[0] == pytest.approx(1.99)


@pytest.mark.parametrize("seed", range(5))
def test_against_plain_indexing(seed):
    rng = np.random.default_rng(seed)
    # few different numbers, so that there are equals
    values, choosing = rng.integers(-3, 3, (2, 3, 4, 5)).astype(np.float32)
    taken = rng.integers(0, 5, (3, 4)).astype(np.int32)
    double = np.empty((3, 4), np.float32)
    chosen = np.empty((3, 4), np.float32)
    for t, n in np.ndindex(3, 4):
        double[t, n] = values[t, n, int(np.argmax(choosing[t, n]))]
        chosen[t, n] = values[t, n, taken[t, n]]
    np.testing.assert_array_equal(numpy(chosen_values(values, taken)), chosen)
    np.testing.assert_array_equal(numpy(greedy_values(values, choosing)), double)
    np.testing.assert_array_equal(numpy(greedy_values(values)), values.max(axis=-1))


@pytest.mark.row("H15")
def test_errors_of_several_choices_are_averaged_after_squaring():
    """Errors of +1 and -1: their mean is 0, the mean of their squares 1."""
    errors = [np.float32([[1.0, 2.0]]), np.float32([[-1.0, 0.0]])]
    np.testing.assert_array_equal(numpy(mean_over_choices([error**2 for error in errors])), [[1.0, 2.0]])
    np.testing.assert_array_equal(numpy(mean_over_choices(errors)), [[0.0, 1.0]])
