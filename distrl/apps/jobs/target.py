"""The seam between the verbs (`distrl submit`, `jobs`, `logs`, `scale`, `stop`) and the targets that jobs run on.

A target is one module: it plans, submits, reports, scales and stops. The verbs own what users see: the plan that they
confirm, the record, following logs, JSON, exit codes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from distrl.apps.jobs.record import Job, JobRecord, OpenRecord
from distrl.errors import EXIT_INTERRUPTED, ConfigError
from distrl.runs.summary import RunEnd, Summary, outcome

if TYPE_CHECKING:  # the plan of roles brings NumPy, which the command line's help does not need
    from distrl.roles.plan import RoleNeed

State = RunEnd | Literal["waiting", "running", "stopping", "gone", "unknown", "damaged"]
"""State of a job: how its run has ended, or one of these. waiting: it has no machine yet; gone: the target does not
know it any more, and it has left no summary; unknown: the target does not answer; damaged: its record cannot be read,
which only lists show."""
OVER: tuple[State, ...] = (*get_args(RunEnd), "gone")
"""States that a job does not leave by itself."""
Report = Callable[[str], None]


class NoAnswerError(ConfigError):
    """The target does not answer at its address, for any job."""


@dataclass(frozen=True)
class Plan:
    """The plan that `distrl submit` shows before it asks.

    Attributes:
        available: What the target has, in words; "" where the target does not say.
        code: What is sent or read of the user's code, with its size, in words.
        unprotected: One line for each protection that the job does not have.
        files: Name -> text of what is submitted, as --dry-run prints it: without secrets, the same at every call. The
            verb adds job.yaml.
        notes: One line for each thing that may be forgotten, by the configuration alone.
        run_dir: Path of the run's directory at the target, as in the record; "": that of the one on this host.
        disk: Disk of the run's directory, in words; "" where the path alone says it.
    """

    roles: "Sequence[RoleNeed]"
    available: str = ""
    code: str = ""
    unprotected: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    run_dir: str = ""
    disk: str = ""


@dataclass(frozen=True)
class JobState:
    """How a job is doing.

    Attributes:
        reason: Why it waits or how it has ended; while it runs, why parts of it wait, "" if none does.
        exit_code: That of `distrl train`; None until it has ended, or where the target cannot say.
        silent: Whether the state is unknown because the target's address does not answer.
        may_have_begun: Whether a job that waits or is gone may have trained before, and `withdraw` would delete what it
            has saved.
    """

    state: State
    reason: str = ""
    exit_code: int | None = None
    silent: bool = False
    may_have_begun: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, summary: Summary) -> "JobState":
        """Return how a job has ended by the summary of its run."""
        return cls(summary.end, summary.error or outcome(summary), summary.exit_code)

    @classmethod
    def of_code(cls, code: int | None, reason: str) -> "JobState":
        """Return how a job has ended of which only the exit code is known; None: not even that, and it has failed."""
        end: RunEnd = "ended" if code == 0 else "interrupted" if code == EXIT_INTERRUPTED else "failed"
        return cls(end, reason, code)


@dataclass(frozen=True)
class LogLine:
    """One line of a role's log.

    Attributes:
        at: Time of the line, in seconds since 1970; that of the line before it where it has none of its own.
        role: Name of the role, such as "actor 3"; "job" for what the job itself prints.
    """

    at: float
    role: str
    text: str


class Target(Protocol):
    """One kind of place for jobs.

    Its methods raise ConfigError for what the user can mend, in one line; MissingExtraError or ConfigError where its
    tools are not installed.

    Attributes:
        name: Its key in `targets.TARGETS`.
        starts_actors: Whether the target starts the actors, and not the run itself. Such a run only publishes how many
            actors it wants; `distrl autoscale` makes the target follow, by `scale`. False also where something else
            follows, as KEDA on Kubernetes.
        logs: Roles that its log tells apart; None: all.
    """

    name: str
    starts_actors: bool
    logs: tuple[str, ...] | None

    def plan(self, job: Job) -> Plan:
        """Return the plan, and change nothing; each query of the target takes at most 10 s.

        Raises:
            ConfigError: The target refuses the job, or it cannot run there.
        """

    def submit(self, job: Job, record: OpenRecord, report: Report) -> None:
        """Submit the job; on an error, nothing is left behind at the target.

        Before anything is made at the target, the record is written with handles by which `state` and `withdraw` find
        all parts, whether they are there or not: this process may be killed at any time.

        Args:
            job: Its `run_dir` exists, and holds job.yaml. The caller removes it on an error.
        """

    def withdraw(self, record: JobRecord) -> None:
        """Undo `submit`, also of what outlives the end of a job; each part may be missing."""

    def state(self, record: JobRecord) -> JobState:
        """Return how the job is doing. It has ended only when its last line is in the logs."""

    def log(self, record: JobRecord, *, follow: bool) -> Iterator[LogLine] | None:
        """Return the job's lines, oldest first; with `follow`, until the job has ended.

        None where nothing of the log is left at the target; the data store may have it.
        """

    def scale(self, record: JobRecord, actors: int, *, force: bool) -> None:
        """Change the number of actors; `force`: also to more than `actors.max_count`."""

    def autoscale(self, record: JobRecord, least: int | None, most: int | None, *, off: bool) -> None:
        """Let the run choose its number of actors within bounds, None: those of its configuration; `off`: end that."""

    def stop(self, record: JobRecord, *, now: bool) -> str | None:
        """Request the end in order, with a checkpoint; `now`: kill it. Returns before the job has ended.

        A line says what else was done, where there was no run to request it of; else None.
        """
