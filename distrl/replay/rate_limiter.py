"""How often the replay memory is sampled for what comes in; who is ahead waits."""


class RateLimiter:
    """Says whether a batch may be sampled, or unrolls are to be taken in first.

    A batch of `steps` may be sampled if at least `min_size_steps` have come in, and

        sampled + steps <= samples_per_insert x (inserted - min_size_steps)

    in environment steps, since the memory was empty. So nothing bunches up behind the first batch: what had to be there
    before it is on top. Both sides of it only grow and taking in is never refused, so that one of the two can always go
    on. While the learner may sample it takes no unroll; then the stream is full, and actors wait.

    Args:
        samples_per_insert: None: sampling never waits for more than `min_size_steps`.
    """

    def __init__(self, samples_per_insert: float | None, min_size_steps: int) -> None:
        self._samples_per_insert = samples_per_insert
        self._min_size_steps = min_size_steps
        self.inserted_steps = 0
        self.sampled_steps = 0

    @property
    def waits(self) -> bool:
        """The learner waits for unrolls when it has sampled what came in often enough."""
        return self._samples_per_insert is not None

    @property
    def filling(self) -> bool:
        """Too little has come in for a first batch."""
        return self.inserted_steps < self._min_size_steps

    @property
    def progress(self) -> str:
        """How far filling has got, to be shown."""
        return f"filling the replay: {self.inserted_steps:,} of {self._min_size_steps:,}"

    def may_sample(self, steps: int) -> bool:
        """Whether a batch of so many steps is due."""
        if self.filling:
            return False
        if self._samples_per_insert is None:
            return True
        allowed = self._samples_per_insert * (self.inserted_steps - self._min_size_steps)
        return self.sampled_steps + steps <= allowed

    def insert(self, steps: int) -> None:
        """Counts valid steps that have come in."""
        self.inserted_steps += steps

    def sample(self, steps: int) -> None:
        """Counts steps that were sampled."""
        self.sampled_steps += steps
