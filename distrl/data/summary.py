"""The figures of a data set: episodes, returns, ends and actions."""

from collections import Counter
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete

from distrl.data.episodes import Episode, Episodes
from distrl.types import Array


def summary(episodes: Episodes) -> dict[str, Any]:
    """Read all episodes and return their figures, in JSON's types.

    Raises:
        DataError: One cannot be read.
    """
    returns, terminated, known, missing = list[float](), 0, 0, 0
    acted = _Actions(episodes.action_space)
    for episode in episodes.read(range(len(episodes.lengths))):
        returns.append(float(episode.rewards.sum()))
        terminated += episode.terminated
        known += episode.log_probabilities is not None
        missing += _missing(episode)
        acted.add(episode.actions)
    return {
        "name": episodes.name,
        "environment": episodes.environment,
        "observation_space": None if episodes.observation_space is None else str(episodes.observation_space),
        "action_space": None if episodes.action_space is None else str(episodes.action_space),
        "episodes": len(returns),
        "steps": int(episodes.lengths.sum()),
        "length_steps": _spread(episodes.lengths),
        "return": _spread(np.array(returns)),
        "terminated": terminated,
        "truncated": len(returns) - terminated,
        "steps_with_missing_values": missing,
        "episodes_with_behaviour_probabilities": known,
        "actions": acted.figures(),
    }


def _spread(values: Array) -> dict[str, float]:
    """Return least, quartiles, greatest and mean."""
    names = ("min", "quarter", "median", "three_quarters", "max")
    found = dict(zip(names, np.quantile(values, (0.0, 0.25, 0.5, 0.75, 1.0)).tolist(), strict=True))
    return found | {"mean": float(np.mean(values)), "std": float(np.std(values))}


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
    """Collects how often each choice was made; of real numbers, where they lie."""

    def __init__(self, space: Any) -> None:
        self._choices = isinstance(space, Discrete | MultiDiscrete)
        self._counts: list[Counter[int]] = []
        self._parts: list[Array] = []

    def add(self, actions: Any) -> None:
        if not isinstance(actions, np.ndarray):
            return  # of Dict and Tuple spaces: their parts are not comparable
        rows = actions.reshape(len(actions), -1)
        if not self._choices:
            self._parts.append(rows)
            return
        self._counts = self._counts or [Counter() for _ in range(rows.shape[1])]
        for counter, column in zip(self._counts, rows.T, strict=True):
            counter.update(column.astype(int).tolist())

    def figures(self) -> list[dict[str, Any]]:
        """Return for each number of the action: choice -> share, or the spread of its values."""
        if self._counts:
            return [
                {str(choice): counter[choice] / counter.total() for choice in sorted(counter)}
                for counter in self._counts
            ]
        return [_spread(column) for column in np.concatenate(self._parts).T] if self._parts else []
