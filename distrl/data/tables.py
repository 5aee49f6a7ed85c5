"""Tables with a row for each step: CSV and Parquet files, read by the names of their columns, and written."""

import fnmatch
import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete

from distrl.config.data import DataSetConfig
from distrl.data.episodes import DataError, Episode, Lengths, Spaces, TakenError, Unchanged, ordered
from distrl.data_store.atomic import put_file
from distrl.errors import one_line, require
from distrl.types import Array, BoolArray, FloatArray

if TYPE_CHECKING:
    from pyarrow import Table


class TableEpisodes:
    """The episodes of a table: of a CSV file, which is in memory as a whole, or of a Parquet file.

    The last row of an episode may have no action: it holds the observation after the last step. Without such a row,
    that is not known. An episode that terminated needs none; of one that was cut off, the last step is left out.

    Args:
        spaces: The environment's.

    Raises:
        DataError: The file cannot be read, lacks a column, or does not say how its episodes end.
    """

    environment: str | None = None
    observation_space: Space[Any] | None = None

    def __init__(self, config: DataSetConfig, spaces: Spaces) -> None:
        self.name = config.name
        self.action_space: Space[Any] | None = spaces.action
        self._spaces, self._given = spaces, config.named_columns
        self._file = _opened(config.name)
        observed, acted = spaces.observation, spaces.action
        self._observed = self._matching("observation", self._given.observation, observed, observed.dtype)
        # Choices stay numbers of any kind: `array_reader` refuses those that are not whole.
        dtype = acted.dtype if isinstance(acted, Box) else np.float64
        names = ("action",) if "action" in self._file.names else ("action_*",)
        self._acted = self._matching("action", self._given.action or names, acted, dtype)
        further = filter(None, (self._given.reward, self._given.probabilities))
        self._read = [*dict.fromkeys((*self._observed.names, *self._acted.names, *map(self._known, further)))]
        marks = self._marks()
        self._begins, self._ends = marks.begins, np.r_[marks.begins[1:], self._file.count]
        self._final: BoolArray = np.isin(self._ends - 1, marks.without_action)
        self._terminated = self._which_terminated(marks)
        self._ends -= self._final | ~self._terminated
        kept = self._ends > self._begins
        self._begins, self._ends = self._begins[kept], self._ends[kept]
        self._terminated, self._final = self._terminated[kept], self._final[kept]
        self.lengths: Lengths = self._ends - self._begins
        if not self.lengths.size:
            raise DataError(f"data set {self.name} has no step whose end is known")

    def read(self, numbers: Sequence[int]) -> Iterator[Episode]:
        return ordered(self._episode, numbers)

    def _episode(self, number: int) -> Episode:
        begin, end, terminated = int(self._begins[number]), int(self._ends[number]), bool(self._terminated[number])
        # After a termination nothing reads the row that would follow.
        shown = end if terminated and not self._final[number] else end + 1
        table = self._file.read(self._read, begin, shown)
        steps = _Rows(self.name, table.slice(0, end - begin), begin)
        observations = _Rows(self.name, table, begin).numbers(self._observed)
        actions = steps.numbers(self._acted)
        log_probabilities = None
        if self._given.probabilities is not None:
            log_probabilities = _of_taken(steps, self._given.probabilities, actions, self._spaces.action)
        return Episode(
            observations=observations[[*range(shown - begin), *([shown - begin - 1] if shown == end else [])]],
            actions=actions,
            rewards=steps.column(self._given.reward, np.float64),
            terminated=terminated,
            log_probabilities=log_probabilities,
        )

    def _marks(self) -> "_Marks":
        """Read the columns that say where and how episodes end, a part of the rows after the other."""
        flags = [self._known(name) for name in (self._given.terminated, self._given.truncated) if name is not None]
        episode, action = self._known(self._given.episode), self._acted.names[0]
        begins, without, raised = list[Lengths](), list[Lengths](), {name: list[Lengths]() for name in flags}
        before = None
        for first, part in self._file.parts([episode, action, *flags]):
            marks = part.column(episode).to_numpy()
            begins.append(first + np.flatnonzero(np.r_[before is None or marks[0] != before, marks[1:] != marks[:-1]]))
            before = marks[-1]
            lacks: BoolArray = part.column(action).is_null().to_numpy()
            without.append(first + np.flatnonzero(lacks))
            rows = _Rows(self.name, part, first)
            for name, found in raised.items():
                found.append(first + np.flatnonzero(rows.column(name, np.float64, may_lack=lacks)))
        joined = {name: np.concatenate(found) for name, found in raised.items()}
        return _Marks(np.concatenate(begins), np.concatenate(without), joined)

    def _which_terminated(self, marks: "_Marks") -> BoolArray:
        columns, limit = self._given, self._spaces.max_episode_steps
        last = self._ends - 1 - self._final
        if columns.ends == "limit":
            if limit is None:
                raise DataError(
                    f"data set {self.name}: the environment has no limit of steps by which episodes were cut off; set "
                    "columns.ends to terminated or truncated"
                )
            within: BoolArray = last + 1 - self._begins < limit
            return within
        for name, rows in marks.raised.items():
            if (before := np.setdiff1d(rows, last)).size:
                raise DataError(
                    f"data set {self.name}: {name!r} is true in row {before[0] + 1}, and column {columns.episode!r} "
                    "says that the episode goes on"
                )
        if columns.terminated is not None:
            terminated: BoolArray = np.isin(last, marks.raised[columns.terminated])
        elif columns.truncated is not None:
            terminated = ~np.isin(last, marks.raised[columns.truncated])
        else:
            return np.full(len(last), columns.ends == "terminated")
        if columns.truncated is None and not terminated.any():
            raise DataError(
                f"data set {self.name}: column {columns.terminated!r} is true in no last row of an episode; if all "
                "were cut off, set columns.terminated to null and columns.ends to truncated"
            )
        return terminated

    def _matching(self, what: str, patterns: Sequence[str], space: Space[Any], dtype: Any) -> "_Columns":
        """Return the columns that these names and patterns mean, in order.

        Raises:
            DataError: There is none, or the space is not of one array of as many numbers.
        """
        names: list[str] = []
        for pattern in patterns:
            found = [name for name in self._file.names if fnmatch.fnmatchcase(name, pattern)]
            names += found or [self._known(pattern)]
        if space.shape is None:
            raise DataError(f"data set {self.name}: a table has one array of numbers as {what}, not {space}")
        of_lists = self._file.lists.issuperset(names)
        if len(names) != (1 if of_lists else math.prod(space.shape)):
            raise DataError(f"data set {self.name}: {len(names)} columns are no {what} of {space}; set columns.{what}")
        return _Columns(names, space.shape, dtype, of_lists)

    def _known(self, name: str) -> str:
        if name not in self._file.names:
            has = ", ".join(self._file.names[:12])
            raise DataError(f"data set {self.name} has no column {name!r}, it has {has}; name the columns in columns")
        return name


class _Columns(NamedTuple):
    """Columns that make one array of each row, of this shape: one for each number, or one whose values are lists."""

    names: list[str]
    shape: tuple[int, ...]
    dtype: Any
    of_lists: bool


class _Marks(NamedTuple):
    """Numbers of rows, int64 each, in order: the first of every episode, those without an action, and name -> those in
    which a flag is true."""

    begins: Lengths
    without_action: Lengths
    raised: dict[str, Lengths]


class _Rows:
    """Some rows of a table, whose first has this number.

    Raises:
        DataError: Of every method: a value is missing, or of another kind.
    """

    def __init__(self, name: str, table: "Table", first: int) -> None:
        self._name, self._table, self._first = name, table, first

    def numbers(self, columns: _Columns) -> Array:
        """Return columns as arrays, [rows, *shape]."""
        if columns.of_lists:
            found = self._numbers_of_lists(columns.names[0], math.prod(columns.shape)).astype(columns.dtype)
        else:
            found = np.stack([self.column(name, columns.dtype) for name in columns.names], axis=1)
        return found.reshape(-1, *columns.shape)

    def _numbers_of_lists(self, name: str, length: int) -> Array:
        """Return the numbers of a column of lists, one list after the other; each must have this length."""
        from pyarrow.compute import list_flatten, list_value_length

        column = self._table.column(name)
        lengths = list_value_length(column).fill_null(0).to_numpy()
        if (rows := np.flatnonzero(lengths != length)).size:
            raise self.error(f"{name!r} of row {self.at(rows[0])} has {lengths[rows[0]]} numbers, not {length}")
        numbers = list_flatten(column)
        if numbers.null_count:
            row = np.flatnonzero(numbers.is_null().to_numpy())[0] // length
            raise self.error(f"row {self.at(row)} lacks a number in {name!r}; fill it, or remove the episode")
        return np.asarray(numbers.to_numpy())

    def column(self, name: str, dtype: Any, *, may_lack: BoolArray | None = None) -> Array:
        """Return a column; rows that may lack a value have 0 then."""
        column = self._table.column(name)
        lacks: BoolArray = column.is_null().to_numpy()
        if (rows := np.flatnonzero(lacks if may_lack is None else lacks & ~may_lack)).size:
            raise self.error(f"row {self.at(rows[0])} has no {name!r}; fill it, or remove the episode")
        try:
            numbers = column.cast("int8") if column.type == "bool" else column
            return np.asarray((numbers.fill_null(0) if numbers.null_count else numbers).to_numpy()).astype(dtype)
        except (ValueError, TypeError, NotImplementedError) as error:
            raise self.error(f"column {name!r} is not of numbers: {one_line(error)}") from error

    def probabilities(self, name: str) -> FloatArray:
        """Return a column of probabilities, float32 [rows, A]."""
        rows = self._table.column(name).to_pylist()
        try:
            found = np.array([json.loads(row) if isinstance(row, str) else row for row in rows], np.float32)
            sums = found.sum(axis=1)
        except (ValueError, TypeError) as error:
            raise self.error(f"column {name!r} is not of lists: {one_line(error)}") from error
        wrong = ~(np.isclose(sums, 1.0, atol=1e-3) & (found >= 0).all(axis=1))
        if (at := np.flatnonzero(wrong)).size:
            raise self.error(f"{name!r} of row {self.at(at[0])} are {found[at[0]].tolist()}, no probabilities")
        return found

    def error(self, text: str) -> DataError:
        return DataError(f"data set {self._name}: {text}")

    def at(self, row: int) -> int:
        """Return the number of a row, from 1, in the table."""
        return self._first + row + 1


def _of_taken(rows: _Rows, name: str, actions: Array, space: Space[Any]) -> FloatArray:
    """Return the logarithm of the probability of each row's action.

    Raises:
        DataError: A probability is 0, or of no choice.
    """
    probabilities = rows.probabilities(name)
    if not isinstance(space, Discrete) or probabilities.shape[1] != space.n:
        raise rows.error(f"probabilities of {probabilities.shape[1]} choices, not of {space}")
    taken = actions.astype(np.int64) - int(space.start)
    if taken.min() < 0 or taken.max() >= space.n:
        raise rows.error(f"actions from {taken.min()} to {taken.max()} are not all in {space}")
    found: FloatArray = np.take_along_axis(probabilities, taken[:, None], axis=1)[:, 0]
    if (at := np.flatnonzero(found <= 0)).size:
        raise rows.error(f"the action of row {rows.at(at[0])} has probability 0")
    return np.log(found)


class _File(Protocol):
    """A file with a table.

    Attributes:
        names: Of the columns.
        lists: Names of columns whose values are lists.
        count: Of the rows.
    """

    names: list[str]
    lists: frozenset[str]
    count: int

    def parts(self, names: Sequence[str]) -> "Iterator[tuple[int, Table]]":
        """Yield these columns of all rows, a part after the other, each with the number of its first row."""

    def read(self, names: Sequence[str], begin: int, end: int) -> "Table":
        """Return these columns of some rows."""


class _Csv:
    """A CSV file, in memory as a whole."""

    lists = frozenset[str]()

    def __init__(self, name: str) -> None:
        from pyarrow import csv

        self._table = csv.read_csv(name)
        self.names, self.count = self._table.column_names, self._table.num_rows

    def parts(self, names: Sequence[str]) -> "Iterator[tuple[int, Table]]":
        yield 0, self._table.select(names)

    def read(self, names: Sequence[str], begin: int, end: int) -> "Table":
        return self._table.select(names).slice(begin, end - begin)


class _Parquet:
    """A Parquet file, of which two groups of rows are in memory: rows of a vector read near one another.

    Raises:
        DataError: Of its methods: the file is damaged, has changed or has gone.
    """

    def __init__(self, name: str) -> None:
        from pyarrow import parquet, types

        self._name, self._unchanged = name, Unchanged(name, Path(name))
        self._file = parquet.ParquetFile(name)
        described = self._file.metadata
        schema = self._file.schema_arrow
        self.names, self.count = schema.names, described.num_rows
        is_list = (types.is_list, types.is_large_list, types.is_fixed_size_list)
        self.lists = frozenset(field.name for field in schema if any(fits(field.type) for fits in is_list))
        groups = [described.row_group(group).num_rows for group in range(described.num_row_groups)]
        self._begins = np.cumsum([0, *groups]).tolist()
        self._kept = lru_cache(maxsize=2)(self._group)

    def parts(self, names: Sequence[str]) -> "Iterator[tuple[int, Table]]":
        for group, begin in enumerate(self._begins[:-1]):
            yield begin, self._group(group, tuple(names))

    def read(self, names: Sequence[str], begin: int, end: int) -> "Table":
        from pyarrow import concat_tables

        first, after = bisect_right(self._begins, begin) - 1, bisect_left(self._begins, end)
        table = concat_tables([self._kept(group, tuple(names)) for group in range(first, after)])
        return table.slice(begin - self._begins[first], end - begin)

    def _group(self, group: int, names: tuple[str, ...]) -> "Table":
        from pyarrow import ArrowException

        try:
            table = self._file.read_row_group(group, columns=[*names])
        except (OSError, ArrowException) as error:
            raise DataError(
                f"data set {self._name}: rows from {self._begins[group] + 1} on cannot be read: {one_line(error)}"
            ) from error
        self._unchanged.check()
        return table


def _opened(name: str) -> _File:
    """Open a table.

    Raises:
        DataError: There is no such file, it is damaged, or it has no rows.
        MissingExtraError: The extra `data` is not installed.
    """
    require("pyarrow", f"PyArrow, which reads {name},", "data")
    # Imported here: it is an extra.
    from pyarrow import ArrowException

    try:
        file = _Csv(name) if name.endswith(".csv") else _Parquet(name)
    except (OSError, ArrowException) as error:
        raise DataError(f"data set {name} cannot be read: {one_line(error)}") from error
    if not file.count:
        raise DataError(f"data set {name} has no rows")
    return file


ROWS_TOGETHER = 100_000
"""Rows in a group of a Parquet file, of which two are in memory when it is read."""


class TableWriter:
    """See `EpisodeWriter`: a table with the default columns of `ColumnsConfig`.

    Every episode ends with a row without an action, which shows what the last step led to. Probabilities of actions are
    left out. The table is in memory until `finish`, as it is when it is read.

    Args:
        path: FILE.csv or FILE.parquet; its folder is made.

    Raises:
        TakenError: The file is there already.
        DataError: Its folder cannot be made, or a table cannot hold one of the spaces.
        MissingExtraError: The extra `data` is not installed.
    """

    def __init__(self, path: Path, observation_space: Space[Any], action_space: Space[Any]) -> None:
        require("pyarrow", f"PyArrow, which writes {path},", "data")
        observed, acted = _width("observations", observation_space), _width("actions", action_space)
        self._observation = [f"observation_{place}" for place in range(observed)]
        self._action = ["action"] if acted == 1 else [f"action_{place}" for place in range(acted)]
        self._path = path
        self._episodes: list[Table] = []
        if path.exists():
            raise TakenError(f"there is a file {path} already; choose another name, or remove it")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{path} cannot be written: {one_line(error)}") from error

    def add(self, episode: Episode) -> None:
        import pyarrow

        steps = episode.length_steps
        last = np.arange(steps + 1) == steps
        ends = np.roll(last, -1)

        def of_steps(column: Array) -> Any:
            return pyarrow.array(np.append(column, column[-1:]), mask=last)

        observations = np.reshape(episode.observations, (steps + 1, -1))
        actions = np.reshape(episode.actions, (steps, -1))
        columns = {
            "episode": np.full(steps + 1, len(self._episodes)),
            **dict(zip(self._observation, observations.T, strict=True)),
            **dict(zip(self._action, map(of_steps, actions.T), strict=True)),
            "reward": of_steps(episode.rewards),
            "terminated": ends & episode.terminated,
            "truncated": ends & (not episode.terminated),
        }
        self._episodes.append(pyarrow.table(columns))

    def finish(self) -> Path:
        from pyarrow import concat_tables, csv, parquet

        table, content = concat_tables(self._episodes), BytesIO()
        if self._path.suffix == ".csv":
            csv.write_csv(_exact(table), content)
        else:
            parquet.write_table(table, content, row_group_size=ROWS_TOGETHER)
        try:
            put_file(self._path, content.getvalue())
        except OSError as error:
            raise DataError(f"{self._path} cannot be written: {one_line(error)}") from error
        return self._path

    def abandon(self) -> None:
        self._episodes.clear()


def _width(what: str, space: Space[Any]) -> int:
    """Return the number of columns.

    Raises:
        DataError: The space is not of numbers, or of more than one axis.
    """
    if space.shape is None or len(space.shape) > 1:
        raise DataError(
            f"a table holds numbers and vectors, and the {what} are {space}; record a data set of Minari, whose name "
            "does not end with .csv or .parquet"
        )
    return math.prod(space.shape)


def _exact(table: "Table") -> "Table":
    """Return the table with real numbers of 64 bits: as text, those of 32 bits would be rounded twice."""
    import pyarrow

    wide = [
        field.with_type(pyarrow.float64()) if pyarrow.types.is_floating(field.type) else field for field in table.schema
    ]
    return table.cast(pyarrow.schema(wide))
