"""The update of a network whose optimizer searches for each batch's minimum: L-BFGS."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distrl.config.optimizers import OptimizerParameters
from distrl.networks.backend import Gradients, Metrics
from distrl.networks.differentiation import LossFunction
from distrl.networks.distributions import Tensor
from distrl.networks.lbfgs import minimise
from distrl.networks.weights import to_numpy
from distrl.types import Array, Batch

_OTHER = "other variable "
"""Metrics of these names are values of variables, for this module alone."""


class FullBatchStep:
    """Minimises the loss of each batch anew; see `backend.Step`, whose place it takes.

    The gradient is compiled, the search is SciPy's. Moving averages and random generators stay as they are while it
    searches, as the loss must be one function; then they become what the first evaluation made them, as in one step of
    any other optimizer.
    """

    def __init__(
        self,
        function: LossFunction,
        trainable: Sequence[Any],
        others: Sequence[Any],
        parameters: OptimizerParameters,
    ) -> None:
        def telling(data: Any) -> tuple[Tensor, dict[str, Tensor]]:
            loss, named = function(data)
            after = {f"{_OTHER}{index}": other.value for index, other in enumerate(self._others)}
            return loss, {**named, **after}

        self._variables, self._others = list(trainable), list(others)
        self._gradients = Gradients(telling, trainable, others)
        self._parameters = parameters

    @property
    def traces(self) -> int:
        return self._gradients.traces

    def __call__(self, batch: Batch) -> Metrics:
        """One search. Metrics are those of the weights before it; gradient_norm too; learning_rate is 0."""
        before = [to_numpy(variable) for variable in self._variables]
        first: dict[str, Array] = {}

        def evaluate(weights: list[Array]) -> tuple[float, list[Array]]:
            self._assign(weights)
            loss, named, gradients = self._gradients(batch)
            if not first:
                first.update(named)
            return loss, gradients

        after, result = minimise(evaluate, before, max_iterations=self._parameters.lbfgs_max_iterations)
        finite = result.finite and bool(np.isfinite(result.initial_loss))
        self._assign(after if finite else before)
        moved = [first.pop(f"{_OTHER}{index}") for index in range(len(self._others))]
        if finite:
            for variable, array in zip(self._others, moved, strict=True):
                variable.assign(array)
        metrics: dict[str, float | bool] = {name: float(value) for name, value in first.items()}
        metrics |= {"loss": result.initial_loss, "gradient_norm": result.initial_gradient_norm, "learning_rate": 0.0}
        metrics["finite"] = finite
        return metrics

    def _assign(self, weights: Sequence[Array]) -> None:
        for variable, array in zip(self._variables, weights, strict=True):
            variable.assign(array)
