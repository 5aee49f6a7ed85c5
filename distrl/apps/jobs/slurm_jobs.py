"""The target `slurm`: a batch job for the learner with its Redis, and job arrays whose tasks are its actors.

The run's directory lies on a file system that the nodes share. Actors find Redis, key and password there, at each
launch anew; and it has the logs and the end of the run, which Slurm forgets within minutes.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.apps.config.configuration import load
from distrl.apps.jobs import run_logs
from distrl.apps.jobs import slurm_commands as slurm
from distrl.apps.jobs.record import CONFIG_FILE, Job, JobRecord, OpenRecord
from distrl.apps.jobs.run_files import EXIT_FILE, ended_with, exit_code, run_of
from distrl.apps.jobs.slurm_commands import ActorTask, SlurmJob
from distrl.apps.jobs.slurm_plan import made_scripts, plan_of
from distrl.apps.jobs.slurm_scripts import ACTORS_SCRIPT, LEARNER_SCRIPT, STOP_SIGNAL, actors_name
from distrl.apps.jobs.target import OVER, JobState, LogLine, Plan, Report, State
from distrl.data_store.atomic import put_file
from distrl.errors import EXIT_INTERRUPTED, ConfigError, DistrlError, MemoryBackendError
from distrl.roles.plan import ACTORS_ON_CLUSTER
from distrl.runs.directories import open_run
from distrl.runs.summary import RECLAIMED

if TYPE_CHECKING:
    from distrl.memory_backend.steering import Steering

QUERY_EVERY_S = 5.0
"""Least time between two questions of one command for the same job: many users share slurmctld."""
_LEARNER, _NAME = "learner", "name"
_STATES: Mapping[str, State] = {
    **dict.fromkeys(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"), "waiting"),
    **dict.fromkeys(("SUSPENDED", "STOPPED"), "waiting"),
    **dict.fromkeys(("CONFIGURING", "RUNNING", "RESIZING", "SIGNALING"), "running"),
    **dict.fromkeys(("COMPLETING", "STAGE_OUT"), "stopping"),
}
"""Slurm's state -> that of the job; all others are ends."""
_PASSING = ("Resources", "Priority", "BeginTime", "Dependency", "JobHeldUser")
"""Reasons to wait that pass by themselves."""
_NOT_YET = ("None", "Dependency")
"""Reasons of a task that Slurm has not looked at since the learner began."""
_REMEDY = "if it stays so: distrl stop {}, change slurm.learner_options, and submit it again"


class SlurmJobs:
    """Jobs on the Slurm cluster whose commands are on PATH."""

    name = "slurm"
    starts_actors = True
    logs: tuple[str, ...] | None = None

    def __init__(self) -> None:
        self._answers: dict[str, tuple[float, SlurmJob | None, str]] = {}

    def plan(self, job: Job) -> Plan:
        """Return the plan: when Slurm would start the job, and the scripts."""
        return plan_of(job)

    def submit(self, job: Job, record: OpenRecord, report: Report) -> None:
        """Submit the learner on hold, then its actors, and let both start."""
        scripts, config = made_scripts(job), job.config
        actors = actors_name(job.run_id)
        if holders := slurm.numbers_of(job.run_id, actors):
            raise ConfigError(
                f"the run id {job.run_id} is taken: your job {holders[0]} in Slurm's queue has this name; choose "
                "another --run-id"
            )
        (job.run_dir / "logs").mkdir()
        for name, text in ((LEARNER_SCRIPT, scripts.learner), (ACTORS_SCRIPT, scripts.actors)):
            put_file(job.run_dir / name, text.encode(), private=True)
        record.write(handles={_NAME: job.run_id})
        submitted = [slurm.submit(job.run_dir / LEARNER_SCRIPT, options=["--hold"])]
        told = [f"learner {submitted[0]}"]
        try:
            record.write(handles={_LEARNER: submitted[0]})
            if config.started_actors:
                submitted.append(_add(job.run_dir, submitted[0], range(config.started_actors)))
                told.append(f"actors {submitted[1]}[0-{config.started_actors - 1}]")
            slurm.release(submitted[0])
        except BaseException:
            slurm.cancel(submitted)
            raise
        for line in told:
            report(line)

    def withdraw(self, record: JobRecord) -> None:
        """Kill the job."""
        slurm.cancel(slurm.numbers_of(record.run_id, actors_name(record.run_id)))

    def state(self, record: JobRecord) -> JobState:
        """Return the state by the exit code that the learner's script has left, else by Slurm's queue."""
        if (code := exit_code(record)) is not None:
            return ended_with(record, code, run_of(record))
        job, lacking = self._asked(record)
        state: State = "gone" if job is None else _STATES.get(job.state, "gone")
        if job is not None and state == "waiting":
            return JobState(state, _why(job, record))
        if state in ("running", "stopping"):
            return JobState(state, lacking)
        run = run_of(record)
        if (code := exit_code(record)) is not None:  # written between the two looks
            return ended_with(record, code, run)
        if run is not None and run.summary is not None and run.summary.stop_reason != RECLAIMED:
            return ended_with(record, run.summary.exit_code, run)  # Slurm has ended the script after the training
        how = "Slurm does not know it any more" if job is None else f"Slurm has ended it: {_words(job.state)}"
        return JobState("gone", f"{how}; it has left no exit code")

    def log(self, record: JobRecord, *, follow: bool) -> Iterator[LogLine] | None:
        """Return the lines of the logs in the run's directory."""
        folder = Path(record.run_dir) / "logs"
        if not folder.is_dir():
            return None
        return run_logs.lines(folder, lambda: not follow or self._is_over(record))

    def scale(self, record: JobRecord, actors: int, *, force: bool) -> None:
        """Add tasks that are actors, or cancel some: those that wait first, then those that were added last."""
        self._require_not_over(record)
        config = load(file=Path(record.run_dir) / CONFIG_FILE).config
        if not config.actors.count:
            raise ConfigError(f"{record.run_id} has no actors (actors.count: 0)")
        most = config.actors.max_count or ACTORS_ON_CLUSTER
        if actors > most and not force:
            raise ConfigError(
                f"actors: {actors} is more than this run may have, {most} (actors.max_count); if you mean it: distrl "
                f"scale {actors} --force"
            )
        tasks = slurm.tasks_of(actors_name(record.run_id))
        there = [task for task in tasks if task.state != "COMPLETING"]
        if len(there) > actors:
            there.sort(key=lambda task: (task.state == "PENDING", task.index))
            slurm.cancel(task.name for task in there[actors:])
        elif len(there) < actors:
            _add(Path(record.run_dir), self._number(record), _free(tasks, actors - len(there)))

    def autoscale(self, record: JobRecord, least: int | None, most: int | None, *, off: bool) -> None:
        """Request it of the run, which only publishes the number."""
        self._require_not_over(record)
        if off and not _trains(record):
            return  # the next launch begins without
        with self._steered(record) as run:
            if off:
                run.fix_actors()
            else:
                run.autoscale(least, most)

    def stop(self, record: JobRecord, *, now: bool) -> None:
        """Request the end of the run; a job that waits is cancelled, and `now` cancels any."""
        learner, actors = self._number(record), actors_name(record.run_id)
        if self.state(record).state in OVER:
            slurm.cancel(slurm.numbers_of(actors))  # those of a learner that was killed without a word
            self._require_not_over(record)
        if now:
            slurm.cancel([learner, *slurm.numbers_of(actors)])
            return
        slurm.cancel([learner], "--state=PENDING")
        self._answers.clear()
        if self.state(record).state in OVER:
            slurm.cancel(slurm.numbers_of(actors))
            _write_down(record)
            return
        try:
            with self._steered(record) as run:
                run.stop()
        except (ConfigError, MemoryBackendError):  # not begun, without Redis, or out of reach from here
            slurm.cancel([learner], f"--signal={STOP_SIGNAL}", "--batch")

    def _asked(self, record: JobRecord) -> tuple[SlurmJob | None, str]:
        """Return the learner's job, and why actors of one that runs wait, as Slurm had them some seconds ago at most.

        A submission that was killed may have left one, on hold, whose number is not in the record.
        """
        if _NAME in record.handles:
            found = slurm.numbers_of(record.handles[_NAME])
            return (slurm.job_of(found[0]) if found else None), ""
        number = self._number(record)
        asked_at, job, lacking = self._answers.get(number, (float("-inf"), None, ""))
        if time.monotonic() - asked_at >= QUERY_EVERY_S:
            job = slurm.job_of(number)
            lacking = _lacking(record) if job is not None and _STATES.get(job.state) == "running" else ""
            self._answers[number] = time.monotonic(), job, lacking
        return job, lacking

    def _number(self, record: JobRecord) -> str:
        number = record.handle(_LEARNER)
        if not number.isdecimal():
            raise ConfigError(f"the record of {record.run_id} is damaged: its learner's job is {number!r}")
        return number

    def _is_over(self, record: JobRecord) -> bool:
        """Whether the job has ended; while Slurm does not answer, as when slurmctld restarts, it has not."""
        try:
            return self.state(record).state in OVER
        except DistrlError:
            return False

    def _require_not_over(self, record: JobRecord) -> None:
        """Raise ConfigError if the job has ended."""
        if self.state(record).state in OVER:
            raise ConfigError(f"{record.run_id} does not run; distrl status {record.run_dir} shows how it ended")

    def _steered(self, record: JobRecord) -> AbstractContextManager["Steering"]:
        if not _trains(record):
            raise ConfigError(f"{record.run_id} does not train yet; distrl status {record.run_dir} shows why")
        return open_run(Path(record.run_dir)).steering("command line")


def _trains(record: JobRecord) -> bool:
    """Whether there is a launch that has not ended; a learner in the queue has left one that has."""
    run = run_of(record)
    return run is not None and run.summary is None


def _add(run_dir: Path, learner: str, indices: Sequence[int]) -> str:
    """Submit actors as tasks with these indices; return the number of the job array.

    They start after the learner: otherwise they could take the room that it waits for.
    """
    options = [f"--array={','.join(map(str, indices))}", f"--dependency=after:{learner}"]
    return slurm.submit(run_dir / ACTORS_SCRIPT, learner, options=options)


def _free(tasks: Sequence[ActorTask], count: int) -> list[int]:
    """Return the lowest indices that no task has: Slurm bounds them (MaxArraySize)."""
    used = {task.index for task in tasks}
    return [index for index in range(count + len(used)) if index not in used][:count]


def _why(job: SlurmJob, record: JobRecord) -> str:
    """Return why a job waits, and until when, as far as Slurm knows."""
    begun = "to go on: " if (Path(record.run_dir) / "run.json").exists() else ""
    until = f", expected to start at {job.start}" if job.start and job.state == "PENDING" else ""
    remedy = "" if not job.reason or job.reason in _PASSING else f"; {_REMEDY.format(record.run_id)}"
    return f"{begun}{job.reason or _words(job.state)}{until}{remedy}"


def _lacking(record: JobRecord) -> str:
    """Return how many actors wait, and why; "" if none does."""
    tasks = [task for task in slurm.tasks_of(actors_name(record.run_id)) if task.state != "COMPLETING"]
    waiting = [task for task in tasks if task.state == "PENDING" and task.reason not in _NOT_YET]
    if not waiting:
        return ""
    reasons = ", ".join(sorted({task.reason for task in waiting}))
    others = len(tasks) - len(waiting)
    remedy = f"; distrl scale {others} {record.run_id} gives them up" if others else ""
    return f"{len(waiting)} of {len(tasks)} actors wait: {reasons}{remedy}"


def _words(state: str) -> str:
    return state.lower().replace("_", " ")


def _write_down(record: JobRecord) -> None:
    """Write the exit code of a job that was cancelled while it waited: nothing of it runs any more."""
    run = run_of(record)
    if run is None:
        code = EXIT_INTERRUPTED
    elif run.summary is not None:
        code = run.summary.exit_code
    else:
        return  # its node is gone
    put_file(Path(record.run_dir) / "logs" / EXIT_FILE, f"{code}\n".encode())
