"""Hands the rows of a run to its trackers. None of them can slow the training down, or end it.

Each tracker has a process, so that its imports, its network and its crashes are not the training's, and a thread that
waits for this process.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from distrl.apps.config.configuration import Configuration
from distrl.apps.config.trackers import TrackersConfig
from distrl.apps.trackers.process import first_message
from distrl.apps.trackers.tracker import Ending, TrackedRun
from distrl.child import Child, ending, with_detail
from distrl.config import RunConfig
from distrl.config.secrets import masked
from distrl.errors import ConfigError, require
from distrl.metrics.snapshot import Snapshot, columns_of
from distrl.observers.observer import ObservedRun, Observer
from distrl.process_group import end_group, has_ended
from distrl.runs.summary import Summary
from distrl.user_classes import search_path

MOST_ROWS = 1000
"""Rows that may wait for one tracker: a quarter of an hour of them."""
LOG = "trackers.log"
_PATIENCE_S = 2.0
"""Time at the end after which a tracker that takes long is reported."""
_TRY_OUT_S = 60.0


def require_trackers(config: TrackersConfig) -> None:
    """Check that the trackers can begin.

    Raises:
        MissingExtraError: A library is not installed.
        ConfigError: As `process.try_out`, in one line.
    """
    if config.wandb is not None:
        require("wandb", "Weights & Biases", "wandb")
    if config.mlflow is not None:
        require("mlflow", "MLflow", "mlflow")
    if config.wandb is None and not config.own:
        return
    with Child("distrl.apps.trackers.process:try_out", _options(config), timeout_s=_TRY_OUT_S) as child:
        code = child.wait(_TRY_OUT_S)
        messages, output = child.messages(), child.output()
    if messages:
        raise with_detail(ConfigError(messages[0]["error"]), messages[0]["detail"])
    if code != 0:
        ended = ending(code, "when they were tried out", _TRY_OUT_S)
        raise with_detail(ConfigError(f"the process of trackers {ended}"), output)


def _options(config: TrackersConfig) -> dict[str, dict[str, Any]]:
    """Return the trackers by their names, with their options."""
    named = {"wandb": config.wandb, "mlflow": config.mlflow}
    found = {name: section.model_dump(mode="json") for name, section in named.items() if section is not None}
    return found | config.own


class Trackers(Observer):
    """Passes the rows of metrics.csv to the trackers of the configuration."""

    @classmethod
    def check(cls, config: RunConfig) -> None:
        """Check that the trackers can begin; see `require_trackers`."""
        require_trackers(Configuration.of(config).trackers)

    def __init__(self, run: ObservedRun) -> None:
        tree = run.config.model_dump(mode="json")
        shown = {name: masked(name, value) for name, value in tree.items()}
        tracked = TrackedRun(run.run_id, run.run_dir.resolve(), shown, run.resumed)
        self._tracking = Tracking(Configuration.of(run.config).trackers, tracked, run.report)

    def snapshot(self, snapshot: Snapshot) -> None:
        self._tracking.record(snapshot)

    def end(self, summary: Summary | None) -> Mapping[str, str] | None:
        """Let the trackers finish; those of a refused launch have not begun.

        Returns:
            Tracker -> what it lacks, of those that lack something.
        """
        if summary is None or not summary.accepted:
            return None
        return self._tracking.finish(Ending(summary.exit_code, summary.stop_reason, summary.error))


class Tracking:
    """The trackers of a launch. They begin with the first row: before it, the launch may be refused.

    Args:
        report: Takes lines for the user, also from other threads.
    """

    def __init__(self, config: TrackersConfig, run: TrackedRun, report: Callable[[str], None]) -> None:
        self._give_up_s = config.give_up_s
        self._report = report
        log = run.run_dir / "logs" / LOG
        self._feeds: list[_Feed] = []
        self._to_begin = [
            partial(_Feed, name, first_message(name, options, run), log, report)
            for name, options in _options(config).items()
        ]
        self._row: dict[str, float] = {}  # not sent yet: a row of the same updates takes its place, as in metrics.csv
        self._sent = -1.0  # updates of the newest row that was sent

    def record(self, snapshot: Snapshot) -> None:
        """Take a row of metrics.csv. Rows of updates that a learner repeats after a crash are left out."""
        self._begin()
        values = {name: snapshot[name] for name in columns_of(snapshot)}
        row = {name: value for name, value in values.items() if isinstance(value, int | float)}
        row = {"updates": 0, "env_steps": 0, **row}
        if row["updates"] > self._row.get("updates", -1.0):
            self._send()
        if row["updates"] > self._sent:
            self._row = row

    def finish(self, ending: Ending) -> dict[str, str]:
        """Send what is left, and end every tracker; Ctrl-C ends the wait for them.

        Returns:
            Tracker -> what it lacks, of those that lack something.
        """
        self._begin()
        self._send()
        began = time.monotonic()
        for feed in self._feeds:
            feed.put({"ending": asdict(ending)})
        try:
            if waiting := self._wait(began + min(_PATIENCE_S, self._give_up_s)):
                self._report(f"waiting up to {self._give_up_s:g} s for {' and '.join(waiting)} (trackers.give_up_s)")
                self._wait(began + self._give_up_s)
        except KeyboardInterrupt:
            pass
        lacks = {feed.name: feed.close() for feed in self._feeds}
        return {name: text for name, text in lacks.items() if text}

    def _begin(self) -> None:
        self._feeds += [begin() for begin in self._to_begin]
        self._to_begin = []

    def _send(self) -> None:
        if self._row:
            self._sent = self._row["updates"]
            for feed in self._feeds:
                feed.put({"row": self._row, "step": int(self._row["env_steps"])})
            self._row = {}

    def _wait(self, until: float) -> list[str]:
        """Wait for all, and return the names of those that have not ended."""
        return [feed.name for feed in self._feeds if not feed.has_ended(until)]


class _FailedError(Exception):
    """A tracker has raised, or its process has ended."""


class _Feed:
    """One tracker: the messages that wait for it, its process, and the thread between them."""

    def __init__(self, name: str, first: Mapping[str, Any], log: Path, report: Callable[[str], None]) -> None:
        self.name = name
        self._log, self._report = log, report
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
        self._dropped = 0
        self._error: str | None = None
        self._is_complete = self._is_closed = False
        self._messages.put(first)
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def put(self, message: Mapping[str, Any]) -> None:
        """Add a message; a row is dropped if too many wait already."""
        if self._error is not None:
            return
        if "row" in message and self._messages.qsize() >= MOST_ROWS:
            self._dropped += 1
        else:
            self._messages.put(message)

    def has_ended(self, until: float) -> bool:
        """Wait until the tracker's process has ended, at most until this monotonic time."""
        self._thread.join(max(0.0, until - time.monotonic()))
        return not self._thread.is_alive()

    def close(self) -> str:
        """Kill the process and what it has started if it runs, and return what the tracker lacks; empty: nothing."""
        self._is_closed = True
        if self._process is not None and self._process.returncode is None:  # the thread reaps it
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._thread.join(_PATIENCE_S)
        if self._error is not None:
            return self._error
        late = "" if self._is_complete else "has not finished in time"
        rows = self._dropped + (0 if self._is_complete else max(0, self._messages.qsize() - 1))  # the last one ends it
        missing = f"{rows:,} {'row is' if rows == 1 else 'rows are'} missing" if rows else ""
        return ", ".join(filter(None, (late, missing)))

    def _work(self) -> None:
        try:
            with self._start() as self._process, self._answers:
                try:
                    while not self._is_complete:
                        message = self._messages.get()
                        self._send(self._process, message)
                        self._is_complete = "ending" in message
                except _FailedError as error:  # before the process has ended, which may take long
                    self._fail(error)
                finally:
                    has_ended(self._process, wait=True)
                    end_group(self._process)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._error is None and not self._is_closed:
            self._error = str(error)
            self._report(f"tracker {self.name} is not called again: {error} (logs/{LOG})")

    def _start(self) -> "subprocess.Popen[bytes]":
        # -P: a folder wandb in the working directory must not stand for the library. A process group of its own,
        # which Ctrl-C does not reach.
        # Answers have a pipe of their own: others print to standard output, from the interpreter's start on.
        ours, theirs = os.pipe()
        self._answers = os.fdopen(ours, "rb")
        try:
            with self._log.open("ab") as log:
                return subprocess.Popen(
                    [sys.executable, "-P", "-m", "distrl.apps.trackers.process", str(theirs)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "PYTHONPATH": search_path(), "PYTHONUNBUFFERED": "1"},
                    process_group=0,
                    pass_fds=[theirs],
                )
        except BaseException:
            self._answers.close()
            raise
        finally:
            os.close(theirs)

    def _send(self, process: "subprocess.Popen[bytes]", message: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # the answer says why
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
        answer = self._answers.readline()
        if not answer:
            has_ended(process, wait=True)
            end_group(process)
            raise _FailedError(ending(process.returncode, "while the run trained", 0.0))
        result = json.loads(answer)
        if "error" in result:
            raise _FailedError(result["error"])
        if "note" in result:
            self._report(f"tracker {self.name}: {result['note']}")
