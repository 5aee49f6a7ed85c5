"""Episodes of the environment's own observations and actions, put together from the unrolls of actors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from distrl import frames
from distrl.data.episodes import Episode, Spaces
from distrl.environments import spaces
from distrl.types import Array, EnvSpec, FloatArray, Unroll


class _Piece(NamedTuple):
    """Successive steps of one episode, name -> [t, ...]; without the observation after the last of them."""

    observations: Mapping[str, Array]
    actions: Mapping[str, Array]
    rewards: FloatArray
    log_probabilities: FloatArray
    terminated: bool


@dataclass
class _Actor:
    """One actor: its incarnation, its next unroll, and the open episode of each row.

    An open episode is None until the next one begins, where its beginning is not known.
    """

    incarnation: int
    sequence: int
    rows: list[list[_Piece] | None] = field(default_factory=list)


class UnrollEpisodes:
    """Joins unrolls, which follow one another in each actor's rows, to whole episodes.

    An episode of which an unroll is missing is left out. Real numbers are those of the unrolls, float32.

    Args:
        spec: Of the unrolls; without preprocessing, and with one agent.
        own: The environment's spaces.
    """

    def __init__(self, spec: EnvSpec, own: Spaces) -> None:
        self._observe = spaces.observation_writer(spec.id, own.observation)
        self._act = spaces.action_writer(spec.id, own.action)
        self._frames = {name: array.frames for name, array in spec.observations.items() if array.frames > 1}
        self._actors: dict[int, _Actor] = {}

    def abandon_open(self) -> None:
        """Forget all open episodes: the next unroll of every actor begins with new ones."""
        for actor in self._actors.values():
            actor.rows = [[] for _ in actor.rows]

    def add(self, unroll: Unroll) -> list[Episode]:
        """Return the episodes that end in an unroll, by rows."""
        actor = self._followed(unroll)
        observations = {
            name: frames.rebuilt(rows, unroll.valid, self._frames[name]) if name in self._frames else rows
            for name, rows in unroll.observations.items()
        }
        ended = list[Episode]()
        for row, valid in enumerate(unroll.valid.T):
            open_pieces, begin = actor.rows[row], 0
            for end in [*np.flatnonzero(~valid).tolist(), len(valid)]:
                if open_pieces is not None and end > begin:
                    open_pieces.append(_piece(unroll, observations, row, slice(begin, end)))
                if end < len(valid):  # the step after an episode, which resets
                    if open_pieces:
                        ended.append(
                            self._joined(open_pieces, {name: at[end, row] for name, at in observations.items()})
                        )
                    open_pieces, begin = [], end + 1
            actor.rows[row] = open_pieces
        return ended

    def _followed(self, unroll: Unroll) -> _Actor:
        """Return the actor of an unroll, without open episodes if another unroll is missing before this one."""
        header = unroll.header
        actor = self._actors.get(header.actor)
        if actor is None or (actor.incarnation, actor.sequence) != (header.incarnation, header.sequence):
            begins = header.sequence == 0
            rows: list[list[_Piece] | None] = [[] if begins else None for _ in unroll.valid.T]
            actor = self._actors[header.actor] = _Actor(header.incarnation, header.sequence, rows)
        actor.sequence += 1
        return actor

    def _joined(self, pieces: list[_Piece], last: Mapping[str, Array]) -> Episode:
        """Return the episode of these pieces; `last` is the observation after them."""
        observations = {
            name: np.concatenate([*(piece.observations[name] for piece in pieces), shown[None]])
            for name, shown in last.items()
        }
        actions = {name: np.concatenate([piece.actions[name] for piece in pieces]) for name in pieces[0].actions}
        return Episode(
            self._observe(observations),
            self._act(actions),
            np.concatenate([piece.rewards for piece in pieces]).astype(np.float64),
            pieces[-1].terminated,
            np.concatenate([piece.log_probabilities for piece in pieces]),
        )


def _piece(unroll: Unroll, observations: Mapping[str, Array], row: int, steps: slice) -> _Piece:
    # Copies, as views would keep the whole unroll in memory.
    return _Piece(
        {name: array[steps, row].copy() for name, array in observations.items()},
        {name: array[steps, row].copy() for name, array in unroll.actions.items()},
        unroll.rewards[steps, row].copy(),
        unroll.behaviour_log_probabilities[steps, row].copy(),
        bool(unroll.terminated[steps.stop - 1, row]),
    )
