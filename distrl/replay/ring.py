"""A ring of unrolls: every array of every unroll once, in memory that is set aside at the start.

Observations stay as they travelled: T + 1 rows serve as both ends of T transitions, and of stacks of n frames each
frame is there once. Stacks are made again for what is sampled, as `distrl/frames.py` makes them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from distrl import frames
from distrl.replay.sum_tree import Indices
from distrl.types import (
    STEP_FIELDS,
    Array,
    BoolArray,
    Form,
    Unroll,
    UnrollSchema,
    step_arguments,
    step_arrays,
)


def slot_forms(schema: UnrollSchema, further: Mapping[str, Form]) -> dict[str, Form]:
    """Arrays that one unroll takes, by path; names of observations and actions are numbers, in the schema's order.

    Args:
        further: Arrays of the items.
    """
    forms = {entry.name: schema.steps[entry.name] for entry in STEP_FIELDS}
    for group, arrays in _groups(schema).items():
        forms |= {f"{group}/{position}": form for position, form in enumerate(arrays.values())}
    return {**forms, **further}


class UnrollRing:
    """So many slots, in which the newest unroll takes the oldest one's place.

    What is taken out has rows [R, N]: of the item n row `rows[:, n]` of the unroll in `slot[n]` and an environment.

    Attributes:
        arrays: Path -> [slots, ...], as `slot_forms` names them.
    """

    def __init__(self, schema: UnrollSchema, slots: int, further: Mapping[str, Form]) -> None:
        self._schema = schema
        # Not zeroed: the operating system gives memory as slots are filled.
        self.arrays: dict[str, Array] = {
            path: np.empty((slots, *shape), dtype) for path, (dtype, shape) in slot_forms(schema, further).items()
        }

    def put(self, slot: int, unroll: Unroll, further: Mapping[str, Array]) -> None:
        """Copies an unroll into a slot.

        Args:
            further: Arrays of the items, and arrays in place of the unroll's own.
        """
        rows = step_arrays(unroll)
        for group, forms in _groups(self._schema).items():
            given = getattr(unroll, group)
            rows |= {f"{group}/{position}": given[name] for position, name in enumerate(forms)}
        for path, array in {**rows, **further}.items():
            self.arrays[path][slot] = array

    def taken(self, path: str, slot: Indices, rows: Indices, environment: Indices) -> Array:
        """[slots, rows, B, ...] -> [R, N, ...]."""
        array = self.arrays[path]
        return _entries(array, (slot * array.shape[1] + rows) * array.shape[2] + environment)

    def steps(self, slot: Indices, rows: Indices, environment: Indices) -> dict[str, Any]:
        """Arguments of a `Batch`: actions, and the arrays of `STEP_FIELDS`."""
        at = (
            slot * self._schema.unroll_length_steps + rows
        ) * self._schema.environments + environment  # of all of them
        actions = enumerate(self._schema.actions)
        return step_arguments(lambda name: _entries(self.arrays[name], at)) | {
            "actions": {name: _entries(self.arrays[f"actions/{position}"], at) for position, name in actions}
        }

    def recurrent_state(self, slot: Indices, number: Indices, environment: Indices) -> dict[str, Array]:
        """The states with these numbers in their unrolls, [N, ...] by name."""
        states = enumerate(self._schema.recurrent_state)
        return {name: self.taken(f"recurrent_state/{at}", slot, number, environment) for at, name in states}

    def observations(self, slot: Indices, rows: Indices, environment: Indices) -> dict[str, Array]:
        """Observations by name; stacks of frames are made again."""
        return {
            name: self._stacks(position, slot, rows, environment, self._schema.frames.get(name, 1))
            for position, name in enumerate(self._schema.observations)
        }

    def consecutive(self, slot: Indices, rows: Indices, environment: Indices, valid: BoolArray) -> dict[str, Array]:
        """`observations` of consecutive rows [T + 1, N], whose first T are `valid`, bool [T, N]: faster for stacks."""
        found = {}
        for position, name in enumerate(self._schema.observations):
            count = self._schema.frames.get(name, 1)
            longer = rows[0] + np.arange(len(valid) + count)[:, None]
            found[name] = self.taken(f"observations/{position}", slot, longer, environment)
            if count > 1:
                first = self._stacks(position, slot, rows[:1], environment, count)[0]
                found[name][:count] = frames.split(first, count)
                found[name] = frames.rebuilt(found[name], valid, count)
        return found

    def _stacks(self, position: int, slot: Indices, rows: Indices, environment: Indices, count: int) -> Array:
        """Observations [R, N, ...] of one name, of which stacks of `count` frames are made again."""
        path = f"observations/{position}"
        if count == 1:
            return self.taken(path, slot, rows, environment)
        reach = self._reach(slot, rows, environment, count)
        ages = np.arange(count - 1, -1, -1).reshape(-1, 1, 1)  # in the order of time
        # A frame from before the episode is its first one instead, as `frames.advanced` fills a new episode's stack.
        singles = self.taken(path, slot, rows + count - 1 - np.minimum(ages, reach), environment)  # [count, R, N, ...]
        stacks = frames.joined(singles.reshape(count, -1, *singles.shape[3:]))
        return stacks.reshape(*rows.shape, *stacks.shape[1:])

    def _reach(self, slot: Indices, rows: Indices, environment: Indices, count: int) -> Indices:
        """How many rows before each one its episode began, as far as stacks of `count` frames reach, [R, N]."""
        valid = self.arrays["valid"]
        reach = np.full(rows.shape, count - 1)
        for age in range(count - 1, 0, -1):  # the nearest beginning last: it counts
            before = rows - age
            # An episode begins after a row that is not valid. What was before row 0 its stack already knows.
            begins = (before >= 0) & ~valid[slot, np.maximum(before, 0), environment]
            reach[begins] = age - 1
        return reach


def _entries(array: Array, at: Indices) -> Array:
    """[slots, rows, B, ...], and places in the first three axes as one -> [*at, ...]."""
    entries: Array = array.reshape(-1, *array.shape[3:])[at]
    return entries


def _groups(schema: UnrollSchema) -> dict[str, Mapping[str, Form]]:
    return {
        "observations": schema.observations,
        "actions": schema.actions,
        "recurrent_state": schema.recurrent_state,
    }
