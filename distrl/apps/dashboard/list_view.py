"""A page of the list of runs: selected by a query, sorted, grouped, and cut to what is shown."""

import re
import statistics
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import is_
from typing import Any

from distrl.apps.dashboard.attention import counted
from distrl.apps.dashboard.index import LISTED
from distrl.apps.dashboard.query import SHORT, amount, parse, resolved, select, word
from distrl.apps.dashboard.settings_table import SettingsTable
from distrl.apps.reports.curves import by_number
from distrl.apps.reports.intervals import interquartile_mean
from distrl.config.document import shown
from distrl.config.settings import short_names
from distrl.errors import ConfigError

Json = dict[str, Any]
Groups = list[tuple[str, list[int]]]
"""Labels, and the positions of the runs of each."""
NUMBERS = (*LISTED, "training_s", "wall_s", "actors_up", "exit_code")
"""Numbers that queries compare and columns show."""
USUAL_NUMBERS = (
    *("mean_return_100", "evaluation_mean_return", "best_mean_return_100", "env_steps", "env_steps_per_s"),
    *("training_s", "started"),
)
"""Columns of numbers that are shown unless others are chosen."""
BASICS = ("started", "name", "env", "algorithm", "state", "seed")
GROUPS = ("algorithm", "env", "state")
"""Keys to group by beside the settings."""
MOST_SETTINGS = 4
"""Most settings that are shown unless columns are chosen."""
MOST_ROWS, USUAL_ROWS = 500, 100
MOST_COLUMNS, MOST_OPEN = 24, 200
MOST_PAGES = 16
"""Most pages that are kept until a run changes."""
ALL = "*"
_WORDS = ("name", "path", "env", "algorithm", "run_id", "state", "note")


@dataclass(frozen=True)
class ListView:
    """Query, order, columns and groups of a list, and the part of it that a page shows.

    Attributes:
        sort: Name of a basic, a number or a setting, with "-" before it for descending order.
        limit: Lines of a page; None: all.
        columns: Numbers and settings; None: the usual ones.
        group: One of `GROUPS` or a setting; "" for none.
        opened: Labels of the groups whose runs are shown; `ALL`: all but `folded`.
    """

    query: str = ""
    sort: str = "-started"
    offset: int = 0
    limit: int | None = None
    columns: tuple[str, ...] | None = None
    group: str = ""
    opened: frozenset[str] = frozenset()
    folded: frozenset[str] = frozenset()

    def is_open(self, label: str) -> bool:
        """Whether the runs of a group are shown."""
        return label not in self.folded if ALL in self.opened else label in self.opened


class RunFacts:
    """`distrl.apps.dashboard.query.QueriedRuns` of rows of the list."""

    numbers: Collection[str] = NUMBERS

    def __init__(self, rows: Sequence[Json], table: SettingsTable, kept: dict[str, tuple[Json, str]]) -> None:
        self.rows = rows
        self._table = table
        self._kept = kept  # texts of rows that are the same objects as before
        self._settings: list[str] | None = None
        self._ids: list[str] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def settings(self) -> Collection[str]:
        """Dotted paths."""
        if self._settings is None:
            self._settings = self._table.paths
        return self._settings

    @property
    def ids(self) -> list[str]:
        """Ids of the runs."""
        if self._ids is None:
            self._ids = [row["id"] for row in self.rows]
        return self._ids

    def texts(self) -> list[str]:
        """Return names, environment, algorithm, id, states, tags and note of each run, in lower case."""
        found = []
        for row in self.rows:
            kept = self._kept.get(row["id"])
            if kept is None or kept[0] is not row:
                text = " ".join([*(str(row[name]) for name in _WORDS), *row["words"], *row["tags"]]).lower()
                kept = self._kept[row["id"]] = row, text
            found.append(kept[1])
        return found

    def field(self, name: str) -> list[Collection[str]]:
        """Return the values of a field of each run, in lower case."""
        if name == "state":
            return [row["words"] for row in self.rows]
        if name == "tag":
            return [[tag.lower() for tag in row["tags"]] for row in self.rows]
        if name == "archived":
            return [("yes",) if row["archived"] else ("no",) for row in self.rows]
        if name == "name":
            return [(row["name"].lower(), row["path"].lower()) for row in self.rows]
        return [(row[name].lower(),) for row in self.rows]

    def column(self, name: str) -> list[Any]:
        """Return a number or a setting of each run."""
        if name in self.numbers:
            return [row["numbers"].get(name) for row in self.rows]
        return self._table.column(name, self.ids)

    def key(self, name: str) -> list[Any]:
        """Return what runs are sorted by."""
        if name == "state":
            return [row["words"][0] for row in self.rows]
        if name in BASICS:
            return [row[name] for row in self.rows]
        return self.column(resolved(name, self.numbers, self.settings))

    def only(self, positions: Sequence[int]) -> "RunFacts":
        """Return the facts of some of the runs."""
        return RunFacts([self.rows[at] for at in positions], self._table, self._kept)


class Lists:
    """Pages of the list. Safe for several threads."""

    def __init__(self, table: SettingsTable) -> None:
        self._table = table
        self._kept: dict[str, tuple[Json, str]] = {}
        self._usual: tuple[Any, list[str]] | None = None
        self._pages: dict[ListView, tuple[Sequence[Json], int, Json]] = {}
        self._lock = threading.Lock()

    def select(self, rows: Sequence[Json], query: str) -> list[Json]:
        """Return the rows that a query selects, in their order."""
        return [*self._selected(rows, query).rows]

    def page(self, rows: Sequence[Json], view: ListView) -> Json:
        """Return the lines of one page, their rows, and numbers about all of the list.

        Args:
            rows: Every run; those that have not changed are the same objects as before.

        Raises:
            ConfigError: The query, a column, or a key to sort or group by is unknown or ambiguous.
        """
        changes = self._table.changes
        with self._lock:
            kept = self._pages.get(view)
        if kept and kept[1] == changes and len(kept[0]) == len(rows) and all(map(is_, kept[0], rows)):
            return kept[2]
        page = self._made(rows, view)
        with self._lock:
            self._pages.pop(view, None)
            self._pages[view] = rows, changes, page
            while len(self._pages) > MOST_PAGES:
                del self._pages[next(iter(self._pages))]
        return page

    def _made(self, rows: Sequence[Json], view: ListView) -> Json:
        facts = self._sorted(self._selected(rows, view.query), view.sort)
        columns = self._columns(facts, view)
        groups = self._groups(facts, view)
        lines = _lines(facts, groups, view)
        offset = min(view.offset, max(len(lines) - 1, 0) // (view.limit or 1) * (view.limit or 1))
        part = lines[offset:] if view.limit is None else lines[offset : offset + view.limit]
        at = [line["at"] for line in part if "at" in line]
        chosen = facts.only(at)
        settings = [column["name"] for column in columns if column["kind"] == "setting"]
        texts = {path: [_cell(value) for value in chosen.column(path)] for path in settings}
        return {
            "lines": _described(part, facts, columns),
            "rows": [
                {**row, "settings": {path: texts[path][position] for path in settings}}
                for position, row in enumerate(chosen.rows)
            ],
            "columns": columns,
            "grouped": None if groups is None else len(groups),
            "matched": len(facts.rows),
            "total": len(rows),
            "archived": sum(row["archived"] for row in rows),
            "running": sum(row["state"] == "running" for row in rows),
            "counts": counted([row["words"] for row in rows if not row["archived"]]),
            "offset": offset,
            "length": len(lines),
        }

    def choices(self, rows: Sequence[Json], query: str) -> Json:
        """Return the columns that a page may show; `differing` are settings that differ between the selected runs."""
        facts = self._selected(rows, query)
        differing = self._table.differing(facts.ids)
        return {
            "numbers": [*NUMBERS, "started"],
            "differing": [{"path": path, "values": count} for path, count in differing.items()],
            "same": [path for path in self._table.paths if path not in differing],
            "groups": [*GROUPS],
        }

    def _selected(self, rows: Sequence[Json], query: str) -> RunFacts:
        facts = RunFacts(rows, self._table, self._kept)
        if len(self._kept) > 2 * len(rows) + 100:
            self._kept.clear()
        return facts.only(select(parse(query), facts))

    def _sorted(self, facts: RunFacts, sort: str) -> RunFacts:
        values = facts.key(sort.removeprefix("-"))
        known = [at for at, value in enumerate(values) if value is not None]
        if all(type(values[at]) in (int, float) for at in known):
            known.sort(key=values.__getitem__, reverse=sort.startswith("-"))
        else:
            known.sort(key=lambda at: by_number(word(values[at])), reverse=sort.startswith("-"))
        # Unknown values come last in both orders.
        return facts.only([*known, *(at for at, value in enumerate(values) if value is None)])

    def _columns(self, facts: RunFacts, view: ListView) -> list[Json]:
        if view.columns is None:
            paths = self._usual_settings(facts)
            return _columns_of((*USUAL_NUMBERS, *paths), facts.settings)
        names = [name if name == "started" else resolved(name, facts.numbers, facts.settings) for name in view.columns]
        return _columns_of([*dict.fromkeys(names)], facts.settings)

    def _usual_settings(self, facts: RunFacts) -> list[str]:
        key = self._table.changes, hash(frozenset(facts.ids))
        if self._usual is None or self._usual[0] != key:
            self._usual = key, self._table.distinguishing(facts.ids, MOST_SETTINGS)
        return self._usual[1]

    def _groups(self, facts: RunFacts, view: ListView) -> Groups | None:
        """Return the groups in order; None without grouping."""
        if not view.group:
            return None
        values = facts.key(view.group if view.group in GROUPS else _path(view.group, facts))
        members: dict[str, list[int]] = {}
        for at, value in enumerate(values):
            members.setdefault(_cell(value), []).append(at)
        return [(label, members[label]) for label in self._group_order(facts, view.sort, members)]

    def _group_order(self, facts: RunFacts, sort: str, members: Mapping[str, Sequence[int]]) -> list[str]:
        """Return the labels by the median of the number that runs are sorted by, else by themselves."""
        labels = sorted(members, key=by_number)
        name, sign = sort.removeprefix("-"), -1.0 if sort.startswith("-") else 1.0
        name = SHORT.get(name, name)
        if name not in NUMBERS:
            return labels
        keys = facts.key(name)

        def median(label: str) -> tuple[bool, float]:
            known = [value for at in members[label] if (value := amount(keys[at])) is not None]
            return (False, sign * statistics.median(known)) if known else (True, 0.0)

        return sorted(labels, key=median)


def _lines(facts: RunFacts, groups: Groups | None, view: ListView) -> list[Json]:
    """Return a line per run, or per group and per run of the groups that are open."""
    if groups is None:
        return [{"at": at} for at in range(len(facts.rows))]
    lines: list[Json] = []
    for label, members in groups:
        is_open = view.is_open(label)
        lines.append({"group": label, "n": len(members), "open": is_open, "members": members})
        if is_open:
            lines += [{"at": at} for at in members]
    return lines


def _described(lines: Sequence[Json], facts: RunFacts, columns: Sequence[Json]) -> list[Json]:
    """Return the lines of a page; those of groups have the median and the interquartile mean of each number."""
    names = [column["name"] for column in columns if column["kind"] == "number" and column["name"] != "started"]
    return [
        {"run": facts.rows[line["at"]]["id"]}
        if "at" in line
        else {
            **{key: line[key] for key in ("group", "n", "open")},
            "numbers": _statistics(line["members"], facts, names),
        }
        for line in lines
    ]


def _statistics(members: Sequence[int], facts: RunFacts, names: Sequence[str]) -> dict[str, Json]:
    """Return name -> median, interquartile mean, and the number of runs that have the number."""
    found, group = {}, facts.only(members)
    for name in names:
        known = [value for one in group.column(name) if (value := amount(one)) is not None]
        if known:
            iqm = float(interquartile_mean(known))
            found[name] = {"median": statistics.median(known), "iqm": iqm, "n": len(known)}
    return found


def _path(name: str, facts: RunFacts) -> str:
    path = resolved(name, (), facts.settings)
    if path not in facts.settings:
        raise ConfigError(f"group is one of {', '.join(GROUPS)}, or a setting, not {name!r}")
    return path


def _columns_of(names: Sequence[str], settings: Collection[str]) -> list[Json]:
    """Return name, kind and, of a setting, its short name."""
    numbers = (*NUMBERS, "started")
    short = short_names([name for name in names if name not in numbers], settings)
    return [
        {"name": name, "kind": "number"} if name in numbers else {"name": name, "kind": "setting", "short": short[name]}
        for name in names
    ]


def _cell(value: Any) -> str:
    """Return a value of a setting in one line."""
    return _scalar_cell(type(value).__name__, value) if isinstance(value, str | int | float | None) else _text_of(value)


@lru_cache(4096)
def _scalar_cell(kind: str, value: str | float | None) -> str:
    """Return the same from memory; the type keeps 1, 1.0 and true apart."""
    return _text_of(value)


def _text_of(value: Any) -> str:
    text = value if isinstance(value, str) and value else "–" if value is None else shown(value, 80)
    return re.sub(r"\s+", " ", text)[:80]
