"""Opens data sets by their names, joins several, and begins new ones."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space

from distrl.config.data import TABLES, DataConfig, DataSetConfig, absolute
from distrl.data.episodes import DataError, Episode, Episodes, EpisodeWriter, Lengths, Part, Spaces, best
from distrl.data.minari_sets import MinariEpisodes, MinariWriter, Recorder, no_data_set, path_of
from distrl.data.tables import TableEpisodes, TableWriter
from distrl.environments import spaces
from distrl.types import ArraySpec, EnvSpec


def opened(config: DataSetConfig, own: Spaces) -> Episodes:
    """Open a data set, or the part that the configuration names.

    Args:
        own: The environment's spaces, for tables, which have none.

    Raises:
        DataError: There is none, or it cannot be read.
        MissingExtraError: What reads it is not installed.
    """
    whole: Episodes
    if config.is_table:
        whole = TableEpisodes(config, own)
    elif (path := path_of(config.name)) is not None:
        whole = MinariEpisodes(config.name, path)
    else:
        raise no_data_set(config.name)
    if config.episodes is not None:
        whole = Part(whole, range(min(config.episodes, len(whole.lengths))))
    return whole if config.best is None else best(whole, config.best)


def new_set(
    name: str,
    environment: str,
    observation_space: Space[Any],
    action_space: Space[Any],
    about: Mapping[str, Any],
    recorder: Recorder | None = None,
) -> EpisodeWriter:
    """Begin a data set of Minari, or a table; see `MinariWriter` and `TableWriter`."""
    if name.endswith(TABLES):
        return TableWriter(Path(absolute(name)), observation_space, action_space)
    return MinariWriter(name, environment, observation_space, action_space, about, recorder)


def all_opened(config: DataConfig, environment: str, own: Spaces) -> Episodes:
    """Open all data sets of a run as one.

    Args:
        environment: Its id.
        own: Its spaces.

    Raises:
        DataError: One cannot be read, or does not fit the environment.
        MissingExtraError: What reads it is not installed.
    """
    sets = [opened(each, own) for each in config.sets]
    for each in sets:
        check_spaces(each, environment, own)
    return sets[0] if len(sets) == 1 else Joined(sets)


def check_spaces(episodes: Episodes, environment: str, own: Spaces) -> None:
    """Refuse a data set that was recorded in other spaces than the environment's, where it says so.

    Raises:
        DataError: The first difference.
    """
    observed = own.observation if episodes.observation_space is None else episodes.observation_space
    acted = own.action if episodes.action_space is None else episodes.action_space
    ours, theirs = (
        spaces.env_spec(environment, *pair, None, None) for pair in ((own.observation, own.action), (observed, acted))
    )
    if difference := _plain(ours).unlike(_plain(theirs)):
        difference = difference.replace("that of the training", "that of the environment")
        raise DataError(f"data set {episodes.name} does not fit {environment}: {difference}")


def _plain(spec: EnvSpec) -> EnvSpec:
    """Return the spec without bounds and widths of real numbers, which change nothing."""

    def plain(array: ArraySpec) -> ArraySpec:
        real = np.dtype(array.dtype).kind == "f"
        return replace(array, low=None, high=None, dtype="float32" if real else array.dtype)

    return replace(spec, observations={name: plain(array) for name, array in spec.observations.items()})


class Joined:
    """Several data sets, one after the other."""

    def __init__(self, sets: Sequence[Episodes]) -> None:
        first = sets[0]
        self._sets = sets
        self._begins = np.cumsum([0, *(len(each.lengths) for each in sets)]).tolist()
        self.name = ", ".join(each.name for each in sets)
        self.environment = first.environment
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.lengths: Lengths = np.concatenate([each.lengths for each in sets])

    def read(self, numbers: Sequence[int]) -> Iterator[Episode]:
        for which, group in groupby(numbers, lambda number: bisect_right(self._begins, number) - 1):
            yield from self._sets[which].read([number - self._begins[which] for number in group])
