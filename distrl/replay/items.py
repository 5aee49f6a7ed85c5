"""Items of a replay memory: transitions or sequences. A kind is a class here and a section in `config/replay.py`.

An item lies within one unroll, so that a slot of the ring has a fixed number of places for items.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from distrl.config.replay import SHARE_OF_GREATEST, ReplayParameters, SequenceParameters, TransitionParameters
from distrl.replay.n_step import n_step_transitions
from distrl.replay.ring import UnrollRing
from distrl.replay.sum_tree import Indices
from distrl.types import Array, Batch, BoolArray, FloatArray, Form, Unroll
from distrl.unroll_schema import UnrollSchema


class Items(ABC):
    """Items of one kind.

    Attributes:
        per_slot: Places for items in an unroll.
        kind: Name under which a saved memory holds `identity`.
        identity: Numbers that determine which arrays are saved of these items; another memory is not restored.
        burn_in_steps: Rows at the start of an item that the loss does not see.
        forms: Arrays that the ring keeps of every unroll in addition, or in place of its own, by path.
    """

    kind: ClassVar[str]
    per_slot: int
    identity: list[float]
    burn_in_steps: int = 0
    forms: dict[str, Form]

    @abstractmethod
    def present(self, arrays: Mapping[str, Array]) -> BoolArray:
        """Return which places hold an item: bool [..., per_slot].

        Args:
            arrays: bool [..., T, B] of unrolls by path, as the ring holds them; `valid` and `terminated` are read.
        """

    @abstractmethod
    def priorities(self, steps: FloatArray, valid: BoolArray) -> FloatArray:
        """Return the first priorities of items from those of steps: float32 [T, B] -> [per_slot], any where absent."""

    @abstractmethod
    def arrays(self, unroll: Unroll) -> dict[str, Array]:
        """Return the arrays of `forms`, and arrays in place of the unroll's own."""

    @abstractmethod
    def check(self, ring: UnrollRing, filled: int) -> None:
        """Raise ValueError if the arrays of `forms` in the first `filled` slots are none that `arrays` makes."""

    @abstractmethod
    def batch(self, ring: UnrollRing, positions: Indices, importance_weights: FloatArray | None) -> Batch:
        """Return a batch of the items at `positions`, int64 [N]: slot x `per_slot` + place."""


def make_items(parameters: ReplayParameters, schema: UnrollSchema, discount: float) -> Items:
    """Return the kind of items that `parameters.item` describes.

    Args:
        discount: Discount of the rewards within a transition.
    """
    if isinstance(parameters.item, SequenceParameters):
        return Sequences(parameters.item, schema)
    return Transitions(parameters.item, schema, discount)


class Transitions(Items):
    """Valid rows, each with its rewards and observation n steps on; a place is row x B + environment."""

    kind = "transition"

    def __init__(self, parameters: TransitionParameters, schema: UnrollSchema, discount: float) -> None:
        shape = (schema.unroll_length_steps, schema.environments)
        self._shape = shape
        self._n_step, self._discount = parameters.n_step, discount
        self._terminations = parameters.terminations
        self.per_slot = shape[0] * shape[1]
        # A saved memory's priorities are those of its items: with or without terminations.
        self.identity = [parameters.n_step, discount, *([] if parameters.terminations else [0])]
        self.forms = {"bootstrap_steps": (np.dtype("int32"), shape)}

    def present(self, arrays: Mapping[str, Array]) -> BoolArray:
        valid = arrays["valid"]
        there = valid if self._terminations else valid & ~arrays["terminated"]
        return there.reshape(*valid.shape[:-2], self.per_slot)

    def priorities(self, steps: FloatArray, valid: BoolArray) -> FloatArray:
        return steps.reshape(-1)

    def arrays(self, unroll: Unroll) -> dict[str, Array]:
        led_to = n_step_transitions(
            unroll.rewards,
            unroll.terminated,
            unroll.truncated,
            unroll.valid,
            discount=self._discount,
            steps=self._n_step,
        )
        return led_to._asdict()

    def check(self, ring: UnrollRing, filled: int) -> None:
        rows = np.arange(self._shape[0])[:, None]
        steps = ring.arrays["bootstrap_steps"][:filled]
        if ((steps < 0) | (steps + rows > self._shape[0])).any():
            raise ValueError("bootstrap_steps lead out of their unroll")

    def batch(self, ring: UnrollRing, positions: Indices, importance_weights: FloatArray | None) -> Batch:
        """Return transitions, T = 1."""
        unrolls, environment = np.divmod(positions, self._shape[1])
        slot, row = np.divmod(unrolls, self._shape[0])
        steps = ring.taken("bootstrap_steps", slot, row, environment)
        return Batch(
            observations=ring.observations(slot, np.stack([row, row + steps]), environment),
            **ring.steps(slot, row[None], environment),
            recurrent_state={},
            bootstrap_steps=steps[None],
            importance_weights=importance_weights,
        )


class Sequences(Items):
    """Consecutive rows of one environment with the recurrent state before the first one.

    A place is number x B + environment. A sequence exists if one of its trained rows is valid.
    """

    kind = "sequence"

    def __init__(self, parameters: SequenceParameters, schema: UnrollSchema) -> None:
        length, self._environments = schema.unroll_length_steps, schema.environments
        self._starts = parameters.state_rows(length)
        self._length = parameters.steps(length)
        self.burn_in_steps = parameters.burn_in_steps
        self.per_slot = len(self._starts) * self._environments
        self.identity = [self._length, parameters.overlap_steps, parameters.burn_in_steps]
        self.forms = {}

    def present(self, arrays: Mapping[str, Array]) -> BoolArray:
        valid = arrays["valid"]
        present: BoolArray = np.any(self._trained(valid), axis=-2, keepdims=True)  # [..., S, 1, B]
        return present.reshape(*valid.shape[:-2], self.per_slot)

    def priorities(self, steps: FloatArray, valid: BoolArray) -> FloatArray:
        return sequence_priorities(self._trained(steps), self._trained(valid)).reshape(-1)

    def arrays(self, unroll: Unroll) -> dict[str, Array]:
        return {}

    def check(self, ring: UnrollRing, filled: int) -> None:
        """Check nothing: the ring holds no arrays of sequences."""

    def batch(self, ring: UnrollRing, positions: Indices, importance_weights: FloatArray | None) -> Batch:
        slots, environment = np.divmod(positions, self._environments)
        slot, number = np.divmod(slots, len(self._starts))
        rows = self._starts.step * number + np.arange(self._length + 1)[:, None]
        steps = ring.steps(slot, rows[:-1], environment)
        return Batch(
            observations=ring.consecutive(slot, rows, environment, steps["valid"]),
            **steps,
            recurrent_state=ring.recurrent_state(slot, number, environment),
            importance_weights=importance_weights,
        )

    def _trained(self, steps: Array) -> Array:
        """Return the trained rows of every sequence: [..., T, B] -> [..., S, rows, B]."""
        return steps[..., np.array(self._starts)[:, None] + np.arange(self.burn_in_steps, self._length), :]


def sequence_priorities(priorities: FloatArray, valid: BoolArray) -> FloatArray:
    """eta max + (1 - eta) mean over the valid steps (Kapturowski et al. 2019, section 2.3).

    Args:
        priorities: float32 [S, steps, B], at least 0.
        valid: bool [S, steps, B].

    Returns:
        float32 [S, B]; 0 where no step is valid.
    """
    known = np.where(valid, priorities, 0.0)
    mean = known.sum(axis=1) / np.maximum(valid.sum(axis=1), 1)
    result: FloatArray = (mean + SHARE_OF_GREATEST * (known.max(axis=1) - mean)).astype(np.float32)
    return result
