"""logs/events.log: every event of a run's launches, one line each."""

import time

from distrl.observers.observer import ObservedRun, Observer
from distrl.runs.summary import Summary


class EventLog(Observer):
    """Appends every event with its local time."""

    writes = "logs/events.log"

    def __init__(self, run: ObservedRun) -> None:
        self._file = (run.run_dir / "logs" / "events.log").open("a", encoding="utf-8")

    def event(self, text: str) -> None:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", file=self._file, flush=True)

    def end(self, summary: Summary | None) -> None:
        self._file.close()
