"""L-BFGS through SciPy: each update searches for the minimum of its batch instead of following the gradient once."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrl.config.optimizers import OptimizerParameters
from distrl.errors import require
from distrl.networks.framework.backend import Gradients, Metrics
from distrl.networks.framework.differentiation import LossFunction
from distrl.networks.weights import to_numpy
from distrl.types import Array, Batch

LossAndGradients = Callable[[list[Array]], tuple[float, list[Array]]]
"""Weights -> (loss, its gradient by each of them). Called several times per iteration."""


def minimise(
    loss_and_gradients: LossAndGradients,
    weights: Sequence[Array],
    *,
    max_iterations: int,
    tolerance: float = 1e-7,
) -> tuple[list[Array], "LbfgsSearch"]:
    """Minimise a deterministic loss by L-BFGS-B without bounds (Byrd, Lu, Nocedal, Zhu 1995), memory of 10 steps.

    The search is in float64 on one flat vector; the loss function sees weights of the given shapes and dtypes. Each
    call starts without curvature.

    Args:
        weights: Start of the search; not changed.
        max_iterations: Most steps.
        tolerance: The search ends once a step lowers the loss by less than this share of max(|loss|, 1), or no element
            of the gradient is larger. The default is about the resolution of a loss in float32.

    Returns:
        The new weights and the search.

    Raises:
        MissingExtraError: SciPy is not installed.
    """
    require("scipy", "SciPy (for optimizer_type LBFGS)", "cpu")
    from scipy.optimize import minimize  # type: ignore[import-untyped]

    search = LbfgsSearch(loss_and_gradients, weights)
    options = {"maxiter": max_iterations, "maxcor": 10, "ftol": tolerance, "gtol": tolerance}
    try:
        minimize(search.evaluate, search.accepted, jac=True, method="L-BFGS-B", callback=search.accept, options=options)
    except FloatingPointError:  # SciPy's line search does not recover from NaN
        search.finite = False
    return search.arrays(search.accepted), search


class LbfgsSearch:
    """The loss over a flat vector, and the last accepted point of the search.

    Attributes:
        initial_loss: Loss at the given weights.
        initial_gradient_norm: Euclidean norm of all gradients together at the given weights.
        loss: Loss at the accepted point; never above `initial_loss`.
        iterations: Steps taken.
        evaluations: Calls of the loss function.
        finite: False if a loss or gradient was NaN or infinite; the accepted point is that of the last step before.
    """

    def __init__(self, loss_and_gradients: LossAndGradients, weights: Sequence[Array]) -> None:
        self._loss_and_gradients = loss_and_gradients
        self._like = [(array.shape, array.dtype, array.size) for array in weights]
        self.accepted = _flat(weights)
        self.loss = self.initial_loss = self.initial_gradient_norm = float("nan")
        self.iterations = self.evaluations = 0
        self.finite = True

    def evaluate(self, point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return loss and flat gradient; FloatingPointError if they are NaN or infinite."""
        loss, gradients = self._loss_and_gradients(self.arrays(point))
        loss, gradient = float(loss), _flat(gradients)
        self.evaluations += 1
        if self.evaluations == 1:
            self.loss = self.initial_loss = loss
            self.initial_gradient_norm = float(np.linalg.norm(gradient))
        if not (np.isfinite(loss) and np.isfinite(gradient).all()):
            raise FloatingPointError(f"loss {loss} or its gradient is not finite")
        return loss, gradient

    def accept(self, intermediate_result: Any) -> None:  # SciPy looks at the argument's name
        self.accepted = np.array(intermediate_result.x)
        self.loss = float(intermediate_result.fun)
        self.iterations += 1

    def arrays(self, point: NDArray[np.float64]) -> list[Array]:
        """Return the flat vector as arrays of the shapes and dtypes of the weights."""
        parts = np.split(point, np.cumsum([size for _, _, size in self._like])[:-1])
        return [part.reshape(shape).astype(dtype) for part, (shape, dtype, _) in zip(parts, self._like, strict=True)]


def _flat(arrays: Sequence[Array]) -> NDArray[np.float64]:
    return np.concatenate([np.asarray(array, np.float64).ravel() for array in arrays])


class FullBatchStep:
    """Minimises the loss of each batch from scratch, in place of `backend.Step`.

    The gradient is compiled, the search is SciPy's. During the search moving averages and random generators stay fixed,
    because the loss must be one function; afterwards they take their values after the first evaluation, as in one step
    of any other optimizer.
    """

    def __init__(
        self,
        function: LossFunction,
        trainable: Sequence[Any],
        others: Sequence[Any],
        parameters: OptimizerParameters,
    ) -> None:
        self._variables, self._others = list(trainable), list(others)
        self._gradients = Gradients(function, trainable, others)
        self._parameters = parameters

    def __call__(self, batch: Batch) -> Metrics:
        """Search once. Metrics and gradient_norm are those of the weights before it; learning_rate is 0."""
        before = [to_numpy(variable) for variable in self._variables]
        first: list[tuple[dict[str, Array], list[Any]]] = []

        def evaluate(weights: list[Array]) -> tuple[float, list[Array]]:
            _assign(self._variables, weights)
            loss, named, gradients = self._gradients(batch)
            if not first:
                first.append((named, self._gradients.after(self._others)))
            return loss, gradients

        after, search = minimise(evaluate, before, max_iterations=self._parameters.lbfgs_max_iterations)
        finite = search.finite and bool(np.isfinite(search.initial_loss))
        _assign(self._variables, after if finite else before)
        named, moved = first[0]
        if finite:
            _assign(self._others, moved)
        metrics: dict[str, float | bool] = {name: float(value) for name, value in named.items()}
        metrics |= {"loss": search.initial_loss, "gradient_norm": search.initial_gradient_norm, "learning_rate": 0.0}
        metrics["finite"] = finite
        return metrics

    def compile(self, batch: Batch) -> None:
        """Compile the gradient for batches of this form."""
        self._gradients(batch)


def _assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
