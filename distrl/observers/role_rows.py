"""roles.csv: at intervals one row for each role, from its heartbeat."""

import csv
import time
from datetime import datetime
from pathlib import Path

from distrl.files import open_regular
from distrl.observers.fleet_state import FleetState
from distrl.observers.observer import ObservedRun, Observer
from distrl.runs.last_row import LONGEST_LINE

COLUMNS = (
    *("role", "id", "incarnation", "host", "state", "env_steps", "env_steps_per_s", "weights_version"),
    *("rss_mb", "cpu_share", "blocked_share"),
)
"""Fields of `RoleStatus`; before them comes the time, local with its distance from UTC."""
MOST_BYTES = 50_000_000
"""Size from which the file becomes roles.1.csv, which is replaced, and a new one is begun."""


class RoleRows(Observer):
    """Appends rows every `launch.role_rows_s` seconds to the file, which a resumed run continues.

    The first rows make the file. A row that could not be written whole is removed.
    """

    writes = "roles.csv"

    def __init__(self, run: ObservedRun) -> None:
        self._path, self._every_s = run.run_dir / "roles.csv", run.config.launch.role_rows_s
        self._due_at = 0.0
        self._is_whole = False  # as far as known: the last write was complete

    def roles(self, fleet: FleetState) -> None:
        """Append a row for each role if it is time to, and flush them; OSError if they cannot be written."""
        now = time.monotonic()
        if self._every_s is None or not fleet.roles or now < self._due_at:
            return
        self._due_at = now + self._every_s
        if not self._is_whole and self._path.exists():
            _remove_torn_row(self._path)
        if self._path.exists() and (not self._is_ours() or self._path.stat().st_size >= MOST_BYTES):
            self._path.replace(self._path.with_name("roles.1.csv"))
        self._is_whole = False
        at = datetime.now().astimezone().isoformat(timespec="seconds")
        with self._path.open("a", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            if file.tell() == 0:
                rows.writerow(["time", *COLUMNS])
            rows.writerows([at, *(getattr(role, name) for name in COLUMNS)] for role in fleet.roles)
        self._is_whole = True

    def _is_ours(self) -> bool:
        """Return whether the file has these columns, or nothing yet; one of another version may have others."""
        with open_regular(self._path) as file:
            return file.readline(LONGEST_LINE) in (b"", (",".join(["time", *COLUMNS]) + "\n").encode())


def _remove_torn_row(path: Path) -> None:
    with path.open("r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
