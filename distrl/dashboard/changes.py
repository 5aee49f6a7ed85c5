"""GET /api/changes: pages poll it about once a second for the changes since their last poll.

A poll returns at once: a browser has six connections to a server, shared by all tabs, and none of them is kept busy.
Nothing is queued: a page that polls late gets only the newest state.
"""

import secrets
import threading
import time
from collections import OrderedDict
from typing import Any

from distrl.dashboard import files
from distrl.dashboard.payloads import Json, Runs, live_part, verdict_of
from distrl.errors import ConfigError

MOST_WATCHES = 256
"""Most pages whose last answer is remembered; another page gets the whole state again."""

Message = tuple[str, Json]
"""Name of a changed part, and its data."""


class RunWatch:
    """Changes of one run since the last call."""

    def __init__(self, runs: Runs, run_id: str) -> None:
        self._runs = runs
        self._run_id = run_id
        self._told: dict[str, Any] = {}

    def changes(self) -> list[Message]:
        """Messages by name: run (state and numbers), snapshot, live (roles, control, ledger, Redis), events, gone."""
        try:
            entry = self._runs.index.entry(self._run_id)
        except ConfigError as error:
            return self._news("gone", {"error": str(error)})
        look = self._runs.look(entry)
        found: list[Message] = self._news("run", {"state": entry.state, "started": entry.started})
        if look is not None:
            snapshot = self._runs.latest(entry, look)
            found += self._news("snapshot", {"snapshot": snapshot, "verdict": verdict_of(snapshot, look)})
            found += self._news("live", live_part(look), look.at)
        events = files.events(self._runs.index.directory(entry))
        return found + self._news("events", {"events": [event._asdict() for event in events]}, events)

    def _news(self, name: str, data: Json, sign: Any = None) -> list[Message]:
        """Return the message unless it equals the last one, compared by `sign` if that is given."""
        new = data if sign is None else sign
        if self._told.get(name) == new:
            return []
        self._told[name] = new
        return [(name, data)]


class ListWatch:
    """Changes in the list of runs since the last call."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._told: dict[str, Json] | None = None

    def changes(self) -> list[Message]:
        """Return one message with the changed rows and the ids that are gone; at first with all rows."""
        rows = {row["id"]: row for row in self._runs.listed()}
        before, self._told = self._told, rows
        if before is None:
            return [("runs", {"all": True, "changed": [*rows.values()], "gone": []})]
        changed = [row for name, row in rows.items() if before.get(name) is not row and before.get(name) != row]
        gone = sorted(before.keys() - rows.keys())
        return [("runs", {"changed": changed, "gone": gone})] if changed or gone else []


class _Kept:
    def __init__(self, about: str | None, watch: RunWatch | ListWatch) -> None:
        self.about, self.watch = about, watch
        self.answers = 0
        self.lock = threading.Lock()


class Watches:
    """Remembers the last answer to each page. Safe for several threads."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def changes(self, run_id: str | None, since: str) -> Json:
        """Return the changes of a run, or of the list, since an answer.

        Args:
            since: The `mark` of that answer. If the page did not get the last one, it gets the whole state.
        """
        name, _, answers = since.partition(".")
        with self._lock:
            kept = self._kept.get(name)
            if kept is not None:
                self._kept.move_to_end(name)
        if kept is not None and kept.about == run_id:
            with kept.lock:
                if str(kept.answers) == answers:  # else the page has not received the last answer
                    return self._answer(name, kept, fresh=False)
        name, kept = secrets.token_hex(8), _Kept(run_id, self._watch(run_id))
        with self._lock:
            self._kept[name] = kept
            while len(self._kept) > MOST_WATCHES:
                self._kept.popitem(last=False)
        with kept.lock:
            return self._answer(name, kept, fresh=True)

    def _watch(self, run_id: str | None) -> RunWatch | ListWatch:
        if run_id is None:
            return ListWatch(self._runs)
        return RunWatch(self._runs, self._runs.index.entry(run_id).id)

    def _answer(self, name: str, kept: _Kept, *, fresh: bool) -> Json:
        kept.answers += 1  # first, so that after an error the mark differs and the changes are sent again
        changes = kept.watch.changes()
        return {"mark": f"{name}.{kept.answers}", "fresh": fresh, "at": time.time(), "changes": changes}
