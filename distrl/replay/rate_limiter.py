"""The rate limiter: the ratio of sampled to inserted steps. The side that is ahead waits."""


class RateLimiter:
    """Decides whether a batch may be sampled, or unrolls must be inserted first.

    A batch of `steps` may be sampled if at least `min_size_steps` have been inserted, and

        sampled + steps <= samples_per_insert x (inserted - min_size_steps)

    in environment steps, since the memory was empty. The steps before the first batch do not count, so that no burst of
    updates follows them. Inserting is never refused, so there is no deadlock. While the learner may sample, it takes no
    unroll; the stream fills, and actors wait.

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
        """Whether the learner waits for unrolls when it has sampled the inserted steps often enough."""
        return self._samples_per_insert is not None

    @property
    def filling(self) -> bool:
        """Whether fewer than `min_size_steps` have been inserted."""
        return self.inserted_steps < self._min_size_steps

    @property
    def progress(self) -> str:
        """Progress of the first filling, for the terminal."""
        return f"filling the replay: {self.inserted_steps:,} of {self._min_size_steps:,}"

    def may_sample(self, steps: int) -> bool:
        """Return whether a batch of this many steps is due."""
        if self.filling:
            return False
        if self._samples_per_insert is None:
            return True
        allowed = self._samples_per_insert * (self.inserted_steps - self._min_size_steps)
        return self.sampled_steps + steps <= allowed

    def insert(self, steps: int) -> None:
        """Count inserted valid steps."""
        self.inserted_steps += steps

    def sample(self, steps: int) -> None:
        """Count sampled steps."""
        self.sampled_steps += steps
