import keras
import numpy as np
import pytest

from distrl.algorithms.maths.td_targets import chosen_values, greedy_values, item_priorities, mean_over_choices
from distrl.replay.items import sequence_priorities


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


@pytest.mark.parametrize(
    ("sizes", "valid", "expected"),
    [
        ([[3.0, 0.7]], [[True, True]], [3.0, 0.7]),  # transitions: exactly their error
        ([[1.0, 2.0], [3.0, 7.0]], [[True, True], [True, False]], [2.9, 2.0]),  # .9 x 3 + .1 x 2
        ([[4.0, 5.0], [0.0, 5.0]], [[True, False], [True, False]], [3.8, 0.0]),
    ],
)
def test_priorities_of_items_by_hand(sizes, valid, expected):
    found = numpy(item_priorities(np.float32(sizes), np.array(valid)))
    np.testing.assert_allclose(found, np.float32(expected), rtol=1e-6)
    steps, present = np.float32(sizes)[None], np.array(valid)[None]  # the memory's twin, of one unroll's sequence
    np.testing.assert_allclose(sequence_priorities(steps, present), found[None], rtol=1e-6)
