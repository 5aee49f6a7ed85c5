"""Conjugate gradients, natural steps and the line search, against NumPy and by hand. Runs on every Keras backend."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from distrl.algorithms.maths.trust_region import conjugate_gradient, line_search, natural_step

FEW = settings(max_examples=min(25, settings.default.max_examples), deadline=None)


def times(matrix):
    matrix = np.asarray(matrix, "float32")
    return lambda vector: ops.matmul(matrix, vector[:, None])[:, 0]


def solved(matrix, vector, **options):
    return ops.convert_to_numpy(conjugate_gradient(times(matrix), np.asarray(vector, "float32"), **options))


def definite(rng, size, least=0.1):
    """A random symmetric matrix whose eigenvalues are between `least` and about 4."""
    rotation, _ = np.linalg.qr(rng.normal(size=(size, size)))
    return rotation @ np.diag(rng.uniform(least, 4.0, size)) @ rotation.T


def slow_conjugate_gradient(matrix, vector, iterations, damping):
    """The textbook's loop, in float64."""
    matrix = matrix + damping * np.eye(len(vector))
    x, residual = np.zeros_like(vector), vector.copy()
    direction = residual.copy()
    for _ in range(iterations):
        image = matrix @ direction
        length = residual @ residual / (direction @ image)
        x = x + length * direction
        after = residual - length * image
        direction = after + (after @ after) / (residual @ residual) * direction
        residual = after
    return x


@pytest.mark.row("I14")
def test_two_equations_are_solved_in_two_iterations():
    """4 x + y = 1 and x + 3 y = 2: x = 1 / 11, y = 7 / 11."""
    np.testing.assert_allclose(solved([[4, 1], [1, 3]], [1, 2], iterations=2), [1 / 11, 7 / 11], rtol=1e-5)
    # The first one goes along b as far as b.b / b.Ab = 5 / 20.
    np.testing.assert_allclose(solved([[4, 1], [1, 3]], [1, 2], iterations=1), [0.25, 0.5], rtol=1e-5)


def test_damping_is_on_the_diagonal():
    np.testing.assert_allclose(solved([[1, 0], [0, 3]], [4, 4], iterations=2, damping=1.0), [2.0, 1.0], rtol=1e-5)


def test_zeros_have_the_solution_zero():
    np.testing.assert_array_equal(solved(np.eye(3), np.zeros(3), iterations=5), np.zeros(3))


def test_it_ends_at_the_solution():
    """After one iteration the residual of the identity is 0, by which another one would divide."""
    np.testing.assert_array_equal(solved(2.0 * np.eye(3), [2, 4, 6], iterations=9), [1.0, 2.0, 3.0])


@pytest.mark.row("I14")
@FEW
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 6), st.sampled_from([0.0, 0.1]))
def test_iterations_are_the_textbooks(seed, size, iterations, damping):
    rng = np.random.default_rng(seed)
    matrix, vector = definite(rng, size, least=1.0), rng.normal(size=size)
    iterations = min(iterations, size)
    expected = slow_conjugate_gradient(matrix, vector, iterations, damping)
    found = solved(matrix, vector, iterations=iterations, damping=damping)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.row("I12")
@FEW
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 0.01, 0.5]))
def test_the_natural_step_uses_the_divergence_up(seed, max_kl):
    """Where the divergence is 1/2 d F d, it is max_kl after the step, and no step of that divergence gains more."""
    rng = np.random.default_rng(seed)
    fisher, gradient = definite(rng, 4, least=1.0), rng.normal(size=4)
    found = natural_step(times(fisher), gradient.astype("float32"), max_kl=max_kl, iterations=8, damping=0.0)
    step = ops.convert_to_numpy(found.step).astype("float64")
    assert 0.5 * step @ fisher @ step == pytest.approx(max_kl, rel=1e-3)
    assert float(ops.convert_to_numpy(found.expected_gain)) == pytest.approx(gradient @ step, rel=1e-4)
    for other in rng.normal(size=(20, 4)):
        other *= np.sqrt(2.0 * max_kl / (other @ fisher @ other))
        assert gradient @ other <= gradient @ step * (1.0 + 1e-3)


def test_damping_shortens_the_step():
    """g = 2 and F = 3, damped 4: x = .5, x F x = 1, and the step is sqrt(2 x .02) x .5 = .1."""
    found = natural_step(times([[3.0]]), np.float32([2.0]), max_kl=0.02, iterations=1, damping=1.0)
    numbers = [float(ops.convert_to_numpy(number).sum()) for number in found]
    assert numbers == pytest.approx([0.1, 0.2], rel=1e-5)


@pytest.mark.parametrize(
    ("fisher", "gradient", "gain"),
    [(1.0, 0.0, 0.0), (1.0, np.nan, np.nan), (np.nan, 1.0, np.nan), (-1.0, 1.0, np.nan)],
    ids=["no gradient", "bad gradient", "bad product", "negative curvature"],
)
def test_no_gradient_is_no_step_and_what_is_wrong_is_told(fisher, gradient, gain):
    found = natural_step(times([[fisher]]), np.float32([gradient]), max_kl=0.02, iterations=3, damping=0.1)
    np.testing.assert_array_equal(ops.convert_to_numpy(found.expected_gain), gain)


def searched(gain, kl=lambda fraction: 0.0 * fraction, **options):
    options = {"expected_gain": 0.0, "max_kl": 1.0, "steps": 10, "factor": 0.5, "accept_ratio": 0.0, **options}
    found = line_search(lambda fraction: (gain(fraction), kl(fraction)), **options)
    return tuple(float(ops.convert_to_numpy(number)) for number in found)


def parabola(x):
    """f(x) - f(0) of f(x) = -(x - .3)^2."""
    return 0.09 - (x - 0.3) ** 2


@pytest.mark.row("I15")
def test_the_first_point_that_is_better_is_accepted():
    """f(1) = -.49 is worse than f(0) = -.09, f(.5) = -.04 is better."""
    assert searched(parabola) == pytest.approx((0.5, 0.05, 0.0), abs=1e-6)


@pytest.mark.row("I15")
def test_a_gain_must_be_a_share_of_the_expected_one():
    """f'(0) = .6: .05 is less than .25 x .5 x .6 = .075, at .25 f gains .0875 of .0375."""
    assert searched(parabola, expected_gain=0.6, accept_ratio=0.25) == pytest.approx((0.25, 0.0875, 0.0), abs=1e-6)


@pytest.mark.row("I15")
@pytest.mark.parametrize(("steps", "fraction"), [(1, 0.0), (2, 0.5)])
def test_it_ends_after_so_many_steps_without_a_step(steps, fraction):
    assert searched(parabola, steps=steps)[0] == fraction
    assert searched(lambda x: -x, steps=steps) == (0.0, 0.0, 0.0)


def test_the_divergence_keeps_its_bound():
    """1, .8, .64: x^2 / 2 is .5, .32 and .2048."""
    found = searched(lambda x: x, lambda x: 0.5 * x * x, max_kl=0.25, factor=0.8)
    assert found == pytest.approx((0.64, 0.64, 0.2048), rel=1e-5)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_what_is_not_a_number_is_not_accepted(bad):
    assert searched(lambda x: ops.where(x > 0.3, bad, x)) == (0.25, 0.25, 0.0)
    assert searched(lambda x: x, lambda x: ops.where(x > 0.3, np.nan, x)) == (0.25, 0.25, 0.25)


@pytest.mark.row("I08")
@FEW
@given(st.integers(0, 2**32 - 1))
def test_it_is_never_worse_than_the_base_and_the_first_of_its_kind(seed):
    """Random gains and divergences at 1, .5, .25 and .125, against a loop."""
    rng = np.random.default_rng(seed)
    gains, kls = rng.normal(size=4), rng.uniform(0.0, 2.0, 4)

    def at(numbers, fraction):
        return ops.sum(ops.where(ops.equal(np.float32([1.0, 0.5, 0.25, 0.125]), fraction), np.float32(numbers), 0.0))

    found = searched(
        lambda x: at(gains, x), lambda x: at(kls, x), steps=4, expected_gain=1.0, accept_ratio=0.3, max_kl=1.0
    )
    good = [i for i in range(4) if gains[i] > 0.0 and gains[i] >= 0.3 * 0.5**i and kls[i] <= 1.0]
    expected = (0.5 ** good[0], gains[good[0]], kls[good[0]]) if good else (0.0, 0.0, 0.0)
    assert found == pytest.approx(expected, rel=1e-5)
    assert found[1] >= 0.0
