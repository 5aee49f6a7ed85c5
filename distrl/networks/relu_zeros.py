"""How much of what relu layers put out is zero: units that are zero on every row learn nothing any more."""

from typing import Any

from keras import ops

from distrl.networks.backend import Outputs
from distrl.networks.distributions import Tensor
from distrl.networks.network_copy import NetworkCopy
from distrl.types import Batch


class ReluZeros:
    """Share of zeros in the outputs of every relu layer, over a batch's valid rows; compiled apart from any update.

    Args:
        network: The copy that is looked at. Nothing of it is changed: no noise is drawn, nothing is dropped, and batch
            normalisation uses its averages.
    """

    def __init__(self, network: NetworkCopy) -> None:
        self._assembly = network.assembly
        self._compiled = Outputs(self._shares, network.model.variables)

    @property
    def traces(self) -> int:
        """How often it was compiled: once per batch shape, when it is first asked."""
        return self._compiled.traces

    def __call__(self, batch: Batch) -> dict[str, float]:
        """Layer -> share of zeros, in [0, 1], in the network's order.

        Empty without relu layers, of which those inside a user's own model are not seen, and without valid rows.

        Args:
            batch: Unrolls, [T, N].
        """
        layers = self._assembly.relu_layers
        if not layers or not batch.valid.any():
            return {}
        shares = self._compiled(batch)
        return {layer: float(shares[layer]) for layer in layers}

    def _shares(self, batch: Any) -> tuple[Any, dict[str, Tensor]]:
        outputs = self._assembly.activations(batch.observations, batch.recurrent_state, batch.valid)
        valid = ops.cast(batch.valid, "float32")
        return 0.0, {name: _share_of_zeros(outputs[name][:-1], valid) for name in self._assembly.relu_layers}


def _share_of_zeros(rows: Tensor, valid: Tensor) -> Tensor:
    """rows [T, N, ...], valid float32 [T, N] -> the share of zeros in the valid rows."""
    zeros = ops.cast(ops.equal(rows, 0.0), "float32")
    of_rows = ops.mean(ops.reshape(zeros, (*valid.shape, -1)), axis=-1)  # [T, N, ...] -> [T, N]
    return ops.sum(of_rows * valid) / ops.sum(valid)
