"""Slurm by its commands: sbatch, squeue, scancel, scontrol. No accounting database is needed."""

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.apps.jobs.target import NoAnswerError
from distrl.config.secrets import is_secret
from distrl.errors import ConfigError, DistrlError

QUERY_LIMIT_S = 8.0
CHANGE_LIMIT_S = 60.0
_UNKNOWN_JOB = "Invalid job id"
_NO_TIME = ("", "N/A", "NONE", "Unknown")
_TRIAL = "--test-only"
_LABEL = re.compile(r"^(?:sbatch|squeue|scancel|scontrol)(?:: error)?: (?:Job \d+ (?=to start))?|^slurm_\w+ error: ")
_CHANGING = ("SBATCH_", "SQUEUE_", "SINFO_", "SCANCEL_", "SLURM_TIME_FORMAT", "SLURM_RESTART_COUNT")
"""Variables by which users change what the commands do or print, and one that a job leaves to those it submits."""
_SECRETS = ("DISTRL_REDIS_PASSWORD", "DISTRL_REDIS_URL", "DISTRL_SENTINEL_PASSWORD", "DISTRL_RUN_KEY")
"""Variables that must not come into Slurm's hands, which keeps the environment of each job."""


@dataclass(frozen=True)
class SlurmJob:
    """A job as squeue shows it.

    Attributes:
        state: Slurm's word, such as "PENDING".
        reason: Slurm's word for why it waits, such as "Resources".
        start: When it has begun or is expected to, in local time; "" where Slurm does not know.
    """

    state: str
    reason: str
    start: str


@dataclass(frozen=True)
class ActorTask:
    """One task of a job array whose tasks are actors.

    Attributes:
        state: Slurm's word, such as "RUNNING".
        reason: Slurm's word for why it waits, such as "Resources".
    """

    job: int
    index: int
    state: str
    reason: str

    @property
    def name(self) -> str:
        return f"{self.job}_{self.index}"


def start_of(role: str, script: str, *options: str) -> str:
    """Return when and where Slurm would start the script of a role, in its words. Nothing is submitted.

    Raises:
        ConfigError: Slurm would not start it, or does not answer.
    """
    done = _run("sbatch", _TRIAL, *options, text=script)
    if done.returncode:
        raise ConfigError(
            f"sbatch: {_words(done)}; change slurm.{role}_options, or add --wait to submit the job all the same"
        )
    return _words(done)


def submit(script: Path, *words: str, options: Sequence[str] = ()) -> str:
    """Submit a script, and return the job's number.

    Args:
        words: Arguments of the script.

    Raises:
        ConfigError: sbatch refuses.
    """
    return _output("sbatch", "--parsable", *options, str(script), *words).strip().partition(";")[0]


def release(job: str) -> None:
    """Let a job start that was submitted on hold."""
    _output("scontrol", "release", job)


def job_of(number: str) -> SlurmJob | None:
    """Return a job; None if Slurm does not know it (any more).

    Raises:
        DistrlError: Slurm does not answer.
    """
    done = _run("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T|%S|%r")
    if done.returncode and _UNKNOWN_JOB not in done.stderr:
        raise DistrlError(f"squeue: {_words(done)}")
    if done.returncode or not done.stdout.strip():
        return None
    state, start, reason = done.stdout.splitlines()[0].split("|", 2)
    return SlurmJob(state, "" if reason == "None" else reason, "" if start in _NO_TIME else start.replace("T", " "))


def numbers_of(*names: str) -> list[str]:
    """Return the numbers of this user's jobs that are not over and have one of the names."""
    found = _output("squeue", "--noheader", f"--user={os.getuid()}", f"--name={','.join(names)}", "--format=%F")
    return sorted({*found.split()})


def tasks_of(name: str) -> list[ActorTask]:
    """Return the tasks of this user's job arrays of that name which are not over, by their indices."""
    text = _output("squeue", "--noheader", "--array", f"--user={os.getuid()}", f"--name={name}", "--format=%F|%K|%T|%r")
    return parsed_tasks(text)


def parsed_tasks(text: str) -> list[ActorTask]:
    """Parse lines of squeue: job|index|state|reason."""
    lines = (line.strip().split("|", 3) for line in text.splitlines())
    tasks = [ActorTask(int(job), int(index), *rest) for job, index, *rest in lines if index.isdecimal()]
    return sorted(tasks, key=lambda task: task.index)


def cancel(names: Iterable[str], *options: str) -> None:
    """Cancel jobs or tasks, or with --signal send them a signal; what is over already is no error."""
    if chosen := [*names]:
        _output("scancel", "--quiet", *options, *chosen)


def _output(command: str, *arguments: str) -> str:
    """Return what a command prints.

    Raises:
        ConfigError: It fails, or does not answer.
    """
    done = _run(command, *arguments)
    if done.returncode:
        raise ConfigError(f"{command}: {_words(done)}")
    return done.stdout


def handed_secrets() -> list[str]:
    """Return the names of variables that Slurm keeps with a job, and that are secrets by their names."""
    return sorted(name for name in _kept() if is_secret(name))


def _kept() -> dict[str, str]:
    """Return the environment that jobs get."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(_CHANGING) and name not in _SECRETS
    }


def _run(command: str, *arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    limit_s = QUERY_LIMIT_S if command == "squeue" or _TRIAL in arguments else CHANGE_LIMIT_S
    try:
        return subprocess.run(
            [command, *arguments],
            env=_kept(),
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            start_new_session=True,  # Ctrl-C is for distrl, which ends in order
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"{command} does not answer within {limit_s:g} s; is slurmctld up?") from error
    except FileNotFoundError as error:
        raise ConfigError(
            f"{command} is not on PATH: --on slurm needs Slurm's commands; submit from a login node of the cluster"
        ) from error
    except OSError as error:
        raise ConfigError(f"{command} cannot be run: {error.strerror}") from error


def _words(done: "subprocess.CompletedProcess[str]") -> str:
    """Return the errors of a command in one line."""
    lines = [_LABEL.sub("", line).strip() for line in done.stderr.splitlines() if not line.startswith("Try ")]
    return "; ".join(line for line in lines if line)[:500] or f"it has ended with {done.returncode}"
