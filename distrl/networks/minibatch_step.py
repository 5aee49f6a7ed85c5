"""Several optimizer steps on one batch of unrolls, each on its share of the sequences."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from distrl import nest
from distrl.networks.framework.backend import Epochs, Metrics
from distrl.networks.framework.differentiation import LossFunction, Part
from distrl.types import Batch, IntArray


class MinibatchStep:
    """An update in equal parts of a batch's sequences, one after the other, as one compiled call.

    Args:
        function: The objective of a batch [T, N / minibatches].
        part: What is moved.
        others: As of `backend.Step`.
    """

    def __init__(self, function: LossFunction, part: Part, others: Sequence[Any], minibatches: int) -> None:
        self._epochs = Epochs(function, sequences_of, [part], others)
        self._minibatches = minibatches

    @property
    def traces(self) -> int:
        """How often it was compiled."""
        return self._epochs.traces

    def __call__(self, batch: Batch) -> Metrics:
        """One update of a batch [T, N], N a multiple of the minibatches; means of what the parts tell."""
        sequences: IntArray = np.arange(batch.valid.shape[1], dtype=np.int32)
        return self._epochs(batch, sequences.reshape(self._minibatches, -1))


def sequences_of(batch: Batch, items: Any) -> Batch:
    """The sequences `items`, int32 [M], of a batch [T, N]: [T, M]."""
    taken: Batch = nest.map(
        lambda rows: ops.take(rows, items, axis=1), batch._replace(recurrent_state={}, reward_moments={})
    )
    return taken._replace(
        recurrent_state={name: ops.take(state, items, axis=0) for name, state in batch.recurrent_state.items()}
    )
