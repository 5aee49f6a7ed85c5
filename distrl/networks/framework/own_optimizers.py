"""One optimizer per worker, all for the same weights: `network.shared_optimizer: false`."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from distrl.config.optimizers import OptimizerParameters
from distrl.networks.framework.backend import compiled_apply
from distrl.networks.framework.optimizers import create_optimizer, set_learning_rate
from distrl.types import Array

_GROUP = re.compile(r"optimizer(?:_(\d+))?")


class OwnOptimizers:
    """Optimizers by worker, each with its own moments from that worker's gradients; all move `variables`."""

    def __init__(self, parameters: OptimizerParameters, variables: Sequence[Any]) -> None:
        self._parameters = parameters
        self._learning_rate = parameters.learning_rate
        self._variables = variables
        self._steps: dict[int | None, tuple[Any, Callable[..., None]]] = {}

    def optimizer(self, worker: int | None) -> Any:
        """Return a worker's optimizer, created on first use; None: that of the process that owns the network."""
        return self._step(worker)[0]

    def apply(self, worker: int | None, gradients: Sequence[Array], scaler: float) -> None:
        """Apply ``scaler * gradients`` by a worker's optimizer."""
        self._step(worker)[1](gradients, scaler)

    def set_learning_rate(self, rate: float) -> None:
        """Change the rate of all present and future optimizers; see `optimizers.set_learning_rate`."""
        self._learning_rate = rate
        for optimizer, _ in self._steps.values():
            set_learning_rate(optimizer, self._parameters, rate)

    def like(self, groups: Iterable[str]) -> "OwnOptimizers":
        """Return the optimizers of a checkpoint's groups: existing ones where there are, and new ones."""
        made = OwnOptimizers(self._parameters, self._variables)
        made._learning_rate = self._learning_rate
        for match in filter(None, map(_GROUP.fullmatch, groups)):
            worker = None if match[1] is None else int(match[1])
            if worker in self._steps:
                made._steps[worker] = self._steps[worker]
            else:
                made._step(worker)
        return made

    def groups(self) -> dict[str, Any]:
        """Return the optimizers by their group in a checkpoint: "optimizer", "optimizer_<worker>"."""
        return {
            "optimizer" if worker is None else f"optimizer_{worker}": optimizer
            for worker, (optimizer, _) in self._steps.items()
        }

    def _step(self, worker: int | None) -> tuple[Any, Callable[..., None]]:
        if worker not in self._steps:
            optimizer = create_optimizer(self._parameters)
            set_learning_rate(optimizer, self._parameters, self._learning_rate)
            optimizer.build(self._variables)
            self._steps[worker] = (optimizer, compiled_apply(optimizer, self._variables))
        return self._steps[worker]
