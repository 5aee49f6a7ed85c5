"""Hop 6: makes batches of the stream's items: unrolls side by side, or gradients in order.

`learner/rounds.py` makes those of synchronous gradient actors, `learner/replay_batches.py` those of a replay memory,
`learner/recorded_batches.py` those of recorded data, `learner/mixed_batches.py` those of both.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from distrl.algorithms.algorithm import Update
from distrl.errors import NonFiniteError
from distrl.learner.feeding import Joining
from distrl.learner.intake import Intake, Item, Judged
from distrl.learner.prefetch import Source
from distrl.learner.state import LearnerState
from distrl.memory_backend.gradient_codec import GradientSchema
from distrl.memory_backend.ledger import EntryOutcome
from distrl.networks.framework.placement import Placement
from distrl.replay.memory import Replay
from distrl.types import Array, Batch, Contribution, Contributions, FloatArray, Unroll

REFUSED_GRADIENTS = 16
"""Number of successive gradients that are not finite after which the training ends."""


class Receipt(Protocol):
    """Stands for the data of a batch, or of arrivals, until they are used: `intake.EntriesReceipt` for the stream's.

    A source whose data are of another origin, such as a file, has a class of its own.
    """

    def settle(self, outcome: EntryOutcome = EntryOutcome.TRAINED) -> None:
        """Record what has become of the data, where an account of them is kept."""

    def count(self, state: LearnerState) -> None:
        """Add the data to the learner's counts: they have been trained on, or are in the replay memory."""


@dataclass
class LearnerBatch:
    """Data of one update.

    Attributes:
        batch: Arrays [T, N], observations [T+1, N, ...]; or gradients, if actors ship those.
        lags_updates: Versions between the weights that acted and the update, one per unroll that was taken for it.
        receipts: Receipts of its data; none if it was sampled.
        missing: Actors whose gradient the round lacks.
        publish: Whether the weights after its update are published.
        items: int64 [N]. Numbers of its items in `replay`.
    """

    batch: Batch | Contributions
    lags_updates: list[int]
    receipts: tuple[Receipt, ...] = ()
    missing: list[int] = field(default_factory=list)
    publish: bool = True
    items: Array | None = None
    replay: Replay | None = None

    def reprioritise(self, priorities: FloatArray | None) -> None:
        """Hand an update's priorities to the replay memory that the batch was sampled from."""
        if self.replay is not None and self.items is not None and priorities is not None:
            self.replay.reprioritise(self.items, priorities)


class Trained(NamedTuple):
    """An update, and the batch of which it was made."""

    made: LearnerBatch
    update: Update


class Batches(Protocol):
    """A source of the learner's batches, on its thread: `Collected`, `ReplayBatches`, `RecordedBatches` or such.

    Attributes:
        measured_as: Name under which the time of `collect` counts.
        activity: Activity of the learner that it leads to, for heartbeats.
        progressed_at: Monotonic time of the newest progress that makes no batch yet; 0.0: there was none.
    """

    measured_as: str

    @property
    def progressed_at(self) -> float: ...

    @property
    def activity(self) -> str: ...

    def collect(self) -> LearnerBatch | None:
        """Return the next batch; None if a stop was requested, or the training ended, before one was there."""


class Collected:
    """Batches as they come from the stream or from rounds."""

    measured_as, activity, progressed_at = "unrolls", "training", 0.0

    def __init__(self, source: Source[LearnerBatch]) -> None:
        self.collect = source.collect


class StreamBatches:
    """Collects `size` items of any actors for each batch; every batch makes one version of the weights.

    Unrolls are joined one by one as they come, while the next ones are awaited.

    Args:
        stop: Called whenever no entry arrives.
        threads: Threads that join unrolls, see `Joining`.
        place: Copies batches to the device and rebuilds stacks there; None: they stay on the host until their update.
    """

    def __init__(
        self,
        intake: Intake,
        size: int,
        stop: Callable[[], bool],
        threads: int = 1,
        place: Placement | None = None,
    ) -> None:
        self._intake = intake
        self._size = size
        self._stop = stop
        self._place = place
        self._joining: Joining | None = None
        if not isinstance(intake.schema, GradientSchema):
            self._joining = Joining(size, intake.schema.frames if place is None else place.frames_on_host, threads)
        self._refused = 0  # gradients in a row that were not finite

    def collect(self) -> LearnerBatch | None:
        """Block until a batch is complete; return None if a stop was requested before.

        Raises:
            NonFiniteError: `REFUSED_GRADIENTS` successive gradients were not finite.
        """
        if self._joining is not None:
            self._joining.begin()
        taken = self._intake.take_together(self._size, self._stop, self._look)
        if taken is None:
            return None
        items = [judged.item for judged in taken if judged.item is not None]
        made = LearnerBatch(
            batch=self._batch(items),
            lags_updates=[self._intake.version - item.header.weights_version for item in items],
            receipts=(self._intake.receipt(taken, items),),
        )
        self._intake.version += 1
        return made

    def _look(self, judged: Judged) -> None:
        """Join an unroll to those before it.

        Raises:
            NonFiniteError: Too many successive gradients were not finite: no update would change that.
        """
        if self._joining is not None:
            if isinstance(judged.item, Unroll):
                self._joining.add(judged.item)
            return
        if judged.item is not None:
            self._refused = 0
        if judged.refused is not EntryOutcome.NONFINITE:
            return
        self._refused += 1
        if self._refused >= REFUSED_GRADIENTS:
            raise NonFiniteError(
                f"{self._refused} gradients one after the other are not finite (version {self._intake.version})"
            )

    def _batch(self, items: list[Item]) -> Batch | Contributions:
        if self._joining is not None:
            batch = self._joining.finish()
            return batch if self._place is None else self._place(batch)
        return tuple(item for item in items if isinstance(item, Contribution))
