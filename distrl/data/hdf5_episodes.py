"""Episodes in the HDF5 file of a data set of Minari, as its own writer lays them out.

h5py's lower level takes a fifth of the time of `Group.create_dataset`, which Minari uses: an episode has some six
arrays, and those of most episodes are small. They are not chunked, as nothing is appended to an episode, so that the
file has less than half the size.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5p, h5s, h5t

_COMPACT_BYTES = 8_192
"""Up to here an array is a part of its description, which HDF5 limits to 64 KiB. Larger ones are apart."""


def append(path: Path, episodes: Iterable[Mapping[str, Any]], first: int) -> None:
    """Append episodes to a file that Minari has made.

    Args:
        episodes: Names -> arrays, texts (a list), or dicts and tuples of these, as `EpisodeBuffer` has them.
        first: Number of the first of them.

    Raises:
        OSError: The disk does not take them.
    """
    with h5py.File(path, "a", track_order=True) as file:
        for number, episode in enumerate(episodes, first):
            group = h5g.create(file.id, f"episode_{number}".encode())
            for name, value in (("id", number), ("total_steps", len(episode["rewards"]))):
                h5a.create(group, name.encode(), h5t.NATIVE_INT64, h5s.create(h5s.SCALAR)).write(np.asarray(value))
            _write(group, episode)


def _write(group: h5g.GroupID, tree: Mapping[str, Any]) -> None:
    for name, value in tree.items():
        if isinstance(value, tuple):
            value = {f"_index_{place}": part for place, part in enumerate(value)}
        if isinstance(value, Mapping):
            _write(h5g.create(group, name.encode()), value)
        elif isinstance(value, list):
            h5py.Group(group).create_dataset(name, data=value, dtype=h5py.string_dtype("utf-8"))
        else:
            _write_array(group, name, np.ascontiguousarray(value))


def _write_array(group: h5g.GroupID, name: str, array: np.ndarray) -> None:
    how = _layout(is_compact=array.nbytes <= _COMPACT_BYTES)
    made = h5d.create(group, name.encode(), _type(array.dtype), h5s.create_simple(array.shape), how)
    made.write(h5s.ALL, h5s.ALL, array, _type(array.dtype))


@cache
def _layout(*, is_compact: bool) -> h5p.PropDCID:
    how = h5p.create(h5p.DATASET_CREATE)
    how.set_layout(h5d.COMPACT if is_compact else h5d.CONTIGUOUS)
    how.set_obj_track_times(False)
    return how


@cache
def _type(dtype: np.dtype) -> h5t.TypeID:
    return h5t.py_create(dtype, logical=True)
