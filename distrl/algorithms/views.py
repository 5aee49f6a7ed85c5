"""Views of a batch's steps, by which networks are called: rows on their own, or sequences that memory goes through."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from keras import ops

from distrl.networks.actions.family import Tensor
from distrl.networks.network import Network
from distrl.networks.objective import after_rows
from distrl.types import Batch

Rows = Mapping[str, Tensor]
"""Name -> [M, ...]."""


@dataclass(frozen=True)
class StepView(ABC):
    """M observations, with all that a network needs to be called for each of them.

    Attributes:
        valid: bool [M]. Whether the step from or to each observation counts.
    """

    valid: Tensor

    @abstractmethod
    def outputs(self, copy: Network, actions: Rows, *, training: bool = False) -> dict[str, Tensor]:
        """Return the outputs of a network, float32 [M, ...] by name.

        Args:
            actions: The network's inputs beside the observations, [M, ...] by name.
            training: As for `Network.unroll`.
        """


@dataclass(frozen=True)
class RowView(StepView):
    """Observations of steps that networks without memory see, [M, ...] by name."""

    observations: Rows

    def outputs(self, copy: Network, actions: Rows, *, training: bool = False) -> dict[str, Tensor]:
        outputs: dict[str, Tensor] = copy.model({**self.observations, **actions}, training=training)
        return outputs


@dataclass(frozen=True)
class SequenceView(StepView):
    """T of the T + 1 rows of N sequences, M = T N of them row by row, which networks with memory see in order.

    Memory begins with the state that the actor had, which the batch has for the policy alone; critics begin at zero.
    Both go through the rows of the burn-in without a gradient (Kapturowski et al. 2019, section 3).

    Attributes:
        batch: [burn-in + T, N].
        first: 0: the rows before steps; 1: those after.
        acting: Copies of the policy.
        known: Outputs of these for all T + 1 rows, which both views share: a copy goes through the rows once.
    """

    batch: Batch
    burn_in_steps: int
    first: int
    acting: Collection[Network]
    known: dict[tuple[int, bool], dict[str, Tensor]]

    def outputs(self, copy: Network, actions: Rows, *, training: bool = False) -> dict[str, Tensor]:
        steps = self.batch.valid.shape[0] - self.burn_in_steps
        if any(copy is one for one in self.acting):
            key = id(copy), training
            if key not in self.known:
                self.known[key] = self._unrolled(copy, actions, self.batch.recurrent_state, training)
            outputs = self.known[key]
        else:
            outputs = self._unrolled(copy, actions, self._zeros(copy), training)
        return {name: by_step(output[self.first : self.first + steps]) for name, output in outputs.items()}

    def _unrolled(self, copy: Network, actions: Rows, state: Rows, training: bool) -> dict[str, Tensor]:
        """Return the outputs of all T + 1 rows, from a state before the burn-in."""
        trained = after_rows(self.batch, self.burn_in_steps)
        steps, sequences = trained.valid.shape
        inputs = trained.observations | {name: self._rows_of(rows, steps, sequences) for name, rows in actions.items()}
        if self.burn_in_steps:
            first = {name: rows[: self.burn_in_steps] for name, rows in self.batch.observations.items()}
            state = copy.state_after(first, state, self.batch.valid[: self.burn_in_steps])
        return copy.unroll(inputs, state, trained.valid, training=training)

    def _rows_of(self, rows: Tensor, steps: int, sequences: int) -> Tensor:
        """Return [T N, ...] as [T + 1, N, ...]; the row that is not in view is zero."""
        by_row = ops.reshape(rows, (steps, sequences, *rows.shape[1:]))
        zero = ops.zeros_like(by_row[:1])
        return ops.concatenate([zero, by_row] if self.first else [by_row, zero])

    def _zeros(self, copy: Network) -> Rows:
        sequences = self.batch.valid.shape[1]
        return {name: ops.zeros((sequences, *spec.shape), spec.dtype) for name, spec in copy.recurrent_state.items()}


def steps_of(batch: Batch, burn_in_steps: int, acting: Collection[Network]) -> tuple[Batch, StepView, StepView]:
    """Return the steps that losses see, and views of the rows before and after each of them.

    Args:
        batch: Transitions, T = 1, or sequences.
        burn_in_steps: Rows at the start of sequences that losses do not see.
        acting: Copies of the policy, which actors run.
    """
    steps = after_rows(batch, burn_in_steps)
    valid = by_step(steps.valid)
    if any(copy.recurrent_state for copy in acting):
        known: dict[tuple[int, bool], dict[str, Tensor]] = {}
        before, after = (SequenceView(valid, batch, burn_in_steps, first, acting, known) for first in (0, 1))
        return steps, before, after

    def rows(which: slice) -> StepView:
        return RowView(valid, {name: by_step(observed[which]) for name, observed in steps.observations.items()})

    return steps, rows(slice(None, -1)), rows(slice(1, None))


def by_step(array: Tensor) -> Tensor:
    """Flatten [T, N, ...] to [T N, ...], row by row."""
    return ops.reshape(array, (-1, *array.shape[2:]))
