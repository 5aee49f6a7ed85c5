"""Episodes of the environment's own observations and actions, put together from the unrolls of actors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from distrl import frames
from distrl.data.episodes import Episode, Spaces
from distrl.environments import spaces
from distrl.types import Array, EnvSpec, FloatArray, Unroll

OPEN_BYTES = 2**29
"""Most that open episodes take in memory together; beyond, the longest are left out."""
_PIECE_BYTES = 1_000
"""Bytes of a piece beside its numbers; measured with one observation and one action."""


class _Piece(NamedTuple):
    """Successive steps of one episode, name -> [t, ...]; without the observation after the last of them.

    Of stacked observations it has the newest frames.
    """

    observations: Mapping[str, Array]
    actions: Mapping[str, Array]
    rewards: FloatArray
    log_probabilities: FloatArray
    terminated: bool


@dataclass
class _Open:
    """An episode that has not ended: its steps so far, and the memory that they take."""

    pieces: list[_Piece] = field(default_factory=list)
    size_bytes: int = 0

    def append(self, piece: _Piece) -> None:
        self.pieces.append(piece)
        arrays = (*piece.observations.values(), *piece.actions.values(), piece.rewards, piece.log_probabilities)
        self.size_bytes += _PIECE_BYTES + sum(array.nbytes for array in arrays)


@dataclass
class _Actor:
    """One actor: its incarnation, its next unroll, the open episode of each row, and the memory that these take.

    An open episode is None until the next one begins, where its beginning is not known or it was too long.
    """

    incarnation: int
    sequence: int
    rows: list[_Open | None]
    size_bytes: int = 0


class UnrollEpisodes:
    """Joins unrolls, which follow one another in each actor's rows, to whole episodes.

    An episode of which an unroll is missing is left out. Real numbers are those of the unrolls, float32.

    Args:
        spec: Of the unrolls; without preprocessing, and with one agent.
        own: The environment's spaces.

    Attributes:
        too_long: Episodes that are left out because of `OPEN_BYTES`.
    """

    def __init__(self, spec: EnvSpec, own: Spaces) -> None:
        self._observe = spaces.observation_writer(spec.id, own.observation)
        self._act = spaces.action_writer(spec.id, own.action)
        self._frames = {name: array.frames for name, array in spec.observations.items() if array.frames > 1}
        self._actors: dict[int, _Actor] = {}
        self.too_long = 0

    def abandon_open(self) -> None:
        """Forget all open episodes: the next unroll of every actor begins with new ones."""
        for actor in self._actors.values():
            actor.rows, actor.size_bytes = [_Open() for _ in actor.rows], 0

    def add(self, unroll: Unroll) -> list[Episode]:
        """Return the episodes that end in an unroll, by rows."""
        actor = self._followed(unroll)
        observations = {name: rows[self._frames.get(name, 1) - 1 :] for name, rows in unroll.observations.items()}
        ended = list[Episode]()
        for row, valid in enumerate(unroll.valid.T):
            episode, begin = actor.rows[row], 0
            for end in [*np.flatnonzero(~valid).tolist(), len(valid)]:
                if episode is not None and end > begin:
                    episode.append(_piece(unroll, observations, row, slice(begin, end)))
                if end < len(valid):  # the step after an episode, which resets
                    if episode is not None and episode.pieces:
                        last = {name: at[end, row] for name, at in observations.items()}
                        ended.append(self._joined(episode.pieces, last))
                    episode, begin = _Open(), end + 1
            actor.rows[row] = episode
        actor.size_bytes = sum(episode.size_bytes for episode in actor.rows if episode is not None)
        while sum(each.size_bytes for each in self._actors.values()) > OPEN_BYTES:
            self._leave_out_longest()
        return ended

    def _leave_out_longest(self) -> None:
        found = (
            (episode.size_bytes, actor, row)
            for actor in self._actors.values()
            for row, episode in enumerate(actor.rows)
            if episode is not None
        )
        size_bytes, actor, row = max(found, key=itemgetter(0))
        actor.rows[row] = None
        actor.size_bytes -= size_bytes
        self.too_long += 1

    def _followed(self, unroll: Unroll) -> _Actor:
        """Return the actor of an unroll, without open episodes if another unroll is missing before this one."""
        header = unroll.header
        actor = self._actors.get(header.actor)
        if actor is None or (actor.incarnation, actor.sequence) != (header.incarnation, header.sequence):
            begins = header.sequence == 0
            rows = [_Open() if begins else None for _ in unroll.valid.T]
            actor = self._actors[header.actor] = _Actor(header.incarnation, header.sequence, rows)
        actor.sequence += 1
        return actor

    def _joined(self, pieces: list[_Piece], last: Mapping[str, Array]) -> Episode:
        """Return the episode of these pieces; `last` is the observation after them."""
        observations = {
            name: self._stacked(name, np.concatenate([*(piece.observations[name] for piece in pieces), shown[None]]))
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

    def _stacked(self, name: str, shown: Array) -> Array:
        """Return the stacks of an episode's frames [T+1, ...], of which the first fills its whole stack."""
        count = self._frames.get(name, 1)
        if count == 1:
            return shown
        rows = np.concatenate([np.repeat(shown[:1], count - 1, axis=0), shown])
        return frames.rebuilt(rows[:, None], np.ones((len(shown) - 1, 1), np.bool_), count)[:, 0]


def _piece(unroll: Unroll, observations: Mapping[str, Array], row: int, steps: slice) -> _Piece:
    # Copies, as views would keep the whole unroll in memory.
    return _Piece(
        {name: array[steps, row].copy() for name, array in observations.items()},
        {name: array[steps, row].copy() for name, array in unroll.actions.items()},
        unroll.rewards[steps, row].copy(),
        unroll.behaviour_log_probabilities[steps, row].copy(),
        bool(unroll.terminated[steps.stop - 1, row]),
    )
