"""Recorded steps as the policy sees them: its inputs, its outputs, and the actions and rewards of the recording."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from distrl.actors.acting import Acting
from distrl.actors.evaluator import Episode as Played
from distrl.actors.unroll import restarted
from distrl.config.environment import EnvironmentConfig
from distrl.data.blocks import suiting
from distrl.data.episodes import DataError, Episode, Episodes, Spaces
from distrl.data.off_policy.estimators import Counts, Numbers
from distrl.data.off_policy.features import projection
from distrl.data.playing import check_spec, naming, playing_environment
from distrl.types import Array, BoolArray, EnvSpec, FloatArray

_MOST_ROWS = 64


class Recorded(NamedTuple):
    """The N steps and M observations of E episodes, one after the other; the last observation of each has no step.

    Attributes:
        rewards: float64 [N]. As the environment paid.
        lengths: int64 [E].
        terminated: bool [E].
        log_behaviour: float64 [N]; None: some are unknown.
    """

    rewards: Numbers
    lengths: Counts
    terminated: BoolArray
    log_behaviour: Numbers | None


class Shown(NamedTuple):
    """The M observations that the policy was shown, and its outputs.

    Attributes:
        numbers: float32 [M, D]. Observations, preprocessed; random projections of large ones.
        actions: name -> [N, ...]. The recorded ones.
        outputs: name -> float32 [M, P]. The policy's.
        allowed: bool [M, A]. Choices that the mask allows; None: there is none.
    """

    numbers: FloatArray
    actions: dict[str, Array]
    outputs: dict[str, FloatArray]
    allowed: BoolArray | None


class Noted:
    """A data set that notes what is read of it, but for observations and actions.

    Attributes:
        recorded: What has been noted once all episodes are read.
        knows_behaviour: Whether all episodes so far have log-probabilities.
    """

    def __init__(self, episodes: Episodes) -> None:
        self._episodes = episodes
        self.name, self.environment, self.lengths = episodes.name, episodes.environment, episodes.lengths
        self.observation_space, self.action_space = episodes.observation_space, episodes.action_space
        self._rewards: dict[int, Numbers] = {}
        self._log_behaviour: dict[int, FloatArray] = {}
        self._terminated = np.zeros(len(self.lengths), np.bool_)

    def read(self, numbers: Sequence[int]) -> Iterator[Episode]:
        for number, episode in zip(numbers, self._episodes.read(numbers), strict=True):
            self._rewards[number], self._terminated[number] = episode.rewards, episode.terminated
            if (known := episode.log_probabilities) is not None:
                if not np.isfinite(known).all():
                    raise DataError(f"data set {self.name}: an action of episode {number} has probability 0 or NaN")
                self._log_behaviour[number] = known
            yield episode

    @property
    def knows_behaviour(self) -> bool:
        return self._log_behaviour.keys() == self._rewards.keys()

    @property
    def recorded(self) -> Recorded:
        known = self._joined(self._log_behaviour) if self.knows_behaviour else None
        return Recorded(self._joined(self._rewards), self.lengths, self._terminated, known)

    def _joined(self, parts: Mapping[int, Array]) -> Numbers:
        return np.concatenate([parts[number] for number in range(len(self.lengths))]).astype(np.float64)


def fits(policy: Acting, spec: EnvSpec) -> None:
    """Refuse an environment that recordings, or the policy, do not fit.

    Raises:
        ConfigError: Its rows are agents, or its preprocessing changes actions.
        DataError: The policy was made for other observations or actions.
    """
    check_spec(spec)
    if difference := policy.spec.unlike(spec):
        raise DataError(f"the policy does not fit {spec.id}: {difference}")


class Showing:
    """Shows all observations of a data set to a policy, as it would have acted.

    Args:
        mask: Name of the observation that masks the action; None: there is none.
        expands: Give `Shown.numbers` categories as one-hot rows.
        rng: Draws random projections.

    Raises:
        ConfigError, DataError: See `fits`.
    """

    def __init__(
        self,
        policy: Acting,
        environment: EnvironmentConfig,
        episodes: Episodes,
        spaces: Spaces,
        mask: str | None,
        *,
        expands: bool,
        rng: np.random.Generator,
    ) -> None:
        self._policy, self._episodes, self._mask, self._expands, self._rng = policy, episodes, mask, expands, rng
        self._projection: FloatArray | None = None
        lengths = episodes.lengths
        plan = suiting(lengths, min(_MOST_ROWS, len(lengths)), 1, None).plan(0)
        self._vector, self._environment = playing_environment(environment, episodes, plan, spaces)
        fits(policy, self._environment.spec)
        self._ends = np.cumsum(lengths + 1) - 1  # places of the last observations
        rows = [
            np.concatenate([np.arange(self._ends[number] - lengths[number], self._ends[number] + 1) for number in row])
            for row in plan
        ]
        self._places = np.full((max(map(len, rows)), len(rows)), -1)  # of the observations, step by step
        for number, row in enumerate(rows):
            self._places[: len(row), number] = row
        self._kept: dict[tuple[str, str], Array] = {}

    def play(self) -> Iterator[Played]:
        """Play everything, and yield each episode when it ends.

        Raises:
            DataError: An episode cannot be read, or holds what the environment cannot show, do or pay.
        """
        with naming(self._episodes):
            observations, state = self._environment.reset(0), self._policy.initial_state(self._places.shape[1])
            for places in self._places:
                output = self._policy.step(observations, state)
                self._keep(places, observations, output.outputs)
                for row in np.flatnonzero(np.isin(places, self._ends)).tolist():
                    episode = int(np.searchsorted(self._ends, places[row]))
                    yield Played(row, 0.0, int(self._episodes.lengths[episode]))
                step = self._environment.step({name: rows.copy() for name, rows in self._vector.next_actions.items()})
                observations, state = step.observations, restarted(output.recurrent_state, step.valid)

    def _keep(self, places: Counts, observations: dict[str, Array], outputs: dict[str, FloatArray]) -> None:
        specs = self._environment.spec.observations
        flat = [
            (specs[name].expand(rows) if self._expands else rows).reshape(len(rows), -1).astype(np.float32)
            for name, rows in observations.items()
        ]
        numbers = np.concatenate(flat, axis=1)
        if not self._kept:
            self._projection = projection(numbers.shape[1], self._rng)
        kept: dict[tuple[str, str], Any] = {("numbers", ""): numbers}
        if self._projection is not None:
            kept["numbers", ""] = numbers @ self._projection
        kept |= {("actions", name): rows for name, rows in self._vector.next_actions.items()}
        kept |= {("outputs", name): rows for name, rows in outputs.items()}
        if self._mask is not None:
            kept["allowed", ""] = observations[self._mask] != 0
        shown = places >= 0
        for key, rows in kept.items():
            if key not in self._kept:
                self._kept[key] = np.zeros((self._ends[-1] + 1, *rows.shape[1:]), rows.dtype)
            self._kept[key][places[shown]] = rows[shown]

    def shown(self) -> Shown:
        """Return what was shown, once everything has been played."""
        named: dict[str, dict[str, Any]] = {"actions": {}, "outputs": {}}
        for (kind, name), rows in self._kept.items():
            if kind in named:
                named[kind][name] = rows
        steps = np.ones(self._ends[-1] + 1, np.bool_)
        steps[self._ends] = False
        actions = {name: rows[steps] for name, rows in named["actions"].items()}
        return Shown(self._kept["numbers", ""], actions, named["outputs"], self._kept.get(("allowed", "")))
