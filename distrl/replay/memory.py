"""The replay memory: item x sampler x rate limiter over a ring of unrolls, on the learner's side of the stream.

    ring           holds unrolls, each array once; the oldest one makes room
    items          the kinds of items: transitions (n_step), sequences
    samplers       choose the items of a batch: uniform, prioritised by a sum_tree with new_items first, balanced over
                   classes
    hindsight      gives sampled transitions another goal, with the goal_rewards that they get for it
    masks          of the members of an ensemble that learn from an item
    rate_limiter   ratio of sampled to inserted steps

Items have unique numbers: (unroll's number) x (items per slot) + place in the slot. So a late priority of an item that
has made room never reaches the item in its place.
"""

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from distrl.config.replay import ReplayParameters
from distrl.config.schedules import Progress
from distrl.errors import CheckpointError
from distrl.replay.hindsight import Hindsight, hindsight_forms
from distrl.replay.items import make_items
from distrl.replay.masks import BootstrapMasks
from distrl.replay.rate_limiter import RateLimiter
from distrl.replay.ring import UnrollRing, slot_forms
from distrl.replay.samplers import make_sampler, sampler_bytes
from distrl.replay.sum_tree import Indices
from distrl.types import BOOTSTRAP_MASKS, PRIORITIES, Array, ArraySpec, Batch, BoolArray, FloatArray, Unroll
from distrl.unroll_schema import UnrollSchema, bytes_of


class Sample(NamedTuple):
    """One sampled batch.

    Attributes:
        batch: [T, N] with N items.
        items: int64 [N]. Numbers of its items.
        steps: Number of its valid steps that the loss sees.
    """

    batch: Batch
    items: Indices
    steps: int


class OtherMemoryError(CheckpointError):
    """A saved memory is of another configuration than this one."""


class SavedArrays(Protocol):
    """The arrays of `Replay.state_arrays`, in a file."""

    def __iter__(self) -> Iterator[str]: ...

    def __getitem__(self, name: str) -> Array: ...

    def form(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return data type and shape, without reading the array."""

    def read_into(self, name: str, array: Array) -> None:
        """Read into `array`, which has that form."""


def replay_bytes(parameters: ReplayParameters, schema: UnrollSchema) -> int:
    """Return the bytes of a full memory: unrolls, their counts of steps, items and episodes, and the sampler's data."""
    items = make_items(parameters, schema, discount=1.0)
    further = items.forms if parameters.hindsight is None else items.forms | hindsight_forms(schema)
    slots = parameters.slots(schema.unroll_length_steps * schema.environments)
    return slots * (bytes_of(slot_forms(schema, further)) + 24) + sampler_bytes(parameters, slots, items.per_slot)


def batch_bytes(parameters: ReplayParameters, schema: UnrollSchema, count: int) -> int:
    """Return the bytes of a batch of `count` items, without recurrent state and what an update makes of it."""
    rows = parameters.item.steps(schema.unroll_length_steps)
    steps = sum(
        dtype.itemsize * math.prod(shape[2:]) for dtype, shape in [*schema.actions.values(), *schema.sampled.values()]
    )
    observations = sum(
        dtype.itemsize * math.prod(shape[2:]) * schema.frames.get(name, 1)
        for name, (dtype, shape) in schema.observations.items()
    )
    return count * (rows * steps + (rows + 1) * observations)


class Replay:
    """Stores whole unrolls and samples items of them.

    Attributes:
        limiter: Decides when to sample; this class counts steps for it.
        slots: Number of unrolls that a full memory holds.

    Args:
        schema: Schema of every unroll.
        discount: Discount of the rewards within a transition.
        seeds: Seeds of the random draws.
        goal: Spec of goals, for hindsight.
        masks: Masks of an ensemble's members for the extras of batches; None: none.
        refills: Whether its unrolls can be read again: then a saved memory is without them.

    Raises:
        ConfigError: See `Hindsight`.
    """

    def __init__(
        self,
        parameters: ReplayParameters,
        schema: UnrollSchema,
        *,
        discount: float,
        seeds: np.random.SeedSequence,
        goal: ArraySpec | None = None,
        masks: BootstrapMasks | None = None,
        refills: bool = False,
    ) -> None:
        self._parameters, self._refills = parameters, refills
        self._shape = (schema.unroll_length_steps, schema.environments)
        self.slots = parameters.slots(self._shape[0] * self._shape[1])
        self._items = make_items(parameters, schema, discount)
        self._hindsight = None
        if parameters.hindsight is not None:
            assert goal is not None  # `check_goals` found it
            self._hindsight = Hindsight(parameters.hindsight, schema, goal)
        further = self._items.forms if self._hindsight is None else self._items.forms | hindsight_forms(schema)
        self._masks = masks
        self._ring = UnrollRing(schema, self.slots, further)
        self._sampler = make_sampler(parameters, self.slots, self._items.per_slot)
        self._balances = parameters.sampler.kind == "balanced"
        self._steps = np.zeros(self.slots, np.int64)  # valid ones, by slot
        self._present = np.zeros(self.slots, np.int64)  # items, by slot
        self._ends = np.zeros(self.slots, np.int64)  # of episodes, by slot
        self._next = 0  # number of the next unroll; it goes into slot number % slots
        self._awaited: tuple[int, dict[str, Array]] | None = None  # a number, and the sampler's state before it
        self._rng = np.random.default_rng(seeds)
        self.limiter = RateLimiter(parameters.samples_per_insert, parameters.min_size_steps)

    def begin_at(self, number: int) -> int:
        """Begin an empty memory as if so many unrolls had been inserted, and had made room; return the number.

        A restored one that refills begins with the first unroll that it held.
        """
        if self._awaited is None:
            self._next = number
        return self._next

    def reseed(self, seeds: np.random.SeedSequence) -> None:
        """Draw by these seeds from now on."""
        self._rng = np.random.default_rng(seeds)

    @property
    def size_steps(self) -> int:
        """Number of stored valid steps."""
        return int(self._steps.sum())

    @property
    def size_episodes(self) -> int:
        """Number of episodes whose last step is stored."""
        return int(self._ends.sum())

    @property
    def is_empty(self) -> bool:
        """Whether there are no items."""
        return not self._present.any()

    def steps_of(self, batch_size: int) -> int:
        """Return the most steps of a batch that the loss sees."""
        return self._parameters.steps_of(batch_size, self._shape[0])

    def insert(self, unroll: Unroll) -> int:
        """Copy an unroll into the memory, in place of the oldest one if it is full; return its valid steps.

        Raises:
            ConfigError: See `Hindsight.arrays`.
            OtherMemoryError: The memory refills, with other unrolls than it had.
        """
        slot, steps = self._next % self.slots, int(np.count_nonzero(unroll.valid))
        priorities = unroll.extras.get(PRIORITIES)
        further = self._items.arrays(unroll)
        if self._hindsight is not None:
            further |= self._hindsight.arrays(unroll)
        self._ring.put(slot, unroll, further)
        present = self._items.present({path: self._ring.arrays[path][slot] for path in ("valid", "terminated")})
        first = None if priorities is None else self._items.priorities(priorities, unroll.valid)
        # A sampler that balances choices has transitions of one action: `ReplayParameters.check_spec`.
        choices = next(iter(unroll.actions.values())).reshape(-1) if self._balances else None
        self._sampler.put(slot, present, first, choices)
        self._steps[slot], self._present[slot] = steps, np.count_nonzero(present)
        self._ends[slot] = _ends(unroll.valid[None], (unroll.terminated | unroll.truncated)[None])[0]
        self._next += 1
        self.limiter.insert(steps)
        if self._awaited is not None and self._awaited[0] == self._next:
            self._restore_sampler(self._awaited[1])
            self._awaited = None
        return steps

    def _restore_sampler(self, arrays: dict[str, Array]) -> None:
        try:
            self._sampler.restore(arrays, self._items_in(min(self._next, self.slots)))
        except (ValueError, LookupError) as error:
            raise OtherMemoryError(
                f"the checkpoint's priorities or choices are not of this data: {error}; resume with the data that it "
                "had, or remove checkpoints/replay-*.npz to begin with equal ones"
            ) from error

    def sample(self, count: int, progress: Progress) -> Sample:
        """Draw `count` items, with replacement.

        Args:
            progress: How far the training is, for schedules.

        Raises:
            ValueError: The memory is empty.
        """
        if self.is_empty:
            raise ValueError("the replay memory is empty: nothing can be sampled")
        drawn = self._sampler.draw(self._rng, count, progress)
        batch = self._items.batch(self._ring, drawn.positions, drawn.importance_weights)
        if self._hindsight is not None:
            filled = min(self._next, self.slots)
            self._hindsight.relabel(batch, self._ring, drawn.positions, filled, self._rng)
        steps = int(np.count_nonzero(batch.valid[self._items.burn_in_steps :]))
        self.limiter.sample(steps)
        numbers = self._numbers(drawn.positions)
        if self._masks is not None:
            batch = batch._replace(extras={**batch.extras, BOOTSTRAP_MASKS: self._masks.of(numbers)})
        return Sample(batch, numbers, steps)

    def reprioritise(self, items: Array, priorities: FloatArray) -> None:
        """Set the priorities of sampled items; those that have made room since are ignored.

        Args:
            items: int64 [N], from `sample`; if an item is named twice, the last priority counts.
            priorities: float32 [N], at least 0.

        Raises:
            ValueError: An item never existed, or a priority is negative.
            NonFiniteError: A priority is not finite.
        """
        if items.shape != priorities.shape:
            raise ValueError(f"{items.shape} items, {priorities.shape} priorities")
        unrolls, places = np.divmod(items, self._items.per_slot)
        if items.size and not (items.min() >= 0 and unrolls.max() < self._next):
            raise ValueError(f"items {items.min()} … {items.max()} were never in the replay memory")
        there = unrolls >= self._next - self.slots
        positions = unrolls % self.slots * self._items.per_slot + places
        self._sampler.reprioritise(positions[there], priorities[there])

    def _numbers(self, positions: Indices) -> Indices:
        """Return the items' numbers at these positions; each slot holds its newest unroll."""
        slots, places = np.divmod(positions, self._items.per_slot)
        unrolls = slots + (self._next - 1 - slots) // self.slots * self.slots
        numbers: Indices = unrolls * self._items.per_slot + places
        return numbers

    def state_arrays(self) -> dict[str, Array]:
        """Return the whole state as arrays by name; those of the ring are views."""
        filled = min(self._next, self.slots)
        counts = [self._next, self.limiter.inserted_steps, self.limiter.sampled_steps]
        # JSON, as a generator's state has integers of 128 bits.
        generator = np.frombuffer(json.dumps(self._rng.bit_generator.state).encode(), np.uint8)
        return {
            "shape": np.array([self.slots, *self._shape], np.int64),
            self._items.kind: np.array(self._items.identity, np.float64),
            "counts": np.array(counts, np.int64),
            "generator": generator,
            **{f"sampler/{name}": array for name, array in self._sampler.state_arrays().items()},
            **({} if self._refills else self._ring_arrays(filled)),
        }

    def _ring_arrays(self, filled: int) -> dict[str, Array]:
        return {f"ring/{path}": array[:filled] for path, array in self._ring.arrays.items()}

    def _items_in(self, filled: int) -> BoolArray:
        """Return which places of the first `filled` slots hold an item: bool [filled, per slot]."""
        return self._items.present({path: self._ring.arrays[path][:filled] for path in ("valid", "terminated")})

    def restore(self, arrays: SavedArrays) -> None:
        """Restore the state that `state_arrays` returned, in place of the present one.

        The ring's arrays are read in place, so that they are in memory once. One that refills has the sampler's state
        alone, once `insert` has put in the unrolls that it held.

        Raises:
            OtherMemoryError: It belongs to a memory of another size, or to unrolls of other shapes or spaces.
            RejectedError: It holds what no unroll of this schema may.
            ValueError, LookupError, TypeError: It is damaged. After these and a RejectedError the memory must not be
                used.
        """
        mine = self.state_arrays()
        same = ("shape", self._items.kind)
        if not mine.keys() <= set(arrays) or not all(np.array_equal(arrays[name], mine[name]) for name in same):
            raise OtherMemoryError(
                f"the saved replay memory is not of {self.slots} unrolls of {self._shape[0]} x {self._shape[1]} steps "
                "with this sampler, item and discount, as configured; configure it as it was, or remove the file to "
                "fill it anew"
            )
        number, inserted, sampled = (int(count) for count in arrays["counts"])
        if min(number, inserted, sampled) < 0:
            raise ValueError(f"the saved replay memory counts {number} unrolls, {inserted} and {sampled} steps")
        filled = min(number, self.slots)
        ring = {} if self._refills else self._ring_arrays(filled)
        sampler = {name: array for name, array in mine.items() if name.startswith("sampler/")}
        for name, array in {**sampler, **ring}.items():
            dtype, shape = arrays.form(name)
            if (dtype, shape) != (array.dtype, array.shape):
                raise OtherMemoryError(
                    f"the saved replay memory has {name} of {dtype} {shape}, not of {array.dtype} {array.shape}; "
                    "remove the file to fill it anew"
                )
        saved = {name.removeprefix("sampler/"): arrays[name] for name in sampler}
        if self._refills:
            self._next, self._awaited = number - filled, (number, saved)
            return
        for name, array in ring.items():
            arrays.read_into(name, array)
        self._ring.check(filled)
        self._items.check(self._ring, filled)
        if self._hindsight is not None:
            self._hindsight.check(self._ring, filled)
        flags = {path: self._ring.arrays[path][:filled] for path in ("valid", "terminated", "truncated")}
        present = self._items_in(filled)
        self._sampler.restore(saved, present)
        self._steps[:], self._present[:], self._ends[:] = 0, 0, 0
        self._steps[:filled] = np.count_nonzero(flags["valid"], axis=(1, 2))
        self._present[:filled] = np.count_nonzero(present, axis=1)
        self._ends[:filled] = _ends(flags["valid"], flags["terminated"] | flags["truncated"])
        self._next = number
        self._rng.bit_generator.state = json.loads(arrays["generator"].tobytes())
        self.limiter.inserted_steps, self.limiter.sampled_steps = inserted, sampled


def _ends(valid: BoolArray, over: BoolArray) -> Indices:
    """Count the valid rows before one that is not, and those at an unroll's end that terminated or were truncated.

    Args:
        valid, over: bool [slots, T, B]. An agent that waits has many rows that are not valid.

    Returns:
        int64 [slots].
    """
    last = valid & over
    last[:, :-1] = valid[:, :-1] & ~valid[:, 1:]
    counts: Indices = np.count_nonzero(last, axis=(1, 2))
    return counts
