"""Opens data sets by their names, and joins several."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from distrl.config.data import DataConfig, DataSetConfig
from distrl.data.episodes import DataError, Episode, Episodes, Lengths, Part, Spaces, best
from distrl.data.minari_sets import MinariEpisodes, folder, path_of
from distrl.data.tables import TableEpisodes


def opened(config: DataSetConfig, spaces: Spaces) -> Episodes:
    """Open a data set, or the part that the configuration names.

    Args:
        spaces: The environment's, for tables, which have none.

    Raises:
        DataError: There is none, or it cannot be read.
        MissingExtraError: What reads it is not installed.
    """
    whole: Episodes
    if config.is_table:
        whole = TableEpisodes(config, spaces)
    elif (path := path_of(config.name)) is not None:
        whole = MinariEpisodes(config.name, path)
    else:
        raise DataError(
            f"no data set {config.name}: neither a folder with Minari's metadata.json nor in {folder()}; "
            "`minari download` brings Minari's own, `distrl record` makes one"
        )
    if config.episodes is not None:
        whole = Part(whole, range(min(config.episodes, len(whole.lengths))))
    return whole if config.best is None else best(whole, config.best)


def all_opened(config: DataConfig, spaces: Spaces) -> Episodes:
    """Open all data sets of a run as one; errors as `opened`."""
    sets = [opened(each, spaces) for each in config.sets]
    return sets[0] if len(sets) == 1 else Joined(sets)


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
