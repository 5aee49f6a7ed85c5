"""Numbers of environments' `info`: each step's values become one number for every episode, `environment.metrics`."""

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from distrl.config.environment import INFO_KEY, Aggregation
from distrl.environments.observation_spaces import of_environment
from distrl.types import Array, BoolArray, FloatArray

_ALIKE, _MOST_KEYS = 0.6, 12
_START: Mapping[Aggregation, float] = {"sum": 0.0, "mean": 0.0, "last": 0.0, "max": -np.inf, "min": np.inf}
_COMBINE: Mapping[Aggregation, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "sum": np.add,
    "mean": np.add,
    "last": lambda _, newest: newest,
    "max": np.maximum,
    "min": np.minimum,
}


class InfoMetrics:
    """Combines the values of each row's episode so far.

    Args:
        ways: Key of `info` -> how the values of an episode's steps become one; M of them.
        rows: B.
    """

    def __init__(self, ways: Mapping[str, Aggregation], rows: int) -> None:
        self._names = tuple(ways)
        self._ways = tuple(ways.values())
        self._start = np.array([_START[way] for way in self._ways])[:, None]
        self._is_mean = np.array([way == "mean" for way in self._ways], np.bool_)[:, None]
        self._shape = (len(ways), rows)
        self.reset()

    def reset(self) -> None:
        """Forget the episodes so far."""
        self._combined = np.broadcast_to(self._start, self._shape).copy()
        self._counts = np.zeros(self._shape, np.int64)

    def add(self, info: Mapping[str, Any], valid: BoolArray, ended: BoolArray) -> FloatArray:
        """Take one step's values.

        Args:
            info: Of the vector. A row that a mask `_<key>` excludes has no value; nor has one whose value is None, NaN
                or infinite.
            valid: bool [B]. Whether the row's step belongs to an episode.
            ended: bool [B]. Whether its episode is over.

        Returns:
            float32 [B, M]. Values of the episodes that ended; NaN where an episode had none, and in all other rows.

        Raises:
            TypeError: A value is no number.
            ValueError: There is not one value for each row.
        """
        values = np.stack([_values(info, name, valid) for name in self._names])
        known = np.isfinite(values)
        self._counts += known
        for number, way in enumerate(self._ways):
            so_far = self._combined[number]
            np.copyto(so_far, _COMBINE[way](so_far, values[number]), where=known[number])
        found = np.full(self._shape[::-1], np.nan, np.float32)
        if ended.any():
            counts = self._counts[:, ended]
            with np.errstate(over="ignore"):  # beyond float32 it is unknown
                combined = self._combined[:, ended] / np.where(self._is_mean, np.maximum(counts, 1), 1)
                of_ended = combined.astype(np.float32)
            of_ended[(counts == 0) | ~np.isfinite(of_ended)] = np.nan
            found[ended] = of_ended.T
            self._combined[:, ended], self._counts[:, ended] = self._start, 0
        return found


def reported(info: Any, names: Collection[str]) -> dict[str, float]:
    """Return these numbers of a single environment's info, without those that are missing or None.

    Raises:
        TypeError: A value is no number.
    """
    if not isinstance(info, Mapping):
        return {}
    return {name: _number(name, info[name]) for name in names if info.get(name) is not None}


def unseen(names: Collection[str], seen: Collection[Any], *, ended: bool) -> Iterator[str]:
    """Yield a line for each metric that no info of an episode had.

    Args:
        names: Keys of `environment.metrics`.
        seen: Keys of the episode's infos, as far as they are known.
        ended: Whether the episode was played to its end; otherwise only a key that resembles one of `seen` is misspelt.
    """
    known = {key.lower(): key for key in seen if isinstance(key, str) and not key.startswith("_")}
    for name in names:
        near = [known[match] for match in difflib.get_close_matches(name.lower(), known, n=3, cutoff=_ALIKE)]
        if name in seen or not (ended or near):
            continue
        nearest = f"; the nearest of its keys are {', '.join(near)}" if near else ""
        there_are = "" if near or not known else f"; its keys are {', '.join(sorted(known.values())[:_MOST_KEYS])}"
        yield f"environment.metrics.{name}: no step of the trial had it in info{nearest}{there_are}"


def keys_by_use(seen: Mapping[Any, Any]) -> tuple[list[str], list[str]]:
    """Return the keys whose values metrics can be made of, and all others.

    Args:
        seen: Key -> a value, of one environment or of a vector of one row; masks of vectors (`_key`) are left out.
    """
    keys = sorted(key for key in seen if isinstance(key, str) and not key.startswith("_"))
    usable = [key for key in keys if re.search(INFO_KEY, key) and _is_number(seen[key])]
    return usable, [key for key in keys if key not in usable]


def _is_number(value: Any) -> bool:
    if not isinstance(value, bool | int | float | np.generic | np.ndarray):
        return False
    array = np.asarray(value)
    return array.shape in ((), (1,)) and array.dtype.kind in "biuf"


def _values(info: Mapping[str, Any], name: str, valid: BoolArray) -> FloatArray:
    """Return float64 [B]; NaN where there is no value, or the row is not valid."""
    found = np.full(len(valid), np.nan)
    if name not in info:
        return found
    values = as_array(info[name])
    if values.shape != valid.shape:
        raise ValueError(f"environment.metrics.{name} needs a number for each row, and info has {_shown(info[name])}")
    mask = info.get(f"_{name}")
    wanted = valid if mask is None else valid & np.asarray(mask, np.bool_)
    if values.dtype.kind in "biuf":
        found[wanted] = values[wanted]
        return found
    for row in np.flatnonzero(wanted).tolist():
        if values[row] is not None:
            try:
                found[row] = _number(name, values[row])
            except TypeError as error:
                raise of_environment(error, row) from None
    return found


def _number(name: str, value: Any) -> float:
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:  # a whole number beyond float64 is unknown, as one beyond float32 is
            return math.nan
    array = as_array(value)
    if array.ndim or array.dtype.kind not in "biuf":
        raise TypeError(f"environment.metrics.{name} needs a number, and info has {_shown(value)}")
    return float(array)


def as_array(value: Any) -> Array:
    """Return any value of an info as an array; lists of different lengths are one object."""
    try:
        return np.asarray(value)
    except ValueError:
        array = np.empty((), object)
        array[()] = value
        return array


def _shown(value: Any) -> str:
    shape = f" of shape {value.shape}" if isinstance(value, np.ndarray) else ""
    return f"a value of type {type(value).__name__}{shape}"
