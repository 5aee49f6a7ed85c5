"""Steps of bounded divergence: conjugate gradients, the natural gradient, and a line search that keeps the bound."""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from distrl.networks.actions.family import Tensor

Product = Callable[[Tensor], Tensor]
"""float32 [P] -> float32 [P]: the product of a symmetric matrix with a vector."""


def conjugate_gradient(
    product: Product, vector: Tensor, *, iterations: int, damping: float = 0.0, tolerance: float = 1e-10
) -> Tensor:
    """Solve ``(A + damping I) x = b`` by conjugate gradients from x = 0 (Hestenes and Stiefel 1952, section 3).

    In exact arithmetic P iterations are enough; far fewer give a useful direction (Schulman et al. 2015, appendix C).

    Args:
        product: v -> A v; A is symmetric and positive semidefinite, with damping above 0, or positive definite.
        vector: float32 [P]. b; zeros have the solution zero.
        iterations: Most products.
        tolerance: It ends once the squared residual is at most this share of b's square.

    Returns:
        float32 [P].
    """
    square = ops.sum(vector * vector)

    def goes_on(done: Tensor, x: Tensor, residual: Tensor, direction: Tensor, rest: Tensor) -> Tensor:
        return (done < iterations) & (rest > tolerance * square)

    def iterate(done: Tensor, x: Tensor, residual: Tensor, direction: Tensor, rest: Tensor) -> tuple[Tensor, ...]:
        image = product(direction) + damping * direction
        length = rest / ops.sum(direction * image)
        x, residual = x + length * direction, residual - length * image
        left = ops.sum(residual * residual)
        return done + 1, x, residual, residual + left / rest * direction, left

    start = (ops.zeros((), "int32"), ops.zeros_like(vector), vector, vector, square)
    solution: Any = ops.while_loop(goes_on, iterate, start)[1]
    return solution


class NaturalStep(NamedTuple):
    """A step along the natural gradient.

    Attributes:
        step: float32 [P].
        expected_gain: float32 []. Gain of the objective by it if it is linear: g . step. NaN if the gradient or a
            product was not finite, or if F had a negative curvature.
    """

    step: Tensor
    expected_gain: Tensor


def natural_step(
    fisher_product: Product, gradient: Tensor, *, max_kl: Tensor | float, iterations: int, damping: float
) -> NaturalStep:
    """Return the step that gains most where the divergence, to second order, is `max_kl`.

        x = F^-1 g,   step = sqrt(2 max_kl / x^T F x) x,   so that 1/2 step^T F step = max_kl

    (Schulman et al. 2015, appendix C; Kakade 2001). F is the Fisher matrix with `damping` on its diagonal, as in the
    paper's published code.

    Args:
        fisher_product: v -> F v without damping.
        gradient: float32 [P]. g, of the objective to maximise; zeros make the step zero.
        max_kl: In nats.
        iterations: See `conjugate_gradient`.
    """
    direction = conjugate_gradient(fisher_product, gradient, iterations=iterations, damping=damping)
    curvature = ops.sum(direction * (fisher_product(direction) + damping * direction))
    positive = curvature > 0.0
    length = ops.sqrt(2.0 * max_kl / ops.where(positive, curvature, 1.0))
    step = ops.where(positive, length, ops.where(curvature == 0.0, 0.0, float("nan"))) * direction
    return NaturalStep(step, ops.sum(gradient * step))


class Accepted(NamedTuple):
    """The result of a line search, float32 [] each; zeros if no point was accepted.

    Attributes:
        fraction: Of the proposed step.
        gain: Gain of the objective.
        kl: The divergence, in nats.
    """

    fraction: Tensor
    gain: Tensor
    kl: Tensor


def line_search(
    evaluate: Callable[[Tensor], tuple[Tensor, Tensor]],
    *,
    expected_gain: Tensor,
    max_kl: Tensor | float,
    steps: int,
    factor: float,
    accept_ratio: float,
) -> Accepted:
    """Try the fractions 1, factor, factor^2, ... of a step and accept the first good one (Schulman et al. 2015, C).

    A fraction is good if the objective gains, by at least ``accept_ratio * fraction * expected_gain``, and the
    divergence is at most `max_kl`. NaN is not good.

    Args:
        evaluate: fraction, float32 [] -> gain and divergence there, float32 [] each.
        expected_gain: float32 []. Gain of the whole step if the objective is linear.
        max_kl: In nats.
        steps: Most fractions to try.
        factor: In (0, 1).
    """

    def goes_on(tried: Tensor, fraction: Tensor, good: Tensor, gain: Tensor, kl: Tensor) -> Tensor:
        return ops.logical_not(good) & (tried < steps)

    def attempt(tried: Tensor, fraction: Tensor, good: Tensor, gain: Tensor, kl: Tensor) -> tuple[Tensor, ...]:
        gain, kl = evaluate(fraction)
        good = (gain > 0.0) & (gain >= accept_ratio * fraction * expected_gain) & (kl <= max_kl)
        return tried + 1, ops.where(good, fraction, factor * fraction), good, gain, kl

    zero = ops.zeros((), "float32")
    start = (ops.zeros((), "int32"), ops.ones((), "float32"), ops.zeros((), "bool"), zero, zero)
    _, fraction, good, gain, kl = ops.while_loop(goes_on, attempt, start)
    return Accepted(*(ops.where(good, number, 0.0) for number in (fraction, gain, kl)))
