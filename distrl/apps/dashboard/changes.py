"""GET /api/changes: pages poll it about once a second for the changes since their last poll.

A poll returns at once: a browser has six connections to a server, shared by all tabs, and none of them is kept busy.
Nothing is queued: a page that polls late gets only the newest state.
"""

import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Any

from distrl.apps.dashboard import details, files
from distrl.apps.dashboard.index import IndexedRun
from distrl.apps.dashboard.list_view import ListView
from distrl.apps.dashboard.payloads import Json, Runs, live_part
from distrl.apps.dashboard.servers import servers
from distrl.errors import ConfigError, one_line
from distrl.runs.reading import Reading

MOST_WATCHES = 256
"""Most pages whose last answer is remembered; another page gets the whole state again."""
MOST_ROWS = 20_000
"""Most rows of lists in those answers together."""

Message = tuple[str, Json]
"""Name of a changed part, and its data."""


class _Watch(ABC):
    """The last answer to one page, which shows a run or a view of the list."""

    def __init__(self, runs: Runs, shown: str | ListView) -> None:
        self._runs = runs
        self.shown = shown
        self.answers = 0
        self.lock = threading.Lock()
        self._last: dict[str, Any] | None = None

    @property
    def rows(self) -> int:
        """Rows of a list in the last answer."""
        return len((self._last or {}).get("rows", ()))

    @abstractmethod
    def changes(self) -> list[Message]: ...


class RunWatch(_Watch):
    """Changes of one run since the last call."""

    def __init__(self, runs: Runs, run_id: str) -> None:
        super().__init__(runs, run_id)
        self._run_id = run_id

    def changes(self) -> list[Message]:
        """Messages: run (state), head, snapshot, live (roles, control, ledger, Redis), serving, events, gone."""
        try:
            entry = self._runs.index.entry(self._run_id)
        except ConfigError as error:
            return self._news("gone", {"error": str(error)})
        look = self._runs.look(entry)
        found: list[Message] = self._news("run", self._state(entry, look))
        folder = self._runs.index.directory(entry)
        found += self._news("serving", {"serving": servers(folder)})
        events = files.events(folder)
        if look is not None:
            snapshot = self._runs.latest(entry, look)
            found += self._news("head", {"head": details.head(self._runs, entry, look, snapshot, events)})
            found += self._news("snapshot", {"snapshot": snapshot})
            found += self._news("live", live_part(look), look.at)
        return found + self._news("events", {"events": [event._asdict() for event in events]}, events)

    def _state(self, entry: IndexedRun, look: Reading | None) -> Json:
        words = self._runs.row_of(entry, look)["words"]
        return {"state": entry.state, "started": entry.started, "words": words}

    def _news(self, name: str, data: Json, sign: Any = None) -> list[Message]:
        """Return the message unless it equals the last one, compared by `sign` if that is given."""
        new = data if sign is None else sign
        told = self._last = self._last or {}
        if told.get(name) == new:
            return []
        told[name] = new
        return [(name, data)]


class ListWatch(_Watch):
    """Changes of one page of the list since the last call."""

    def __init__(self, runs: Runs, view: ListView) -> None:
        super().__init__(runs, view)
        self._view = view
        self._problem: str | None = None

    def changes(self) -> list[Message]:
        """Messages by name: query (the problem of the view, or None), rows (the changed ones), list (the page)."""
        problem = None
        try:
            found = self._runs.page(self._view)
        except ConfigError as error:
            problem, found = one_line(error), None
        before, self._last = self._last, self._last or {}
        news: list[Message] = []
        if before is None or problem != self._problem:
            news.append(("query", {"problem": problem}))
        self._problem = problem
        if found is None:
            return news
        sparks = self._runs.sparks_of([row["id"] for row in found["rows"]])
        rows = {row["id"]: {**row, "spark": sparks.get(row["id"])} for row in found.pop("rows")}
        known = (before or {}).get("rows", {})
        changed = [row for name, row in rows.items() if known.get(name) != row]
        if changed:
            news.append(("rows", {"changed": changed}))
        if (before or {}).get("list") != found:
            news.append(("list", found))
        self._last = {"rows": rows, "list": found}
        return news


class Watches:
    """Remembers the last answer to each page. Safe for several threads."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._kept: OrderedDict[str, _Watch] = OrderedDict()
        self._lock = threading.Lock()

    def changes(self, shown: str | ListView, since: str) -> Json:
        """Return the changes of a run, or of a list, since the answer marked `since`; all if it was not the last."""
        name, _, answers = since.partition(".")
        with self._lock:
            kept = self._kept.get(name)
            if kept is not None:
                self._kept.move_to_end(name)
        if kept is not None and kept.shown == shown:
            with kept.lock:
                if str(kept.answers) == answers:  # else the page has not received the last answer
                    return self._answer(name, kept, fresh=False)
        kept = self._watch(shown)
        name = secrets.token_hex(8)
        with kept.lock:
            answer = self._answer(name, kept, fresh=True)
        with self._lock:
            self._kept[name] = kept
            rows = sum(one.rows for one in self._kept.values())
            while len(self._kept) > MOST_WATCHES or (rows > MOST_ROWS and len(self._kept) > 1):
                rows -= self._kept.popitem(last=False)[1].rows
        return answer

    def _watch(self, shown: str | ListView) -> _Watch:
        if isinstance(shown, ListView):
            return ListWatch(self._runs, shown)
        self._runs.index.entry(shown)  # raises if there is none
        return RunWatch(self._runs, shown)

    def _answer(self, name: str, kept: _Watch, *, fresh: bool) -> Json:
        kept.answers += 1  # first, so that after an error the mark differs and the changes are sent again
        changes = kept.changes()
        return {"mark": f"{name}.{kept.answers}", "fresh": fresh, "at": time.time(), "changes": changes}
