"""Records the episodes that a policy plays: the environment's own observations, actions and rewards."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Dict, Text, Tuple
from gymnasium.vector import VectorEnv

from distrl.actors.evaluator import ActingPolicy, Evaluator, SampledPolicy
from distrl.actors.evaluator import Episode as Played
from distrl.data.episodes import Episode, EpisodeWriter
from distrl.environments.gym_adapter import VALID
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError
from distrl.types import ActionSpec, Array, BoxSpec, DiscreteSpec, MultiBinarySpec


def uniform_log_probability(actions: Mapping[str, ActionSpec]) -> float | None:
    """Return the log-probability of every draw of random actions, all together; None: one is without bounds."""
    total = 0.0
    for spec in actions.values():
        match spec:
            case DiscreteSpec():
                total -= math.log(spec.n)
            case MultiBinarySpec():
                total -= spec.n * math.log(2.0)
            case BoxSpec():
                for low, high in zip(spec.low, spec.high, strict=True):
                    if low is None or high is None:
                        return None
                    total -= math.log(high - low)
            case _:
                total -= sum(math.log(choices) for choices in spec.choices)
    return total


def record(
    policy: ActingPolicy,
    environment: VectorEnvironment,
    count: int,
    writer: EpisodeWriter,
    *,
    seed: int,
    most_steps: int | None,
    log_probability: float | None = None,
) -> Iterator[Played]:
    """Play exactly `count` episodes, yield each as it ends, and hand it to the writer.

    Args:
        seed: Of the environments.
        most_steps: Steps after which an episode is cut short; None: none is.
        log_probability: Of every action, if it is always the same; otherwise those of a `SampledPolicy` are recorded.

    Raises:
        ConfigError: The environment's rows are agents.
        DataError: The disk does not take them.
    """
    if environment.spec.rows > 1:
        raise ConfigError(f"{environment.spec.id} has {environment.spec.rows} agents, and recordings have one")

    def log_probabilities() -> Array | None:
        if isinstance(policy, SampledPolicy):
            return policy.log_probabilities
        return None if log_probability is None else np.full(environment.rows, log_probability, np.float32)

    vector = RecordingVector(environment.vector, log_probabilities)
    environment.vector = vector

    def watch(ended: Array, plays: Array) -> None:
        for row in np.flatnonzero(ended & plays).tolist():
            writer.add(vector.taken(row))

    yield from Evaluator(policy, environment, most_steps, watch).episodes(count, seed)


class RecordingVector(VectorEnv[Any, Any, Any]):
    """Passes everything on, and keeps what each row's episode has shown, done and paid so far.

    Args:
        log_probabilities: Returns those of the newest actions, float32 [B]; None: unknown.
    """

    def __init__(self, vector: VectorEnv[Any, Any, Any], log_probabilities: Callable[[], Array | None]) -> None:
        self._vector, self._log_probabilities = vector, log_probabilities
        self.metadata, self.num_envs = vector.metadata, vector.num_envs
        self.single_observation_space, self.single_action_space = (
            vector.single_observation_space,
            vector.single_action_space,
        )
        self.observation_space, self.action_space = vector.observation_space, vector.action_space
        self._rows = [_Kept() for _ in range(self.num_envs)]
        self._over = np.zeros(self.num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        found = self._vector.reset(seed=seed, options=options)
        for number, row in enumerate(self._rows):
            row.begin(_row(self.single_observation_space, found[0], number))
        self._over[:] = False
        return found

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        # Before the step, as an environment may write into its action.
        chosen = [_row(self.single_action_space, actions, number) for number in range(self.num_envs)]
        found = self._vector.step(actions)
        observations, rewards, terminated, truncated, info = found
        over = ~np.asarray(info[VALID], np.bool_) if VALID in info else self._over
        known = self._log_probabilities()
        for number, row in enumerate(self._rows):
            observation = _row(self.single_observation_space, observations, number)
            if over[number]:
                row.begin(observation)
                continue
            log_probability = None if known is None else float(known[number])
            row.add(chosen[number], float(rewards[number]), bool(terminated[number]), observation, log_probability)
        self._over = np.asarray(terminated, np.bool_) | np.asarray(truncated, np.bool_)
        return found

    def taken(self, number: int) -> Episode:
        """Return the episode of a row so far."""
        return self._rows[number].episode(self.single_observation_space, self.single_action_space)

    def close_extras(self, **kwargs: Any) -> None:
        self._vector.close(**kwargs)


class _Kept:
    """The present episode of one row."""

    def begin(self, observation: Any) -> None:
        self._observations, self._actions = [observation], list[Any]()
        self._rewards, self._log_probabilities = list[float](), list[float]()
        self._terminated = False

    def add(
        self, action: Any, reward: float, terminated: bool, observation: Any, log_probability: float | None
    ) -> None:
        self._observations.append(observation)
        self._actions.append(action)
        self._rewards.append(reward)
        self._terminated = terminated
        if log_probability is not None:
            self._log_probabilities.append(log_probability)

    def episode(self, observed: Space[Any], acted: Space[Any]) -> Episode:
        known = np.array(self._log_probabilities, np.float32)
        return Episode(
            _stacked(observed, self._observations),
            _stacked(acted, self._actions),
            np.array(self._rewards, np.float64),
            self._terminated,
            known if len(known) == len(self._rewards) else None,
        )


def _row(space: Space[Any], batch: Any, number: int) -> Any:
    """Return one row of a batch, as a copy."""
    if isinstance(space, Dict):
        return {key: _row(inner, batch[key], number) for key, inner in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_row(inner, batch[place], number) for place, inner in enumerate(space.spaces))
    return batch[number] if isinstance(space, Text) else np.array(batch[number])


def _stacked(space: Space[Any], rows: list[Any]) -> Any:
    """Join rows along a first axis; a Text is a list."""
    if isinstance(space, Dict):
        return {key: _stacked(inner, [row[key] for row in rows]) for key, inner in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_stacked(inner, [row[place] for row in rows]) for place, inner in enumerate(space.spaces))
    return rows if isinstance(space, Text) else np.stack(rows)
