"""A training in this process: deterministic mode. `deterministic.py` imports the framework, and is imported late."""

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.config.launch import LogLevel
from distrl.errors import DistrlError, ExitError
from distrl.interrupt import Interrupt
from distrl.launch.monitor import Monitor
from distrl.launch.outcome import Outcome
from distrl.memory_backend.backend import connect
from distrl.memory_backend.records import RoleStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.metrics.snapshot import Snapshot
from distrl.roles.description import RunDescription
from distrl.roles.framework import select_framework
from distrl.roles.join import memory_mb
from distrl.roles.log_lines import RoleLines
from distrl.roles.plan import Role, replayed_updates_per_unroll, unroll_steps
from distrl.runs.run_directory import write_run_json

if TYPE_CHECKING:
    from distrl.launch.deterministic import Acts

Here = Callable[[RunDescription, Monitor, Interrupt], Outcome]
"""Trains in this process, as `train_here` does."""
SAVE_EVERY_UNROLLS = 100
"""Unrolls between two checkpoints, at least. A checkpoint abandons open episodes, so there must not be many."""
SAVE_EVERY_STEPS = 25_000
"""Environment steps between two checkpoints, at least: many episodes, also where an unroll has one step."""


def train_here(
    description: RunDescription, monitor: Monitor, interrupt: Interrupt, acts: "Acts | None" = None
) -> Outcome:
    """Train in this process. Standard error goes to the learner's log, as that of a learner process does.

    Args:
        acts: None: an actor.
    """
    run_dir = Path(description.run_dir)
    write_run_json(run_dir, description.run_id, description.launch, None)
    run_id, caps = description.run_id, QueueCaps.of(description.config)
    backend = connect("local:", run_id, caps, launch=description.launch, name="run", give_up_s=0.0)
    backend.create(description.model_dump_json())

    asked: list[SystemExit] = []

    def report(snapshot: Snapshot) -> None:
        backend.registry.add_snapshot(snapshot)
        now, peak = memory_mb()
        here = socket.gethostname(), os.getpid()
        try:
            monitor.update(backend, [RoleStatus("learner", 0, 1, *here, "training", rss_mb=now, peak_rss_mb=peak)])
        except SystemExit as error:  # of a callback, which may end the program
            asked.append(error)
            raise

    def notice(problem: str) -> None:
        if problem:
            monitor.event(problem)

    description = save_by_updates(description)
    monitor.event(
        f"one process: saves every {description.config.checkpoint.every_updates:,} updates (checkpoint.every_updates)"
    )
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    level = description.config.launch.log_level
    log = run_dir / "logs" / Role("learner").log_name
    # On another thread than the main one, standard error belongs to the calling program.
    alone = threading.current_thread() is threading.main_thread()
    with standard_error_in(log) if alone else nullcontext(), log_lines_in(log, level):
        try:
            select_framework(description.config.learner.backend)
            # Imported here: it brings the framework, which prints to standard error.
            from distrl.launch.deterministic import run_deterministic

            reason = run_deterministic(description, backend, report, lambda: interrupt.code is not None, notice, acts)
            outcome = Outcome(interrupt.code or 0, interrupt.name or reason)
        except DistrlError as error:
            logging.getLogger("distrl").error("the training has failed", exc_info=True)
            outcome = Outcome.of(error)
        except SystemExit as error:
            if error in asked:
                raise
            logging.getLogger("distrl").error("the training has ended", exc_info=True)
            outcome = Outcome.of(ExitError(error))
    monitor.ledger = backend.ledger.counts()
    return outcome


def save_by_updates(description: RunDescription) -> RunDescription:
    """Replace checkpoints by the clock: each abandons open episodes, which must happen at the same updates."""
    checkpoint = description.config.checkpoint
    updates_per_unroll = max(1, replayed_updates_per_unroll(description.config, description.spec))
    unrolls = max(SAVE_EVERY_UNROLLS, -(-SAVE_EVERY_STEPS // unroll_steps(description.config, description.spec)))
    every = checkpoint.every_updates or unrolls * updates_per_unroll
    checkpoint = checkpoint.model_copy(update={"every_s": None, "every_updates": every})
    config = description.config.model_copy(update={"checkpoint": checkpoint})
    return description.model_copy(update={"config": config})


@contextmanager
def log_lines_in(path: Path, level: LogLevel) -> Iterator[None]:
    """While inside, distrl's log lines of that level and above are appended to `path`, as a role's are."""
    # Not to sys.stderr, which a notebook replaces.
    log, handler = logging.getLogger("distrl"), logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(RoleLines("learner"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(level.upper())
    try:
        yield
    finally:
        log.removeHandler(handler)
        handler.close()
        log.setLevel(before)


@contextmanager
def standard_error_in(path: Path) -> Iterator[None]:
    """While inside, this process's standard error is appended to `path`, also what native libraries write."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
