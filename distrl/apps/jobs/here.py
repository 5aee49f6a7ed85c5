"""The target `here`: `distrl train` on this machine, in a session of its own, so that it outlives the terminal."""

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.apps.jobs import run_logs
from distrl.apps.jobs.protection import unprotected
from distrl.apps.jobs.record import CONFIG_FILE, JOB_LOG, Job, JobRecord, OpenRecord
from distrl.apps.jobs.run_files import EXIT_FILE, ended_with, exit_code, run_of
from distrl.apps.jobs.target import OVER, JobState, LogLine, Plan, Report
from distrl.data_store.opening import open_objects, require_usable, usable_store
from distrl.errors import ConfigError
from distrl.launch.start import require_weights
from distrl.machine import cores, gpu_models, memory_bytes
from distrl.roles.framework import require_framework
from distrl.roles.plan import role_needs
from distrl.runs.directories import RunRecord, is_alive, open_run, process_mark
from distrl.runs.summary import outcome

if TYPE_CHECKING:
    from distrl.memory_backend.steering import Steering

_PID, _PROCESS = "pid", "process"
# A shell stays the parent of the training and writes down how it has ended. It is no child of the submitting process,
# which would have to reap it. It begins when the record has its number; without the word it ends, as the submitting
# process has. A signal to the group ends the training; the trap lets the shell live until it has.
_START = (
    'exec 3<&0; log=$1 code=$2; shift 2; (read -r word <&3 || exit; exec 3<&-; trap : HUP INT TERM; "$@"; '
    'echo $? > "$code") < /dev/null >> "$log" 2>&1 & echo $!'
)


class Here:
    """Jobs on this machine. Other hosts can read what they leave in a directory that both share."""

    name = "here"
    starts_actors = False
    logs: tuple[str, ...] | None = None

    def plan(self, job: Job) -> Plan:
        """Return the plan: what the machine has, and the command."""
        config = job.config
        if job.address is not None:
            raise ConfigError(f"--address {job.address} has no use with --on here, which is this machine")
        require_framework(config.learner.backend)
        require_weights(config)
        command = ["distrl", *_arguments(Path(CONFIG_FILE), job)]
        return Plan(
            role_needs(config),
            available=_machine(),
            code=f"{Path.cwd()}, in place",
            unprotected=unprotected(config),
            files={"command": f"{' '.join(command)}\n"},
        )

    def submit(self, job: Job, record: OpenRecord, report: Report) -> None:
        """Start the training.

        Raises:
            ConfigError: The data store cannot be used on this machine.
        """
        if (store := job.config.checkpoint.store) is not None:
            with usable_store():
                require_usable(open_objects(store))
        logs = job.run_dir / "logs"
        logs.mkdir()
        command = [sys.executable, "-P", "-m", "distrl"]
        command += _arguments(job.run_dir / CONFIG_FILE, job)
        with subprocess.Popen(  # a fixed script; its words are our own interpreter, arguments and paths
            ["/bin/sh", "-c", _START, "sh", str(logs / JOB_LOG), str(logs / EXIT_FILE), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        ) as shell:
            assert shell.stdin is not None
            assert shell.stdout is not None
            pid = int(shell.stdout.readline())
            record.write(address=platform.node(), handles={_PID: str(pid), _PROCESS: process_mark(pid)})
            shell.stdin.write(b"begin\n")
        report(f"process {pid}")

    def withdraw(self, record: JobRecord) -> None:
        """Kill the job."""
        if _handle_is_alive(record):
            os.killpg(os.getpgid(int(record.handle(_PID))), signal.SIGKILL)

    def state(self, record: JobRecord) -> JobState:
        """Return the state by the process, and by what the run has left in its directory."""
        alive = _handle_is_alive(record)  # first, as a training writes its summary before it ends
        run = run_of(record)
        if run is not None and run.summary is not None:
            if alive:
                return JobState("stopping", outcome(run.summary))
            return ended_with(record, run.summary.exit_code, run)
        if alive or (run is not None and run.state == "running"):
            return JobState("running")
        _require_this_host(record)
        code = exit_code(record)
        if code is None:
            return JobState("gone", "its process was killed, or the machine was restarted; it has left no summary")
        return ended_with(record, code, run)

    def log(self, record: JobRecord, *, follow: bool) -> Iterator[LogLine] | None:
        """Return the lines of the logs in the run's directory."""
        folder = Path(record.run_dir) / "logs"
        if not folder.is_dir():
            return None
        return run_logs.lines(folder, lambda: not follow or self.state(record).state in OVER)

    def scale(self, record: JobRecord, actors: int, *, force: bool) -> None:
        """Request another number of actors of the run."""
        with _steered(record) as run:
            run.scale(actors, force=force)

    def autoscale(self, record: JobRecord, least: int | None, most: int | None, *, off: bool) -> None:
        """Request it of the run, which starts and ends its actors itself."""
        with _steered(record) as run:
            if off:
                run.fix_actors()
            else:
                run.autoscale(least, most)

    def stop(self, record: JobRecord, *, now: bool) -> None:
        """Request the end of the run. Before it has begun, and without Redis, a signal ends it in order, too."""
        _require_this_host(record)
        run = run_of(record)
        if run is not None and run.record.redis_url is not None and not now:
            with run.steering("command line") as steered:
                steered.stop()
            return
        number = signal.SIGKILL if now else signal.SIGTERM
        try:
            if _handle_is_alive(record):
                os.killpg(os.getpgid(int(record.handles[_PID])), number)
            elif run is not None and run.state == "running":  # `distrl train` has begun it, maybe in a group of others
                os.kill(run.record.pid, number)
            else:
                raise _over(record)
        except ProcessLookupError as error:  # it has ended since
            raise _over(record) from error


def _arguments(config: Path, job: Job) -> list[str]:
    return ["train", str(config), "--run-dir", str(job.run_dir), "--run-id", job.run_id, "--dated"]


def _over(record: JobRecord) -> ConfigError:
    return ConfigError(f"{record.run_id} does not run; distrl status {record.run_dir} shows how it ended")


def _machine() -> str:
    """Return this machine's cores, memory and GPUs in words."""
    memory, gpus = memory_bytes(), gpu_models()
    size = "" if memory is None else f", {memory / 2**30:.0f} GiB of memory"
    return f"{cores()} cores{size}, {', '.join(gpus) or 'no GPU'}"


def _handle_is_alive(record: JobRecord) -> bool:
    """Whether the process that was started for the job lives on this host."""
    if record.address != platform.node() or _PID not in record.handles:
        return False
    pid, process = record.handles[_PID], record.handles.get(_PROCESS, "")
    if not pid.isdecimal() or int(pid) >= 2**31:
        raise ConfigError(f"the record of {record.run_id} is damaged: its process is {pid!r}")
    return is_alive(RunRecord(run_id=record.run_id, redis_url=None, pid=int(pid), process=process))


def _require_this_host(record: JobRecord) -> None:
    if record.address not in (None, platform.node()):
        raise ConfigError(f"{record.run_id} was submitted on host {record.address}; repeat the command there")


def _steered(record: JobRecord) -> AbstractContextManager["Steering"]:
    """Open the requests to the job's run.

    Raises:
        ConfigError: It is on another host, has not begun or has ended.
    """
    _require_this_host(record)
    if run_of(record) is None:
        if not _handle_is_alive(record):
            raise _over(record)
        raise ConfigError(f"{record.run_id} has not begun to train; repeat the command in a few seconds")
    return open_run(Path(record.run_dir)).steering("command line")
