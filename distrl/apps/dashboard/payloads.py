"""JSON for pages: lists of runs, one run, curves and comparisons."""

import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse

from distrl.apps.dashboard import files, lines, marks
from distrl.apps.dashboard.attention import words_of
from distrl.apps.dashboard.edits import Edits
from distrl.apps.dashboard.index import LISTED, Index, IndexedRun
from distrl.apps.dashboard.list_view import Lists, ListView
from distrl.apps.dashboard.live_runs import ODD, LiveRuns, host_loads, role_rows
from distrl.apps.dashboard.metrics_cache import Edition, Tables
from distrl.apps.dashboard.settings_table import SettingsTable
from distrl.apps.dashboard.sparks import Spark, Sparks
from distrl.apps.reports.curves import Curve
from distrl.config.document import shown
from distrl.config.settings import Settings
from distrl.errors import ConfigError
from distrl.memory_backend.ledger import LedgerCounts
from distrl.memory_backend.records import time_shares
from distrl.metrics.snapshot import MEANINGS, METRICS, Snapshot, meaning_of, tag_of
from distrl.runs.metrics_csv import Table, table_of_snapshots
from distrl.runs.reading import Reading
from distrl.runs.summary import Summary

Json = dict[str, Any]
LIVE_NUMBERS = (*LISTED, "training_s", "actors_up")
"""Numbers of a live run in the list."""
UNROLLS = tuple(field.name for field in fields(LedgerCounts) if field.name in Summary.model_fields)
"""Counts of the ledger that a summary has, too."""
LIST_WAIT_S = 0.5
"""Time-out of the list for all Redis servers together."""
RUN_WAIT_S = 2.0
"""Time-out of one run's page for its Redis."""
FILL_S, READ_S = 0.2, 0.5
"""Longest time that a request, and the thread behind it, read settings of runs at once."""
IDLE_S = 30.0
"""Settings are read while a list was shown within that time."""


class Runs:
    """The runs below a directory and in Redis servers, with their live state and metrics."""

    def __init__(self, root: Path, redis_urls: Sequence[str] = ()) -> None:
        self.live = LiveRuns(redis_urls)
        self.index = Index(root, self.live.found)
        self.tables = Tables()
        self.settings = SettingsTable(self.index)
        self.lists = Lists(self.settings)
        self.sparks = Sparks(self.index, self.tables)
        self.edits = Edits(self.index)
        self._asked = float("-inf")
        self._kept_rows: dict[str, tuple[IndexedRun, Json]] = {}

    def close(self) -> None:
        """Close all connections and the index."""
        self.sparks.close()
        self.live.close()
        self.index.close()

    def listed(self) -> list[Json]:
        """Return every run, the newest first, running ones with their current numbers."""
        entries = self.index.entries()
        looks = self.looks(entries, LIST_WAIT_S)
        rows, kept_rows = [], {}
        for entry in entries:
            kept = self._kept_rows.get(entry.id)
            # The same object again if nothing can have changed.
            row = kept[1] if kept is not None and kept[0] is entry else self.row_of(entry, looks.get(entry.id))
            if entry.state in ("ended", "gone"):
                kept_rows[entry.id] = (entry, row)
            rows.append(row)
        self._kept_rows = kept_rows
        return rows

    def page(self, view: ListView) -> Json:
        """Return one page of the list, see `Lists.page`; `unread` runs are those whose settings are not read yet."""
        self._asked = time.monotonic()
        unread = self.settings.fill(self.index.entries(), FILL_S)
        return {**self.lists.page(self.listed(), view), "unread": unread}

    def sparks_of(self, ids: Sequence[str]) -> dict[str, Spark]:
        """Return id -> small curve, of those runs whose curve is known soon."""
        entries = {entry.id: entry for entry in self.index.entries()}
        return self.sparks.of([entries[one] for one in ids if one in entries])

    def selected(self, query: str) -> list[Json]:
        """Return the rows that a query selects, the newest first."""
        self.settings.fill(self.index.entries(), FILL_S)
        return self.lists.select(self.listed(), query)

    def choices(self, query: str) -> Json:
        """Return the columns that a page of the list may show."""
        self.settings.fill(self.index.entries(), FILL_S)
        return self.lists.choices(self.listed(), query)

    def read_settings(self) -> bool:
        """Read settings of further runs for a moment, if a list was shown lately; return whether there are more."""
        if time.monotonic() - self._asked > IDLE_S:
            return False
        return self.settings.fill(self.index.entries(), READ_S) > 0

    def look(self, entry: IndexedRun) -> Reading | None:
        """Return the live state of a live run; None for other runs."""
        return self.looks([entry]).get(entry.id)

    def looks(self, entries: Sequence[IndexedRun], wait_s: float | None = None) -> dict[str, Reading]:
        """Return id -> look of the running ones; wait at most `RUN_WAIT_S` for all of them together."""
        up = [entry for entry in entries if entry.state == "running"]
        running = {entry.id: record for entry in up if (record := self.index.running(entry)) is not None}
        limit_s = RUN_WAIT_S if wait_s is None else wait_s
        return dict(zip(running, self.live.looks([*running.values()], limit_s), strict=True))

    def latest(self, entry: IndexedRun, look: Reading | None) -> Snapshot:
        """Return the newest numbers: those of metrics.csv, updated by the live run or by the summary.

        `training_s` is the training time over all resumptions. `wall_s` is the same while a run lasts, and the time
        from launch to end, as in its summary, once it has ended.
        """
        try:
            row = dict(self.tables.last(self.index.directory(entry)))
        except (ConfigError, OSError):  # told where curves are asked for
            row = {}
        row |= look.latest if look is not None else {}
        return {**_timed(row), **(self._final(entry) if entry.state == "ended" else {})}

    def _final(self, entry: IndexedRun) -> Snapshot:
        try:
            return self.summary(entry).snapshot()
        except (ConfigError, OSError):  # gone or replaced since the last look
            return {}

    def summary(self, entry: IndexedRun) -> Summary:
        """Return the summary of a run that has ended."""
        return Summary.read(files.inside(self.index.directory(entry), "summary.json"))

    def described(self, run_id: str) -> Json:
        """Return one run, without its curves, configuration and logs."""
        entry = self.index.entry(run_id)
        look, folder = self.look(entry), self.index.directory(entry)
        snapshot = self.latest(entry, look)
        columns = self.columns_of(entry)
        return {
            "run": self.row_of(entry, look),
            "snapshot": snapshot,
            "live": None if look is None else live_part(look),
            "ledger": self._ledger(entry, look),
            "columns": columns,
            "own": own_metric_rows(columns),
            "logs": files.log_names(folder),
        }

    def curves(
        self,
        run_id: str,
        names: Sequence[str],
        over: str,
        points: int,
        window: int,
        within: tuple[float, float] | None = None,
        raw: bool = False,
        since: str = "",
    ) -> Json:
        """Return lines of one run: name -> {x, y}; an empty line if the run has no such number yet.

        Args:
            points: Most points of a line, in the stretch `within` of the x axis, or of the whole.
            raw: Return the lines without smoothing, too, where it changes them.
            since: The `mark` of an earlier answer: return only points of later rows. `more` of the answer is False if
                that is not possible, and all points are returned.
        """
        edition, table = self._derived(run_id, names)
        rows = lines.rows_before(since, edition, table)

        def drawn(window: int) -> Json:
            known = [name for name in names if name in table]
            found = {name: lines.stretch(table, name, over, window, within, points, rows) for name in known}
            return {name: coordinates(found[name]) if name in found else {"x": [], "y": []} for name in names}

        told: Json = {"over": over, "curves": drawn(window), "ruler": lines.ruler(table, over, rows)}
        told |= {"mark": lines.mark_of(edition, table), "more": rows > 0}
        return told | ({"raw": drawn(1)} if raw and window > 1 else {})

    def csv(self, run_id: str, names: Sequence[str]) -> Iterator[str]:
        """Yield the numbers of one run as CSV, in pieces."""
        return lines.csv_pieces(self._derived(run_id, names).table, names)

    def _derived(self, run_id: str, names: Sequence[str]) -> Edition:
        found = self._edition_of(self.index.entry(run_id), lines.needed(names))
        return found._replace(table=lines.with_derived(found.table, names))

    def marks(self, run_id: str, over: str) -> Json:
        """Return the moments and targets that the charts of one run mark."""
        entry = self.index.entry(run_id)
        table = self.table_of(entry, marks.columns(self.columns_of(entry)))
        return marks.marks(self.index.directory(entry), table, self.settings_of(entry), over)

    def configuration(self, run_id: str) -> Json:
        """Return every value of a run's configuration with its origin."""
        found = self.index.configuration(self.index.entry(run_id))
        return {"values": [{"path": path, **one._asdict(), "text": words(one.value)} for path, one in found.items()]}

    def fleet(self) -> Json:
        """Return hosts with their roles, and the Redis of every live run."""
        hosts: dict[str, list[Json]] = {}
        loads: Json = {}
        redis = []
        entries = self.index.entries()
        looks = self.looks(entries)
        for entry in [entry for entry in entries if entry.id in looks]:
            look = looks[entry.id]
            named = {"run": entry.id, "name": entry.name}
            try:
                rows = [named | row for row in role_rows(look)]
            except ODD as error:
                redis.append(named | {"problem": f"its Redis holds something odd ({error!r})"})
                continue
            for row in rows:
                hosts.setdefault(row["host"], []).append(row)
            loads = host_loads(look.roles) | loads
            queued = {"entries": look.counts.queued + look.counts.in_flight, "stream_bytes": look.counts.stream_bytes}
            redis.append(named | dict(look.redis) | queued | {"problem": look.problem})
        told = [{"host": host, "roles": roles, "load": loads.get(host)} for host, roles in sorted(hosts.items())]
        return {"hosts": told, "redis": redis}

    def row_of(self, entry: IndexedRun, look: Reading | None) -> Json:
        """Return a run as a row of the list."""
        row = entry.model_dump()
        if look is not None:
            snapshot = _timed(look.latest)
            row["numbers"] = {key: snapshot[key] for key in LIVE_NUMBERS if key in snapshot}
            row["paused"] = look.control.paused
            row["problem"] = row["problem"] or look.problem
        elif entry.state in ("gone", "running"):
            snapshot = self.latest(entry, None)
            row["numbers"] = {key: snapshot[key] for key in LIVE_NUMBERS if key in snapshot}
        record = self.index.running(entry)
        has_redis = record is not None and record.redis_url is not None
        row["words"] = words_of(entry.state, row["numbers"], look, has_redis=has_redis)
        return row

    def _ledger(self, entry: IndexedRun, look: Reading | None) -> Json | None:
        """Return the counts of unrolls, live or final; None for a run that is gone."""
        if look is not None:
            return _unrolls(look.counts)
        if entry.state != "ended":
            return None
        summary = self.summary(entry)
        return {**{name: getattr(summary, name) for name in UNROLLS}, "imbalance": summary.imbalance}

    def table_of(self, entry: IndexedRun, names: Sequence[str]) -> Table:
        """Return columns of metrics.csv or, without such a file, those of the last minutes in the run's Redis."""
        return self._edition_of(entry, names).table

    def _edition_of(self, entry: IndexedRun, names: Sequence[str]) -> Edition:
        folder = self.index.directory(entry)
        if self.tables.names(folder) or (look := self.look(entry)) is None:
            return self.tables.edition(folder, names)
        return Edition(0, table_of_snapshots([snapshot for _, snapshot in look.snapshots]))

    def columns_of(self, entry: IndexedRun) -> list[str]:
        """Return the names of the numbers that a run records."""
        try:
            return self.tables.names(self.index.directory(entry)) or [*self.table_of(entry, ())]
        except (ConfigError, OSError):  # told where curves are asked for
            return []

    def settings_of(self, entry: IndexedRun) -> Settings:
        """Return the configuration of a run, secrets masked; empty if it cannot be read."""
        try:
            return self.index.configuration(entry)
        except ConfigError:  # the run then belongs to no group, and its page shows the error
            return {}


def _timed(snapshot: Snapshot) -> Snapshot:
    return {**snapshot, "training_s": snapshot["wall_s"]} if "wall_s" in snapshot else snapshot


def live_part(look: Reading) -> Json:
    """Return the live state of a live run, without its numbers."""
    return {
        "at": look.at,
        "problem": look.problem,
        "control": {key: value for key, value in asdict(look.control).items() if key != "stacks"},
        "supervisor": None if look.supervisor is None else asdict(look.supervisor),
        "roles": role_rows(look),
        "hosts": host_loads(look.roles),
        "shares": time_shares(look.roles),
        "ledger": _unrolls(look.counts),
        "redis": dict(look.redis),
    }


def _unrolls(counts: LedgerCounts) -> Json:
    return {**asdict(counts), "imbalance": counts.imbalance}


def metric_rows() -> list[Json]:
    """Return the table of metrics: name, group, unit, meaning."""
    return [
        {"name": metric.name, "group": metric.group, "unit": metric.unit, "meaning": metric.meaning}
        for metric in METRICS
        if metric.group and metric.name != "bottleneck"
    ]


def own_metric_rows(columns: Sequence[str]) -> list[Json]:
    """Return rows, as those of `metric_rows`, for columns that only this run has, and for what is computed of them."""
    return [
        {"name": name, "group": tag_of(name).partition("/")[0], "unit": "", "meaning": meaning_of(name)}
        for name in columns
        if name not in MEANINGS
    ] + [lines.DERIVED_METRICS[name] for name, parts in lines.DERIVED.items() if {*parts} <= {*columns}]


def words(value: Any) -> str:
    """Return a value of a configuration in one line."""
    return value if isinstance(value, str) else shown(value, 200)


def numbers(values: Iterable[float]) -> list[float | None]:
    """Round to seven digits; NaN and infinity become None."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]


def coordinates(line: Curve) -> Json:
    """Return a line as {x, y}."""
    return {"x": [float(x) for x in line.x], "y": numbers(line.y)}


def encoded(data: Any) -> str:
    """Return ASCII JSON; numbers that JSON lacks become null."""
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":"))
    except ValueError:  # rare: the data is searched only then
        return json.dumps(_known(data), separators=(",", ":"))


class Answer(JSONResponse):
    """A JSON response, see `encoded`."""

    def render(self, content: Any) -> bytes:
        return encoded(content).encode()


def _known(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _known(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_known(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return None if isinstance(data, int) and data.bit_length() > 1024 else data
