"""Tables with a row for each step: CSV and Parquet files, read by the names of their columns, and written."""

import fnmatch
import json
import math
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete

from distrl.config.data import ColumnsConfig, DataSetConfig
from distrl.data.episodes import DataError, Episode, Lengths, Spaces, ordered
from distrl.data_store.atomic import put_file
from distrl.errors import one_line, require
from distrl.types import Array, BoolArray, FloatArray

if TYPE_CHECKING:
    from pyarrow import Table


class TableEpisodes:
    """The episodes of a table, which is in memory as a whole.

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
        self._table = _read(config.name)
        columns, self._episode_column = config.named_columns, config.named_columns.episode
        self._begins, self._ends = self._bounds()
        names = ("action",) if "action" in self._table.column_names else ("action_*",)
        acted = self._matching(columns.action or names)
        self._final = self._has_final_rows(acted[0])
        self._observations = self._observations_of(self._matching(columns.observation), spaces.observation)
        self._actions = self._actions_of(acted, spaces.action)
        self._rewards = self._column(columns.reward, np.float64)
        self._log_probabilities: FloatArray | None = None
        if columns.probabilities is not None:
            self._log_probabilities = self._of_taken(self._lists(columns.probabilities), spaces.action)
        self._terminated = self._which_terminated(columns, spaces.max_episode_steps)
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
        rows = [*range(begin, end), end - 1 if terminated and not self._final[number] else end]
        return Episode(
            observations=self._observations[rows],
            actions=self._actions[begin:end],
            rewards=self._rewards[begin:end],
            terminated=terminated,
            log_probabilities=None if self._log_probabilities is None else self._log_probabilities[begin:end],
        )

    def _bounds(self) -> tuple[Lengths, Lengths]:
        """Return the first row of every episode, and the row after its last."""
        marks = self._table.column(self._known(self._episode_column)).to_numpy()
        begins = np.flatnonzero(np.r_[True, marks[1:] != marks[:-1]])
        return begins, np.r_[begins[1:], len(marks)]

    def _has_final_rows(self, action: str) -> BoolArray:
        """Return of which episodes the last row has no action."""
        without: BoolArray = self._table.column(action).is_null().to_numpy()
        return without[self._ends - 1]

    def _which_terminated(self, columns: ColumnsConfig, limit: int | None) -> BoolArray:
        last = self._ends - 1 - self._final
        if columns.ends == "limit":
            if limit is None:
                raise DataError(
                    f"data set {self.name}: the environment has no limit of steps by which episodes were cut off; set "
                    "columns.ends to terminated or truncated"
                )
            return last + 1 - self._begins < limit
        for name in filter(None, (columns.terminated, columns.truncated)):
            self._ends_where_it_says(name, last)
        if columns.terminated is not None:
            terminated: BoolArray = self._column(columns.terminated, np.float64)[last] != 0
        elif columns.truncated is not None:
            terminated = self._column(columns.truncated, np.float64)[last] == 0
        else:
            return np.full(len(last), columns.ends == "terminated")
        if columns.truncated is None and not terminated.any():
            raise DataError(
                f"data set {self.name}: column {columns.terminated!r} is true in no last row of an episode; if all "
                "were cut off, set columns.terminated to null and columns.ends to truncated"
            )
        return terminated

    def _ends_where_it_says(self, name: str, last: Lengths) -> None:
        within = self._column(name, np.float64) != 0
        within[last] = False
        if (rows := np.flatnonzero(within)).size:
            raise DataError(
                f"data set {self.name}: {name!r} is true in row {rows[0] + 1}, and column "
                f"{self._episode_column!r} says that the episode goes on"
            )

    def _observations_of(self, names: Sequence[str], space: Space[Any]) -> Array:
        return self._shaped("observation", self._numbers(names, space.dtype, every_row=True), space)

    def _actions_of(self, names: Sequence[str], space: Space[Any]) -> Array:
        # Choices stay numbers of any kind: `array_reader` refuses those that are not whole.
        return self._shaped(
            "action", self._numbers(names, space.dtype if isinstance(space, Box) else np.float64), space
        )

    def _shaped(self, what: str, rows: Array, space: Space[Any]) -> Array:
        """Return numbers [rows, columns] in the shape of the space.

        Raises:
            DataError: The space is not of one array, or of another number of columns.
        """
        if space.shape is None:
            raise DataError(f"data set {self.name}: a table has one array of numbers as {what}, not {space}")
        if rows.shape[1] != math.prod(space.shape):
            raise DataError(
                f"data set {self.name}: {rows.shape[1]} columns are no {what} of {space}; set columns.{what}"
            )
        return rows.reshape(len(rows), *space.shape)

    def _matching(self, patterns: Sequence[str]) -> list[str]:
        """Return the columns that these names and patterns mean, in order."""
        names: list[str] = []
        for pattern in patterns:
            found = [name for name in self._table.column_names if fnmatch.fnmatchcase(name, pattern)]
            names += found or [self._known(pattern)]
        return names

    def _known(self, name: str) -> str:
        if name not in self._table.column_names:
            has = ", ".join(self._table.column_names[:12])
            raise DataError(f"data set {self.name} has no column {name!r}, it has {has}; name the columns in columns")
        return name

    def _numbers(self, names: Sequence[str], dtype: Any, *, every_row: bool = False) -> Array:
        return np.stack([self._column(name, dtype, every_row=every_row) for name in names], axis=1)

    def _column(self, name: str, dtype: Any, *, every_row: bool = False) -> Array:
        """Return a column of numbers; rows without an action may lack it, and have 0 then."""
        column = self._table.column(self._known(name))
        lacks: BoolArray = column.is_null().to_numpy().copy()
        if not every_row:
            lacks[self._ends[self._final] - 1] = False
        if (rows := np.flatnonzero(lacks)).size:
            raise DataError(f"data set {self.name}: row {rows[0] + 1} has no {name!r}; fill it, or remove the episode")
        try:
            return np.asarray((column.fill_null(0) if column.null_count else column).to_numpy()).astype(dtype)
        except (ValueError, TypeError, NotImplementedError) as error:
            raise DataError(f"data set {self.name}: column {name!r} is not of numbers: {one_line(error)}") from error

    def _of_taken(self, probabilities: FloatArray, space: Space[Any]) -> FloatArray:
        """Return the logarithm of the probability of each row's action; 0 in rows without one.

        Raises:
            DataError: A probability is 0, or of no choice.
        """
        if not isinstance(space, Discrete) or probabilities.shape[1] != space.n:
            raise DataError(f"data set {self.name}: probabilities of {probabilities.shape[1]} choices, not of {space}")
        taken = self._actions.astype(np.int64) - int(space.start)
        taken[self._ends[self._final] - 1] = 0
        if taken.min() < 0 or taken.max() >= space.n:
            raise DataError(f"data set {self.name}: actions from {taken.min()} to {taken.max()} are not all in {space}")
        found: FloatArray = np.take_along_axis(probabilities, taken[:, None], axis=1)[:, 0]
        if (rows := np.flatnonzero(found <= 0)).size:
            raise DataError(f"data set {self.name}: the action of row {rows[0] + 1} has probability 0")
        return np.log(found)

    def _lists(self, name: str) -> FloatArray:
        """Return a column of probabilities, float32 [rows, A]; rows without an action have ones."""
        rows = self._table.column(self._known(name)).to_pylist()
        try:
            lists = [json.loads(row) if isinstance(row, str) and row else row for row in rows]
            width = len(next(row for row in lists if row))
            found = np.array([row or [1.0] * width for row in lists], np.float32)
        except (ValueError, TypeError, StopIteration) as error:
            raise DataError(f"data set {self.name}: column {name!r} is not of lists: {one_line(error)}") from error
        acted = np.ones(len(found), np.bool_)
        acted[self._ends[self._final] - 1] = False
        wrong = acted & ~(np.isclose(found.sum(axis=1), 1.0, atol=1e-3) & (found >= 0).all(axis=1))
        if (at := np.flatnonzero(wrong)).size:
            raise DataError(
                f"data set {self.name}: {name!r} of row {at[0] + 1} are {found[at[0]].tolist()}, no probabilities"
            )
        return found


def _read(name: str) -> "Table":
    """Read a table.

    Raises:
        DataError: There is no such file, it is damaged, or it has no rows.
        MissingExtraError: The extra `data` is not installed.
    """
    require("pyarrow", f"PyArrow, which reads {name},", "data")
    # Imported here: it is an extra.
    from pyarrow import ArrowException, csv, parquet

    path = Path(name)
    try:
        table = csv.read_csv(path) if name.endswith(".csv") else parquet.read_table(path)
    except (OSError, ArrowException) as error:
        raise DataError(f"data set {name} cannot be read: {one_line(error)}") from error
    if not table.num_rows:
        raise DataError(f"data set {name} has no rows")
    return table


class TableWriter:
    """See `EpisodeWriter`: a table with the default columns of `ColumnsConfig`.

    Every episode ends with a row without an action, which shows what the last step led to. Probabilities of actions are
    left out. The table is in memory until `finish`, as it is when it is read.

    Args:
        path: FILE.csv or FILE.parquet; its folder is made.

    Raises:
        DataError: The file is there already, its folder cannot be made, or a table cannot hold one of the spaces.
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
            raise DataError(f"there is a file {path} already; choose another name, or remove it")
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
            parquet.write_table(table, content)
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
