"""How a job is doing, in words and as data, and its log from before its start to after its end."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from distrl.apps.jobs import run_logs
from distrl.apps.jobs.record import JobRecord
from distrl.apps.jobs.run_files import run_of
from distrl.apps.jobs.stored_jobs import stored_log
from distrl.apps.jobs.target import JobState, LogLine, NoAnswerError, Report, State, Target
from distrl.apps.jobs.targets import open_target
from distrl.errors import ConfigError, DistrlError, printable

WAIT_POLL_S = 1.0
REASON_EVERY_S = 20.0
"""Least time between two questions for parts of a followed job that wait."""
SILENT_S = 20.0
"""Longest wait for the next of many answers; a target asks its address a few times, each for 10 s at most."""
_WORDS: Mapping[State, str] = {
    "waiting": "waits",
    "running": "runs",
    "stopping": "is ending",
    "solved": "has ended",
    "ended": "has ended",
    "stopped": "was stopped",
    "interrupted": "was interrupted",
    "failed": "has failed",
    "gone": "is gone",
    "unknown": "cannot be asked for",
    "damaged": "has a damaged record",
}


def state_of(record: JobRecord) -> JobState:
    """Return the state of a job; "unknown" with the reason where its target cannot be asked and no summary is left."""
    return _by_summary(record, _asked(record))


def states_of(records: Sequence[JobRecord]) -> list[JobState]:
    """Return `state_of` for many jobs, in their order: all addresses are asked at once.

    An address that does not answer is asked once. The states of jobs are unknown for which no answer has come for
    `SILENT_S`.
    """
    places: dict[tuple[str, str | None], list[int]] = {}
    for number, record in enumerate(records):
        places.setdefault((record.target, record.address), []).append(number)
    answers: SimpleQueue[tuple[int, JobState | Exception]] = SimpleQueue()
    for numbers in places.values():
        asked = [(number, records[number]) for number in numbers]
        threading.Thread(target=_ask, args=(asked, answers), name="states of jobs", daemon=True).start()
    found: dict[int, JobState] = {}
    with suppress(Empty):
        while len(found) < len(records):
            number, answer = answers.get(timeout=SILENT_S)
            if isinstance(answer, Exception):
                raise answer
            found[number] = answer
    late = JobState("unknown", f"its target has not answered for {SILENT_S:g} s", silent=True)
    return [_by_summary(record, found.get(number, late)) for number, record in enumerate(records)]


def _ask(asked: Sequence[tuple[int, JobRecord]], answers: "SimpleQueue[tuple[int, JobState | Exception]]") -> None:
    """Answer for the jobs of one address."""
    silent = None
    for number, record in asked:
        try:
            state = silent or _asked(record)
        except Exception as error:  # raised by the thread that waits
            answers.put((number, error))
            return
        silent = state if state.silent else None
        answers.put((number, state))


def _asked(record: JobRecord) -> JobState:
    state = JobState("gone")
    if record.complete or record.handles:
        try:
            state = open_target(record.target).state(record)
        except DistrlError as error:
            return JobState("unknown", str(error), silent=isinstance(error, NoAnswerError))
    if not record.complete and state.state in ("waiting", "gone"):
        reason = "; ".join(filter(None, (record.unfinished, state.reason)))
        return replace(state, state="waiting" if record.under_way else state.state, reason=reason)
    return state


def _by_summary(record: JobRecord, state: JobState) -> JobState:
    """Return how the job has ended, if its target cannot be asked and its summary is on this host."""
    if state.state != "unknown":
        return state
    try:
        run = run_of(record)
    except ConfigError:
        return state
    if run is None or run.summary is None or run.record.run_id != record.run_id:
        return state
    return JobState.of(run.summary)


def job_words(record: JobRecord, state: JobState) -> str:
    """Return one line about a job."""
    reason = f": {' '.join(state.reason.split())}" if state.reason else ""
    return printable(f"{record.run_id} on {record.target} {_WORDS[state.state]}{reason}")


def facts_of(record: JobRecord, state: JobState) -> dict[str, Any]:
    """Return record and state of a job as plain data."""
    told = {"state": state.state, "reason": state.reason, "exit_code": state.exit_code}
    return {**record.model_dump(mode="json", exclude={"schema_version"}), **told}


def watch(record: JobRecord, run_dir: Path, *, follow: bool, report: Report) -> Iterator[LogLine]:
    """Yield the lines of a job's log.

    Args:
        run_dir: The run's directory on this host.
        follow: Go on until the job has ended.
        report: Takes a line that says why the job or parts of it wait, each time that this changes, or why its target
            is not asked.

    Raises:
        ConfigError: Nothing is left of its log; or the target cannot be asked, which only `follow` needs.
    """
    try:
        target = open_target(record.target)
        _await_start(target, record, follow=follow, report=report)
        found = target.log(record, follow=follow)
    except DistrlError as error:
        if follow or (record.store is None and not (run_dir / "logs").is_dir()):
            raise
        report(job_words(record, JobState("unknown", str(error))))
        found = None
    if found is None:
        yield from _left(record, run_dir, report)
    else:
        yield from _with_reasons(found, target, record, report) if follow else found


def _with_reasons(lines: Iterator[LogLine], target: Target, record: JobRecord, report: Report) -> Iterator[LogLine]:
    """Yield lines, and report why parts of the job wait while it runs, each time that this changes."""
    told, ask_at = "", 0.0
    for line in lines:
        yield line
        if time.monotonic() < ask_at:
            continue
        ask_at = time.monotonic() + REASON_EVERY_S
        with suppress(DistrlError):  # the log goes on while the target does not answer
            state = target.state(record)
            if state.state == "running" and state.reason not in ("", told):
                report(job_words(record, state))
            told = state.reason


def _await_start(target: Target, record: JobRecord, *, follow: bool, report: Report) -> None:
    told = None
    while (state := target.state(record)).state == "waiting":
        if state != told:
            report(job_words(record, state))
        told = state
        if not follow:
            return
        time.sleep(WAIT_POLL_S)


def _left(record: JobRecord, run_dir: Path, report: Report) -> Iterator[LogLine]:
    """Return what this host, or else the data store, has of the log of a job that its target has forgotten."""
    if (run_dir / "logs").is_dir():
        return run_logs.lines(run_dir / "logs")
    if record.store is not None:
        report(f"the log is the data store's, {record.store}/{record.run_id}")
        return stored_log(f"{record.store}/{record.run_id}")
    raise ConfigError(f"no log of {record.run_id} is left: {record.run_dir} is gone")
