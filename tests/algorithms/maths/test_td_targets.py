import keras
import numpy as np
import pytest

from distrl.algorithms.maths.td_targets import (
    chosen_distributions,
    chosen_values,
    greedy_distributions,
    greedy_values,
    item_priorities,
    mean_over_choices,
    projected,
    rescaled,
    unscaled,
)
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


def projected_slowly(probabilities, support, reward, discount):
    """Algorithm 1 of Bellemare, Dabney and Munos 2017 for one step, as the paper has it: atom by atom."""
    width, projection = support[1] - support[0], np.zeros(len(support))
    for probability, atom in zip(probabilities, support, strict=True):
        moved = min(max(reward + discount * atom, support[0]), support[-1])
        place = round((moved - support[0]) / width, 6)  # of the last atom exactly its index
        lower, upper = int(np.floor(place)), int(np.ceil(place))
        if lower == upper:
            projection[lower] += probability
        else:
            projection[lower] += probability * (upper - place)
            projection[upper] += probability * (place - lower)
    return projection


@pytest.mark.row("D153", "D07.3")
@pytest.mark.parametrize(
    ("reward", "discount", "expected"),
    [
        (0.5, 1.0, [0.0, 0.5, 0.5]),  # 1 moves to 1.5, halfway between the atoms 1 and 2
        (0.5, 0.0, [0.5, 0.5, 0.0]),  # it terminated: all of it moves to .5
        (9.0, 1.0, [0.0, 0.0, 1.0]),
        (-9.0, 1.0, [1.0, 0.0, 0.0]),
        (0.0, 1.0, [0.0, 1.0, 0.0]),
    ],
)
def test_a_projection_by_hand(reward, discount, expected):
    """Support [0, 1, 2], all probability at 1."""
    support = np.float32([0.0, 1.0, 2.0])
    found = projected(np.float32([0.0, 1.0, 0.0]), support, np.float32(reward), np.float32(discount))
    np.testing.assert_allclose(numpy(found), expected, atol=1e-6)


@pytest.mark.row("D153")
@pytest.mark.parametrize("seed", range(5))
def test_projections_of_a_batch_are_the_papers(seed):
    rng = np.random.default_rng(seed)
    support = np.linspace(-3.0, 5.0, 11)
    probabilities = rng.dirichlet(np.ones(11), (2, 4)).astype(np.float32)
    rewards = rng.normal(0.0, 3.0, (2, 4)).astype(np.float32)
    discounts = (0.9 * (rng.random((2, 4)) < 0.7)).astype(np.float32)
    found = numpy(projected(probabilities, np.float32(support), rewards, discounts))
    for place in np.ndindex(2, 4):
        slow = projected_slowly(probabilities[place], support, rewards[place], discounts[place])
        np.testing.assert_allclose(found[place], slow, atol=2e-6)
    np.testing.assert_allclose(found.sum(axis=-1), 1.0, atol=1e-5)


def test_distributions_are_selected_as_values_are():
    rng = np.random.default_rng(0)
    distributions = rng.standard_normal((2, 4, 3, 5)).astype(np.float32)
    choosing = rng.standard_normal((2, 4, 3)).astype(np.float32)
    made = rng.integers(0, 3, (2, 4)).astype(np.int32)
    best, chosen = (
        numpy(greedy_distributions(distributions, choosing)),
        numpy(chosen_distributions(distributions, made)),
    )
    for t, n in np.ndindex(2, 4):
        np.testing.assert_array_equal(best[t, n], distributions[t, n, int(np.argmax(choosing[t, n]))])
        np.testing.assert_array_equal(chosen[t, n], distributions[t, n, made[t, n]])


def test_rescaling_by_hand_and_back():
    """h(3) = sqrt 4 - 1 + .003 = 1.003, h(-8) = -(3 - 1) - .008; Pohlen et al. 2018, section 3.2."""
    np.testing.assert_allclose(numpy(rescaled(np.float32([0.0, 3.0, -8.0]))), [0.0, 1.003, -2.008], rtol=1e-6)
    np.testing.assert_allclose(numpy(unscaled(np.float32([0.0, 1.003, -2.008]))), [0.0, 3.0, -8.0], rtol=1e-4)
    values = np.float32([-1e5, -300.0, -1.0, -1e-2, 1e-2, 0.5, 20.0, 4000.0])
    np.testing.assert_allclose(numpy(unscaled(rescaled(values))), values, rtol=2e-3, atol=1e-5)
