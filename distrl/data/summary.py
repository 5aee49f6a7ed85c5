"""The figures of a data set: episodes, returns, ends and actions."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete

from distrl.data.episodes import Episode, Episodes
from distrl.types import Array

_BINS = 20
"""Number of bars of the histogram of returns."""
_MOST_ROWS = 2**18
"""Actions of real numbers that are kept."""


def summary(episodes: Episodes) -> dict[str, Any]:
    """Read all episodes and return their figures, in JSON's types.

    Raises:
        DataError: One cannot be read.
    """
    found: list[dict[str, Any]] = []
    for _ in Summarised(episodes, found.append).read(range(len(episodes.lengths))):
        pass
    return found[0]


class Summarised:
    """A data set that takes its figures from what is read of it anyway.

    Args:
        report: Takes the figures, as of `summary`, once every episode has been read.
    """

    def __init__(self, episodes: Episodes, report: Callable[[dict[str, Any]], None]) -> None:
        self._episodes, self._report = episodes, report
        self.name, self.environment, self.lengths = episodes.name, episodes.environment, episodes.lengths
        self.observation_space, self.action_space = episodes.observation_space, episodes.action_space
        self._returns = np.full(len(episodes.lengths), np.nan)
        self._left = set(range(len(episodes.lengths)))
        self._terminated = self._known = self._missing = 0
        self._acted = _Actions(episodes.action_space)

    def read(self, numbers: Sequence[int]) -> Iterator[Episode]:
        for number, episode in zip(numbers, self._episodes.read(numbers), strict=True):
            if number in self._left:
                self._add(number, episode)
            yield episode

    def _add(self, number: int, episode: Episode) -> None:
        self._left.remove(number)
        self._returns[number] = episode.rewards.sum()
        self._terminated += episode.terminated
        self._known += episode.log_probabilities is not None
        self._missing += _missing(episode)
        self._acted.add(episode.actions)
        if not self._left:
            self._report(self._figures())

    def _figures(self) -> dict[str, Any]:
        spaces = {"observation_space": self.observation_space, "action_space": self.action_space}
        counts, edges = _histogram(self._returns[np.isfinite(self._returns)])
        return {
            "name": self.name,
            "environment": self.environment,
            **{name: None if space is None else str(space) for name, space in spaces.items()},
            "episodes": len(self._returns),
            "steps": int(self.lengths.sum()),
            "length_steps": _spread(self.lengths),
            "return": _spread(self._returns),
            "return_histogram": {"counts": counts.tolist(), "edges": edges.tolist()},
            "terminated": self._terminated,
            "truncated": len(self._returns) - self._terminated,
            "steps_with_missing_values": self._missing,
            "episodes_with_behaviour_probabilities": self._known,
            "actions": self._acted.figures(),
        }


def _spread(values: Array) -> dict[str, float]:
    """Return least, quartiles, greatest and mean."""
    names = ("min", "quarter", "median", "three_quarters", "max")
    found = dict(zip(names, np.quantile(values, (0.0, 0.25, 0.5, 0.75, 1.0)).tolist(), strict=True))
    return found | {"mean": float(np.mean(values)), "std": float(np.std(values))}


def _histogram(values: Array) -> tuple[Array, Array]:
    """Return counts and edges of bins, also of values that differ by rounding alone."""
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    if high - low < (rounding := 1e-6 * max(abs(low), abs(high))) or low == high:
        low, high = low - max(0.5, rounding), high + max(0.5, rounding)
    return np.histogram(values, bins=_BINS, range=(low, high))


def _missing(episode: Episode) -> int:
    """Count steps with a reward, or a number of the observation before them, that is not finite."""
    steps = len(episode.rewards)
    bad = ~np.isfinite(episode.rewards)
    for leaf in _leaves(episode.observations):
        if leaf.dtype.kind == "f":
            bad |= ~np.isfinite(leaf[:steps]).reshape(steps, -1).all(axis=1)
    return int(np.count_nonzero(bad))


def _leaves(tree: Any) -> list[Array]:
    if isinstance(tree, dict):
        return [leaf for inner in tree.values() for leaf in _leaves(inner)]
    if isinstance(tree, tuple):
        return [leaf for inner in tree for leaf in _leaves(inner)]
    return [tree] if isinstance(tree, np.ndarray) else []


class _Actions:
    """Collects how often each choice was made; of real numbers, where they lie.

    Of many steps it keeps every second one, every fourth one and so on: a learner's data may be larger than memory.
    """

    def __init__(self, space: Any) -> None:
        self._choices = isinstance(space, Discrete | MultiDiscrete)
        self._counts: list[Counter[int]] = []
        self._parts: list[Array] = []
        self._seen = self._kept = 0
        self._every = 1

    def add(self, actions: Any) -> None:
        if not isinstance(actions, np.ndarray):
            return  # of Dict and Tuple spaces: their parts are not comparable
        rows = actions.reshape(len(actions), -1)
        if not self._choices:
            self._keep(rows)
            return
        self._counts = self._counts or [Counter() for _ in range(rows.shape[1])]
        for counter, column in zip(self._counts, rows.T, strict=True):
            counter.update(column.astype(int).tolist())

    def _keep(self, rows: Array) -> None:
        part = rows[-self._seen % self._every :: self._every].copy()  # a view would keep the whole episode
        self._parts.append(part)
        self._seen += len(rows)
        self._kept += len(part)
        if self._kept > _MOST_ROWS:
            self._parts = [np.concatenate(self._parts)[::2].copy()]
            self._every, self._kept = 2 * self._every, len(self._parts[0])

    def figures(self) -> list[dict[str, Any]]:
        """Return for each number of the action: choice -> share, or the spread of its values."""
        if self._counts:
            return [
                {str(choice): counter[choice] / counter.total() for choice in sorted(counter)}
                for counter in self._counts
            ]
        return [_spread(column) for column in np.concatenate(self._parts).T] if self._parts else []
