"""GET /api/stream: server-sent events. Once a second what has changed since the last time, and nothing is queued: who
reads slowly gets fewer, newer ones."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from distrl.dashboard import files
from distrl.dashboard.answers import encoded
from distrl.dashboard.payloads import Json, Runs, live_part, verdict_of
from distrl.errors import ConfigError

CADENCE_S = 1.0
HEARTBEAT_S = 10.0
MOST_STREAMS = 64

Message = tuple[str, Json]
"""Name of the event, and its data."""


class RunWatch:
    """What has changed of one run since it was last asked."""

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
        """The message unless it is the one of the last time, by `sign` if that is shorter."""
        new = data if sign is None else sign
        if self._told.get(name) == new:
            return []
        self._told[name] = new
        return [(name, data)]


class ListWatch:
    """What has changed in the list of runs: the rows that are new or others."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._told: dict[str, Json] | None = None

    def changes(self) -> list[Message]:
        """One message: rows that changed, and ids that went. At first nothing: the page has asked for the list."""
        rows = {row["id"]: row for row in self._runs.listed()}
        before, self._told = self._told, rows
        if before is None:
            return []
        changed = [row for name, row in rows.items() if before.get(name) is not row and before.get(name) != row]
        gone = sorted(before.keys() - rows.keys())
        return [("runs", {"changed": changed, "gone": gone})] if changed or gone else []


class Streams:
    """The open streams.

    Args:
        stopping: Whether the server is about to end; streams would keep it.
    """

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping
        self._open = 0

    def answer(self, request: Request) -> Response:
        """A stream of the run that `run` names, or of the list."""
        if self._open >= MOST_STREAMS:
            raise ConfigError(f"{MOST_STREAMS} pages are open already; close some")
        runs: Runs = request.app.state.runs
        run_id = request.query_params.get("run")
        watch = ListWatch(runs) if run_id is None else RunWatch(runs, runs.index.entry(run_id).id)
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._messages(watch), media_type="text/event-stream", headers=headers)

    async def _messages(self, watch: RunWatch | ListWatch) -> AsyncIterator[str]:
        if self._open >= MOST_STREAMS:  # of several that were answered before the first of them began
            return
        self._open += 1
        spoke = time.monotonic()
        try:
            yield "retry: 2000\n\n"
            while not self._stopping():
                began = time.monotonic()
                for name, data in await run_in_threadpool(watch.changes):
                    spoke = began
                    yield f"event: {name}\ndata: {encoded(data)}\n\n"
                if began - spoke >= HEARTBEAT_S:
                    spoke = began
                    yield ": still here\n\n"
                await asyncio.sleep(max(CADENCE_S - (time.monotonic() - began), 0.1))
        finally:
            self._open -= 1
