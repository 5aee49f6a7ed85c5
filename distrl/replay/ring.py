"""A ring of unrolls: every array of every unroll once, in memory that is set aside at the start.

Observations stay as they travelled: T + 1 rows serve as both ends of T transitions, and of stacks of n frames each
frame is there once. Stacks are made again for what is sampled, as `distrl/frames.py` makes them.
"""

import numpy as np

from distrl import frames
from distrl.replay.n_step import n_step_transitions
from distrl.replay.sum_tree import Indices
from distrl.types import (
    STEP_FIELDS,
    Array,
    Batch,
    FloatArray,
    Form,
    Unroll,
    UnrollSchema,
    bytes_of,
    step_arguments,
    step_arrays,
)


def slot_forms(schema: UnrollSchema, *, sequences: bool) -> dict[str, Form]:
    """Arrays that one unroll takes, by path; names of observations and actions are numbers, in the schema's order.

    Args:
        sequences: Whole columns are sampled, and start from the recurrent state. Otherwise rows hold what they lead to
            n steps on, and `bootstrap_steps`.
    """
    forms = {entry.name: schema.steps[entry.name] for entry in STEP_FIELDS}
    if not sequences:
        forms["bootstrap_steps"] = (np.dtype("int32"), (schema.unroll_length_steps, schema.environments))
    groups = {"observations": schema.observations, "actions": schema.actions}
    if sequences:
        groups["recurrent_state"] = schema.recurrent_state
    for group, arrays in groups.items():
        forms |= {f"{group}/{position}": form for position, form in enumerate(arrays.values())}
    return forms


def slot_bytes(schema: UnrollSchema, *, sequences: bool) -> int:
    """Bytes that one unroll takes."""
    return bytes_of(slot_forms(schema, sequences=sequences))


class UnrollRing:
    """So many slots, in which the newest unroll takes the oldest one's place.

    Attributes:
        arrays: Path -> [slots, ...], as `slot_forms` names them.

    Args:
        discount: Of the rewards within a transition.
        n_step: Steps of a transition.
    """

    def __init__(self, schema: UnrollSchema, slots: int, *, sequences: bool, discount: float, n_step: int) -> None:
        self._schema = schema
        self._sequences = sequences
        self._discount = discount
        self._n_step = n_step
        self._length, self._environments = schema.unroll_length_steps, schema.environments
        self.slots = slots
        # Not zeroed: the operating system gives memory as slots are filled.
        self.arrays: dict[str, Array] = {
            path: np.empty((slots, *shape), dtype)
            for path, (dtype, shape) in slot_forms(schema, sequences=sequences).items()
        }

    def put(self, slot: int, unroll: Unroll) -> None:
        """Copies an unroll into a slot."""
        arrays = self.arrays
        rows = step_arrays(unroll)
        if not self._sequences:
            led_to = n_step_transitions(
                unroll.rewards,
                unroll.terminated,
                unroll.truncated,
                unroll.valid,
                discount=self._discount,
                steps=self._n_step,
            )
            rows |= led_to._asdict()
        groups = {"observations": (unroll.observations, self._schema.observations)}
        groups["actions"] = (unroll.actions, self._schema.actions)
        if self._sequences:
            groups["recurrent_state"] = (unroll.recurrent_state, self._schema.recurrent_state)
        for group, (given, names) in groups.items():
            rows |= {f"{group}/{position}": given[name] for position, name in enumerate(names)}
        for path, array in rows.items():
            arrays[path][slot] = array

    def transitions(self, positions: Indices, importance_weights: FloatArray | None) -> Batch:
        """Single transitions as a batch with T = 1.

        Args:
            positions: int64 [N]. (slot x T + t) x B + b, of rows that are valid.
        """
        unrolls, environment = np.divmod(positions, self._environments)
        slot, row = np.divmod(unrolls, self._length)
        steps = self._of_steps("bootstrap_steps")[positions]  # [N]
        both = np.stack([row, row + steps])  # [2, N]
        return Batch(
            observations={
                name: self._rows(f"observations/{i}", slot, both, environment, self._schema.frames.get(name, 1))
                for i, name in enumerate(self._schema.observations)
            },
            actions={
                name: self._of_steps(f"actions/{i}")[positions][None] for i, name in enumerate(self._schema.actions)
            },
            **step_arguments(lambda name: self._of_steps(name)[positions][None]),
            recurrent_state={},
            bootstrap_steps=steps[None],
            importance_weights=importance_weights,
        )

    def columns(self, positions: Indices, importance_weights: FloatArray | None) -> Batch:
        """Whole columns as a batch of N unrolls of one environment each, from the recurrent state before row 0.

        Args:
            positions: int64 [N]. slot x B + b.
        """
        slot, environment = np.divmod(positions, self._environments)

        def taken(path: str) -> Array:  # [slots, T, B, ...] -> [T, N, ...]
            return np.ascontiguousarray(np.moveaxis(self.arrays[path][slot, :, environment], 0, 1))

        steps = step_arguments(taken)
        observations = {name: taken(f"observations/{i}") for i, name in enumerate(self._schema.observations)}
        stacks = {
            name: frames.rebuilt(observations[name], steps["valid"], n) for name, n in self._schema.frames.items()
        }
        return Batch(
            observations={**observations, **stacks},
            actions={name: taken(f"actions/{i}") for i, name in enumerate(self._schema.actions)},
            **steps,
            recurrent_state={
                name: self.arrays[f"recurrent_state/{i}"][slot, environment]
                for i, name in enumerate(self._schema.recurrent_state)
            },
            importance_weights=importance_weights,
        )

    def _of_steps(self, path: str) -> Array:
        """[slots, T, B, ...] -> [slots * T * B, ...], a view."""
        array = self.arrays[path]
        return array.reshape(-1, *array.shape[3:])

    def _rows(self, path: str, slot: Indices, rows: Indices, environment: Indices, count: int) -> Array:
        """Observations [2, N, ...] of rows [2, N], of which stacks of `count` frames are made again."""
        array = self.arrays[path]  # [slots, T + count, B, ...]
        flat = array.reshape(-1, *array.shape[3:])
        oldest = slot * array.shape[1]  # of the frames in row 0's stack
        if count == 1:
            chosen: Array = flat[(oldest + rows) * self._environments + environment]
            return chosen
        reach = self._reach(slot, rows, environment, count)
        ages = np.arange(count - 1, -1, -1).reshape(-1, 1, 1)  # in the order of time
        # A frame from before the episode is its first one instead, as `frames.advanced` fills a new episode's stack.
        at = oldest + rows + count - 1 - np.minimum(ages, reach)  # [count, 2, N]
        singles = flat[(at * self._environments + environment).reshape(count, -1)]
        stacks = frames.joined(singles)  # [2 * N, ..., count * C]
        return stacks.reshape(*rows.shape, *stacks.shape[1:])

    def _reach(self, slot: Indices, rows: Indices, environment: Indices, count: int) -> Indices:
        """How many rows before each one its episode began, as far as stacks of `count` frames reach, [2, N]."""
        valid = self.arrays["valid"]
        reach = np.full(rows.shape, count - 1)
        for age in range(count - 1, 0, -1):  # the nearest beginning last: it counts
            before = rows - age
            # An episode begins after a row that is not valid. What was before row 0 its stack already knows.
            begins = (before >= 0) & ~valid[slot, np.maximum(before, 0), environment]
            reach[begins] = age - 1
        return reach
