"""Recorded episodes as every format has them: their lengths, and the spaces in which they were recorded."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from distrl.errors import DistrlError, one_line
from distrl.types import FloatArray

Lengths = NDArray[np.int64]
Returns = NDArray[np.float64]


class DataError(DistrlError):
    """A data set cannot be read, or holds what no episode of the environment can be."""

    exit_code = 2


class TakenError(DataError):
    """A new data set is called as one that is there."""


class Unchanged:
    """Notices that a file of a data set is not the one any more that was opened.

    Args:
        name: Of the data set.
    """

    def __init__(self, name: str, path: Path) -> None:
        self._name, self._path = name, path
        self._opened = self._look()

    def check(self) -> None:
        """Raise DataError if the file has changed or has gone."""
        if self._look() != self._opened:
            raise DataError(f"data set {self._name} has changed since it was opened ({self._path}); resume the run")

    def _look(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise DataError(f"data set {self._name} cannot be read: {one_line(error)}") from error
        return found.st_ino, found.st_size, found.st_mtime_ns


class Spaces(NamedTuple):
    """The spaces of the environment, with which a data set is compared.

    Attributes:
        frames: As in `Made`.
        max_episode_steps: Its limit; None: it has none.
    """

    observation: Space[Any]
    action: Space[Any]
    frames: int
    max_episode_steps: int | None


class Episode(NamedTuple):
    """One recorded episode of T steps.

    Attributes:
        observations: The environment's own, [T+1, ...]: an array, or dicts and tuples of arrays. A Text is a list.
        actions: The environment's own, [T, ...], likewise.
        rewards: float64 [T].
        terminated: Whether its last step ended it; otherwise it was cut off there, and its last observation has a
            value.
        log_probabilities: float32 [T]. Of the actions, under the policy that took them; None: unknown.
    """

    observations: Any
    actions: Any
    rewards: NDArray[np.float64]
    terminated: bool
    log_probabilities: FloatArray | None = None

    @property
    def length_steps(self) -> int:
        return len(self.rewards)


class Episodes(Protocol):
    """A data set.

    Attributes:
        name: As the user names it.
        environment: Id of the environment of the recording; None: unknown.
        observation_space, action_space: Spaces of the recording; None: the format does not say.
        lengths: int64 [E]. Steps of every episode.
    """

    name: str
    environment: str | None
    observation_space: Space[Any] | None
    action_space: Space[Any] | None

    @property
    def lengths(self) -> Lengths: ...

    def read(self, numbers: Sequence[int]) -> Iterator[Episode]:
        """Yield the episodes with these numbers, in this order, one in memory at a time.

        Raises:
            DataError: One cannot be read.
        """


class EpisodeWriter(Protocol):
    """A new data set, which is there as a whole once `finish` has returned, and otherwise not at all."""

    def add(self, episode: Episode) -> None:
        """Append an episode.

        Raises:
            DataError: The disk does not take it.
        """

    def finish(self) -> Path:
        """Put the data set in its place, and return that.

        Raises:
            DataError: `add` was interrupted, or the disk does not take it; nothing is left.
        """

    def abandon(self) -> None:
        """Remove what has been written."""


class Part:
    """Some episodes of a data set, in their order."""

    def __init__(self, whole: Episodes, numbers: Sequence[int]) -> None:
        self._whole, self._numbers = whole, [*numbers]
        self.name, self.environment = whole.name, whole.environment
        self.observation_space, self.action_space = whole.observation_space, whole.action_space
        self.lengths: Lengths = whole.lengths[self._numbers]

    def read(self, numbers: Sequence[int]) -> Iterator[Episode]:
        return self._whole.read([self._numbers[number] for number in numbers])


def returns(episodes: Episodes) -> Returns:
    """Return the undiscounted return of every episode, float64 [E]; it reads all of them."""
    return np.array([episode.rewards.sum() for episode in episodes.read(range(len(episodes.lengths)))], np.float64)


def best(episodes: Episodes, share: float) -> Part:
    """Return the episodes with the greatest returns, at least one; of equal ones the earlier."""
    count = max(round(share * len(episodes.lengths)), 1)
    greatest = np.argsort(-returns(episodes), kind="stable")[:count]
    return Part(episodes, np.sort(greatest).tolist())


def ordered(read: Callable[[int], Episode], numbers: Sequence[int]) -> Iterator[Episode]:
    """Yield `read` of one number after the other."""
    return map(read, numbers)
