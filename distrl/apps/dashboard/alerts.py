"""Alerts while the dashboard runs: one look at every running run each `LOOK_S`, whether a page is open or not."""

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from distrl.apps.dashboard import files
from distrl.apps.dashboard.alert_rules import Alerts, RunReading
from distrl.apps.dashboard.alert_settings import AlertSettings
from distrl.apps.dashboard.index import IndexedRun
from distrl.apps.dashboard.live_runs import ODD
from distrl.apps.dashboard.payloads import Json, Runs
from distrl.apps.dashboard.webhook import Webhook
from distrl.config.secrets import masked_text
from distrl.errors import one_line
from distrl.metrics.snapshot import amount
from distrl.runs.reading import Reading

LOOK_S = 5.0
WAIT_S = 2.0
"""Time-out of a look for all Redis servers together."""


class AlertWatch:
    """The alerts of a dashboard. Safe for several threads.

    Args:
        settings: None: no alerts.
    """

    def __init__(self, runs: Runs, settings: AlertSettings | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs = runs
        self._clock = clock
        self._lock = threading.Lock()
        self._alerts = None if settings is None else Alerts(settings)
        self._webhook = None if settings is None or settings.webhook is None else Webhook(settings)
        self._begin = secrets.token_hex(4)
        self._changes = 0

    @property
    def is_on(self) -> bool:
        return self._alerts is not None

    def look(self) -> None:
        """Look at all runs; called every `LOOK_S` by one thread at a time."""
        if self._alerts is None:
            return
        entries = self._runs.index.entries()
        looks = self._runs.looks(entries, WAIT_S)
        seen = [self._seen(entry, looks.get(entry.id)) for entry in entries]
        with self._lock:
            changes = self._alerts.look(seen, self._clock(), time.time())
            self._changes += len(changes)
        for change in changes:
            if self._webhook is not None:
                self._webhook.send(change)

    def answer(self, since: str) -> Json:
        """Return the alerts, the newest first; `alerts` is None if they are those of the answer marked `since`."""
        with self._lock:
            mark = f"{self._begin}.{self._changes}"
            found = [] if self._alerts is None else self._alerts.newest_first
        rows = [asdict(alert) | {"id": f"{self._begin}-{alert.id}"} for alert in found]
        return {"mark": mark, "on": self.is_on, "at": time.time(), "alerts": None if mark == since else rows}

    def close(self) -> None:
        """End the webhook's thread."""
        if self._webhook is not None:
            self._webhook.close()

    def _seen(self, entry: IndexedRun, look: Reading | None) -> RunReading:
        known: dict[str, Any] = {"id": entry.id, "state": entry.state, "started": entry.started}
        known["name"] = _shown(entry.name)  # of a directory: also line breaks and escape sequences
        known["problem"] = None if entry.problem is None else _shown(entry.problem)
        if entry.state != "running":
            known["ended"] = entry.started + amount(entry.numbers, "wall_s")
            return RunReading(**known, snapshot=_texts_shown(entry.numbers))
        record = self._runs.index.running(entry)
        if look is None or record is None or record.redis_url is None:  # one process, of which files alone tell
            return RunReading(**known | {"problem": None}, snapshot=_texts_shown(self._runs.latest(entry, None)))
        try:
            return RunReading(**known | _live(look))
        except ODD as error:
            return RunReading(**known | {"problem": f"its Redis holds something odd ({error!r})"})


def _live(look: Reading) -> dict[str, Any]:
    restarts = max(int(amount(look.latest, "restarts")), sum(max(role.incarnation - 1, 0) for role in look.roles))
    return {
        "snapshot": _texts_shown(look.latest),
        "paused": look.control.paused or look.stops or look.pretrains,
        "ages_s": dict(zip((role.name for role in look.roles), look.ages_s, strict=True)),
        "restarts": restarts,
        "problem": None if look.problem is None else _shown(look.problem),
    }


def _texts_shown(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _shown(value) if isinstance(value, str) else value for name, value in snapshot.items()}


def _shown(text: str) -> str:
    return files.shown(masked_text(one_line(text)))
