"""One run of one contender: start it, watch it, end it, and derive its figures."""

import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers import processes
from benchmarks.peers.contenders import Contender, Task, command, progress_path, python_of
from benchmarks.peers.rows import Row, cpu_s_per_step, read_rows, since_command, steps_per_s

POLL_S = 0.05
SAMPLE_S = 3.0
"""Seconds between two measurements of memory, in which the kernel walks all pages."""
FIRST_UPDATE_WITHIN_S = 180.0
EXIT_WITHIN_S = 30.0


@dataclass
class Watch:
    """Observations of a run while it goes on.

    Attributes:
        rows: Its progress, by its own clock.
        offset_s: Delay of its clock behind the command's; each row is seen at once or a moment later.
        samples: (seconds since the command, processor time) at every measurement.
        pss_bytes: Greatest memory so far.
    """

    path: Path
    rows: list[Row] = field(default_factory=list)
    offset_s: float = math.inf
    samples: list[tuple[float, float]] = field(default_factory=list)
    pss_bytes: int = 0
    _size: int = -1

    def look(self, now_s: float) -> None:
        """Read new rows."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size != self._size:
            self._size = size
            self.rows = read_rows(self.path)
            if self.rows:
                self.offset_s = min(self.offset_s, now_s - self.rows[-1].wall_s)

    def sample(self, now_s: float, used: processes.Usage) -> None:
        """Record the processes' use of processors and memory."""
        self.samples.append((now_s, used.cpu_s))
        self.pss_bytes = max(self.pss_bytes, used.pss_bytes)

    def since_command(self, counts_from_command: bool) -> list[Row]:
        """Return its rows, in seconds since the command."""
        return self.rows if counts_from_command or not self.rows else since_command(self.rows, self.offset_s)

    def over(self, now_s: float, task: Task, seconds: float) -> bool:
        """Return whether the time is up."""
        if task.since == "command":
            return now_s >= seconds
        if not self.rows:
            return now_s >= FIRST_UPDATE_WITHIN_S
        return now_s >= self.offset_s + self.rows[0].wall_s + seconds


def watch(
    start: Callable[[float], Sequence[str]], path: Path, log: Path, task: Task, seconds: float, own_end: bool
) -> tuple[Watch, int | None, float]:
    """Run a command to its end.

    Args:
        start: Makes the command, given its start in seconds since 1970.
        path: Its progress file.
        log: File for its output.
        own_end: The program ends by itself when the time is up, within `EXIT_WITHIN_S`.

    Returns:
        The observations; the exit code, None if it was killed; its duration in seconds.
    """
    seen, before = Watch(path), frozenset(process.pid for process in processes.descendants())
    grace_s = EXIT_WITHIN_S if own_end else 0.0
    environment = {name: value for name, value in os.environ.items() if not (own_end and name.startswith("PYTHON"))}
    with processes.adopting_orphans(), log.open("wb") as output:
        began, next_sample_s, interrupted = time.monotonic(), 0.0, False
        child = subprocess.Popen(
            start(time.time()), stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            while child.poll() is None:
                now_s = time.monotonic() - began
                seen.look(now_s)
                if now_s >= next_sample_s:
                    seen.sample(now_s, processes.usage(processes.descendants(before)))
                    processes.reap_orphans(child.pid, before)
                    next_sample_s = time.monotonic() - began + SAMPLE_S
                if seen.over(now_s - grace_s, task, seconds):
                    interrupted = True
                    break
                time.sleep(POLL_S)
            wall_s = time.monotonic() - began
            seen.look(wall_s)
            if interrupted and not own_end:
                child.send_signal(signal.SIGINT)
                _wait(child, EXIT_WITHIN_S)
        finally:
            processes.end(before)
            _wait(child, EXIT_WITHIN_S)
            processes.reap_orphans(child.pid, before)
    return seen, None if interrupted else child.returncode, wall_s


def measure(
    contender: Contender, task: Task, repetition: int, seconds: float, folder: Path, environments: Path
) -> dict[str, Any]:
    """Run a contender in a new folder, and derive its figures. The repetition is the seed.

    Returns:
        The fields of `Measured` without its origin.
    """
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    log, path, python = folder / "log", progress_path(contender, folder), python_of(contender, environments)
    load = os.getloadavg()[0]

    def start(began_s: float) -> list[str]:
        return command(contender, task, seconds, repetition, folder, python, began_s)

    seen, code, wall_s = watch(start, path, log, task, seconds, own_end=not contender.ours)
    rows = seen.since_command(counts_from_command=not contender.ours)
    return {"load": load, **judge(task, rows, seen, code, wall_s), **failed(log, rows, code)}


def judge(task: Task, rows: Sequence[Row], seen: Watch, code: int | None, wall_s: float) -> dict[str, Any]:
    """Derive the figures from the observations."""
    last = rows[-1] if rows else None
    mean = last.mean_return_100 if last else None
    solved = code == 0 and mean is not None and task.until_return is not None and mean >= task.until_return
    cpu_s = cpu_s_per_step(rows, seen.samples)
    return {
        "steps_per_s": steps_per_s(rows),
        "first_update_s": rows[0].wall_s if rows else None,
        "solved_s": wall_s if solved else None,
        "mean_return": mean,
        "pss_bytes": seen.pss_bytes or None,
        "cpu_us_per_step": None if cpu_s is None else 1e6 * cpu_s,
        "env_steps": last.env_steps if last else 0,
        "wall_s": wall_s,
    }


def failed(log: Path, rows: Sequence[Row], code: int | None) -> dict[str, str | None]:
    """Return whether the run failed: an exit code other than 0 or our own, or no update at all."""
    if code or (code is not None and not rows):
        return {"failure": last_line(log)}
    return {"failure": None if rows else f"no update came; {last_line(log)}"}


def _wait(child: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def last_line(log: Path) -> str:
    """Return the last line with an error in a program's output, or else the last line."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "error:" in line]
    return (errors or lines or ["it printed nothing"])[-1][:200]
