"""A ring of unrolls: every array of every unroll once, in memory that is allocated at the start.

T + 1 rows of observations serve as both ends of T transitions, and each frame of stacks is stored once. Stacks are
rebuilt when they are sampled, as in `distrl/frames.py`. Large arrays of a batch are in memory that is used again.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from distrl import frames
from distrl.buffers import LEAST_BYTES, Buffers
from distrl.memory_backend.codec import check_choices, check_finite, check_least
from distrl.replay.sum_tree import Indices
from distrl.types import Array, BoolArray, Form, Unroll, step_arguments, step_arrays
from distrl.unroll_schema import UnrollSchema

_CHECKED_SLOTS = 64


def slot_forms(schema: UnrollSchema, further: Mapping[str, Form]) -> dict[str, Form]:
    """Return the forms of one unroll's arrays by path; observations and actions are numbered in the schema's order.

    Args:
        further: Forms of the items' arrays.
    """
    forms = dict(schema.sampled)
    for group, arrays in _groups(schema).items():
        forms |= {f"{group}/{position}": form for position, form in enumerate(arrays.values())}
    return {**forms, **further}


class UnrollRing:
    """A fixed number of slots, in which the newest unroll replaces the oldest one.

    Results have rows [R, N]: for item n, the rows `rows[:, n]` of one environment of the unroll in `slot[n]`.

    Attributes:
        arrays: Path -> [slots, ...], as `slot_forms` names them.
    """

    def __init__(self, schema: UnrollSchema, slots: int, further: Mapping[str, Form]) -> None:
        self._schema = schema
        self._buffers = Buffers()
        # Not zeroed: the operating system gives memory as slots are filled.
        self.arrays: dict[str, Array] = {
            path: np.empty((slots, *shape), dtype) for path, (dtype, shape) in slot_forms(schema, further).items()
        }

    def put(self, slot: int, unroll: Unroll, further: Mapping[str, Array]) -> None:
        """Copy an unroll into a slot.

        Args:
            further: Arrays of the items, and arrays that replace the unroll's own.
        """
        given = step_arrays(unroll)
        for group, forms in _groups(self._schema).items():
            arrays = getattr(unroll, group)
            given |= {f"{group}/{position}": arrays[name] for position, name in enumerate(forms)}
        given |= further
        for path, array in self.arrays.items():
            array[slot] = given[path]

    def check(self, filled: int) -> None:
        """Check the unrolls in the first `filled` slots, as those from a wire are checked.

        Raises:
            SchemaError: A choice is none of the space, or a value is below the least of its field.
            NonFiniteUnrollError: NaN or infinity in a floating array.
        """
        choices = {
            f"actions/{at}": self._schema.highest_choices.get(name) for at, name in enumerate(self._schema.actions)
        }
        for path, array in self.arrays.items():
            for begin in range(0, filled, _CHECKED_SLOTS):  # the arrays of comparisons stay small
                part = array[begin : min(begin + _CHECKED_SLOTS, filled)]
                check_finite([(path, part)])
                check_least(path, part)
                if (highest := choices.get(path)) is not None:
                    check_choices(path, part, highest)

    def taken(self, path: str, slot: Indices, rows: Indices, environment: Indices) -> Array:
        """Select the items' rows of an array: [slots, rows, B, ...] -> [R, N, ...]."""
        array = self.arrays[path]
        return self._entries(array, (slot * array.shape[1] + rows) * array.shape[2] + environment)

    def steps(self, slot: Indices, rows: Indices, environment: Indices) -> dict[str, Any]:
        """Return arguments of a `Batch`: actions, and the arrays of `STEP_FIELDS` and the extras."""
        at = (
            slot * self._schema.unroll_length_steps + rows
        ) * self._schema.environments + environment  # of all of them
        actions = enumerate(self._schema.actions)
        return step_arguments(lambda name: self._entries(self.arrays[name], at), self._schema.batch_extras) | {
            "actions": {name: self._entries(self.arrays[f"actions/{position}"], at) for position, name in actions}
        }

    def recurrent_state(self, slot: Indices, number: Indices, environment: Indices) -> dict[str, Array]:
        """Return the states with these numbers in their unrolls, [N, ...] by name."""
        states = enumerate(self._schema.recurrent_state)
        return {name: self.taken(f"recurrent_state/{at}", slot, number, environment) for at, name in states}

    def observations(self, slot: Indices, rows: Indices, environment: Indices) -> dict[str, Array]:
        """Return observations by name, with stacks of frames rebuilt."""
        return {
            name: self._stacks(position, slot, rows, environment, self._schema.frames.get(name, 1))
            for position, name in enumerate(self._schema.observations)
        }

    def consecutive(self, slot: Indices, rows: Indices, environment: Indices, valid: BoolArray) -> dict[str, Array]:
        """Return `observations` of consecutive rows [T + 1, N], faster for stacks; `valid` is that of the first T."""
        found = {}
        for position, name in enumerate(self._schema.observations):
            count = self._schema.frames.get(name, 1)
            longer = rows[0] + np.arange(len(valid) + count)[:, None]
            found[name] = self.taken(f"observations/{position}", slot, longer, environment)
            if count > 1:
                first = self._stacks(position, slot, rows[:1], environment, count)[0]
                found[name][:count] = frames.split(first, count)
                stacks = self._buffers.empty((*rows.shape, *first.shape[1:]), first.dtype)
                found[name] = frames.rebuilt(found[name], valid, count, stacks)
        return found

    def _stacks(self, position: int, slot: Indices, rows: Indices, environment: Indices, count: int) -> Array:
        """Return the observations [R, N, ...] of one name, with stacks of `count` frames rebuilt."""
        path = f"observations/{position}"
        if count == 1:
            return self.taken(path, slot, rows, environment)
        reach = self._reach(slot, rows, environment, count)
        ages = np.arange(count - 1, -1, -1).reshape(-1, 1, 1)  # in the order of time
        # The episode's first frame replaces frames before it, as `frames.advanced` fills a new episode's stack.
        singles = self.taken(path, slot, rows + count - 1 - np.minimum(ages, reach), environment)  # [count, R, N, ...]
        shape = (*singles.shape[1:-1], count * singles.shape[-1])
        return frames.joined(singles, self._buffers.empty(shape, singles.dtype))

    def _reach(self, slot: Indices, rows: Indices, environment: Indices, count: int) -> Indices:
        """Return the rows since each row's episode began, up to the reach of stacks of `count` frames, [R, N]."""
        valid = self.arrays["valid"]
        reach = np.full(rows.shape, count - 1)
        for age in range(count - 1, 0, -1):  # the nearest beginning last: it counts
            before = rows - age
            # An episode begins after a row that is not valid. The stack of row 0 has the frames before row 0.
            begins = (before >= 0) & ~valid[slot, np.maximum(before, 0), environment]
            reach[begins] = age - 1
        return reach

    def _entries(self, array: Array, at: Indices) -> Array:
        """Select entries of [slots, rows, B, ...] by flat indices over the first three axes: -> [*at, ...]."""
        flat = array.reshape(-1, *array.shape[3:])
        if at.size * flat.strides[0] < LEAST_BYTES:
            small: Array = flat[at]
            return small
        entries = self._buffers.empty((*at.shape, *flat.shape[1:]), flat.dtype)
        assert at.min() >= 0
        assert at.max() < len(flat)  # in the mode "raise", NumPy would write to memory of its own first
        return np.take(flat, at, axis=0, out=entries, mode="clip")


def _groups(schema: UnrollSchema) -> dict[str, Mapping[str, Form]]:
    return {
        "observations": schema.observations,
        "actions": schema.actions,
        "recurrent_state": schema.recurrent_state,
    }
