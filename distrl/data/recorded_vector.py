"""A vector environment that plays recorded episodes: whatever steps it sees them as an actor does its environment."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Dict, Text, Tuple
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from distrl.data.episodes import DataError, Episode, Episodes, Lengths
from distrl.environments import spaces
from distrl.environments.gym_adapter import VALID
from distrl.types import Array, FloatArray


def plan_rows(lengths: Lengths, rows: int) -> list[list[int]]:
    """Share episodes out among rows, each in order to the row that is free first.

    Args:
        lengths: int64 [E].

    Returns:
        The numbers of the episodes of each row.
    """
    plan: list[list[int]] = [[] for _ in range(rows)]
    free = [(0, row) for row in range(rows)]
    for number, length in enumerate(lengths.tolist()):
        played, row = heapq.heappop(free)
        plan[row].append(number)
        heapq.heappush(free, (played + length + 1, row))  # the step after an episode resets
    return plan


def steps_of(plan: Sequence[Sequence[int]], lengths: Lengths) -> int:
    """Return the steps of a vector in which all rows play their episodes to the end, resets between them included."""
    return max(int(lengths[numbers].sum()) + len(numbers) - 1 for numbers in map(list, plan) if numbers)


class RecordedVector(VectorEnv[Any, Any, Any]):
    """Plays episodes in its rows, one after the other, whatever the actions are.

    It states which rows are valid. A row whose episodes are over repeats its last observation and is not valid.

    Args:
        observation_space, action_space: The environment's.
        plan: Numbers of the episodes of each row.

    Attributes:
        next_actions: name -> [B, ...], as policies act. The recorded actions of the step that follows; zeros where that
            resets.
        next_log_probabilities: float32 [B]. Of these; 0 where they are unknown.
    """

    def __init__(
        self,
        episodes: Episodes,
        plan: Sequence[Sequence[int]],
        environment: str,
        observation_space: Space[Any],
        action_space: Space[Any],
    ) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs = len(plan)
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, self.num_envs)
        self.action_space = batch_space(action_space, self.num_envs)
        actions = spaces.env_spec(environment, observation_space, action_space, None, None).actions
        self.next_actions = {
            name: np.zeros((self.num_envs, *spec.array.shape), spec.array.dtype) for name, spec in actions.items()
        }
        self.next_log_probabilities: FloatArray = np.zeros(self.num_envs, np.float32)
        read = spaces.action_reader(environment, action_space)
        self._rows = [_Row(episodes, numbers, read) for numbers in plan]

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin with the first episode of every row."""
        for row in self._rows:
            row.begin()
        self._look_ahead()
        return self._observations(), {}

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        moved = [row.move() for row in self._rows]
        rewards, terminated, truncated, valid = (np.array(column) for column in zip(*moved, strict=True))
        self._look_ahead()
        return self._observations(), rewards, terminated, truncated, {VALID: valid}

    def _observations(self) -> Any:
        # Rows that have no episode show what the first row does.
        shown = [row.shown or self._rows[0].shown for row in self._rows]
        return _gathered(self.single_observation_space, [each for each in shown if each is not None])

    def _look_ahead(self) -> None:
        for number, row in enumerate(self._rows):
            ahead = row.ahead
            for name, array in self.next_actions.items():
                array[number] = 0 if ahead is None else ahead[0][name][ahead[1]]
            self.next_log_probabilities[number] = row.log_probability


class _Row:
    """The episodes of one row.

    Attributes:
        shown: Observations of an episode, and the row that is shown of them; None: no episode ever was.
        ahead: Actions of an episode, and the step that follows; None: that resets, or nothing follows.
    """

    def __init__(self, episodes: Episodes, numbers: Sequence[int], read: Any) -> None:
        self._name, self._numbers, self._read_actions = episodes.name, iter(numbers), read
        self._reading: Iterator[Episode] = episodes.read(numbers)
        self._episode: Episode | None = None
        self._actions: Mapping[str, Array] = {}
        self._at = 0
        self.shown: tuple[Any, int] | None = None

    @property
    def ahead(self) -> tuple[Mapping[str, Array], int] | None:
        episode = self._episode
        return None if episode is None or self._at == episode.length_steps else (self._actions, self._at)

    @property
    def log_probability(self) -> float:
        episode = self._episode
        if episode is None or self._at == episode.length_steps or episode.log_probabilities is None:
            return 0.0
        return float(episode.log_probabilities[self._at])

    def begin(self) -> None:
        """Show the first observation of the next episode, if there is one."""
        self._episode = next(self._reading, None)
        if self._episode is None:
            return
        number = next(self._numbers)
        try:
            self._actions = self._read_actions(self._episode.actions)
            if not np.isfinite(self._episode.rewards).all():
                step = int(np.flatnonzero(~np.isfinite(self._episode.rewards))[0])
                raise ValueError(f"the reward of step {step + 1} is {self._episode.rewards[step]}")
        except ValueError as error:
            raise DataError(f"data set {self._name}, episode {number}: {error}") from error
        self._at = 0
        self.shown = (self._episode.observations, 0)

    def move(self) -> tuple[float, bool, bool, bool]:
        """Go one step on, or begin the next episode; return reward, terminated, truncated and valid."""
        episode = self._episode
        if episode is None:
            return 0.0, False, False, False
        if self._at == episode.length_steps:
            self.begin()
            return 0.0, False, False, False
        reward = float(episode.rewards[self._at])
        self._at += 1
        self.shown = (episode.observations, self._at)
        over = self._at == episode.length_steps
        return reward, over and episode.terminated, over and not episode.terminated, True


def _gathered(space: Space[Any], shown: Sequence[tuple[Any, int]]) -> Any:
    """Return one batch of the rows shown, as gymnasium's vectors return observations of this space."""
    if isinstance(space, Dict):
        return {key: _gathered(inner, [(tree[key], at) for tree, at in shown]) for key, inner in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(
            _gathered(inner, [(tree[place], at) for tree, at in shown]) for place, inner in enumerate(space.spaces)
        )
    if isinstance(space, Text):
        return tuple(tree[at] for tree, at in shown)
    return np.stack([tree[at] for tree, at in shown])
