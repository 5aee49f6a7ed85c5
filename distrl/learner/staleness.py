"""How old the weights behind an unroll may be, as long as that is not changed."""

from dataclasses import dataclass, field


@dataclass
class StalenessBound:
    """Shared by who judges unrolls and who issues tickets, on two threads.

    Attributes:
        updates: 0: synchronous. k: nothing older than k updates. None: bounded by the queue alone, for good.
        ahead: For so many batches beside the next one there are tickets: `updates`, as soon as tickets have followed.
    """

    updates: int | None
    ahead: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.ahead = self.updates
