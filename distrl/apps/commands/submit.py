"""`distrl submit`: hand a training to a target, and follow it."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.apps.commands import completion
from distrl.apps.commands.answering import answering
from distrl.apps.commands.help import takes
from distrl.apps.commands.jobs import print_line
from distrl.apps.commands.options import Layers
from distrl.apps.commands.printing import echo
from distrl.apps.jobs.targets import TARGETS, open_target
from distrl.config.load import LoadedConfig
from distrl.errors import EXIT_INTERRUPTED, ConfigError, DistrlError, printable
from distrl.interrupt import interruptible

if TYPE_CHECKING:
    from distrl.apps.jobs.record import Job, JobRecord
    from distrl.apps.jobs.target import Target


@takes(Layers)
def submit(
    layers: Layers,
    on: Annotated[
        str,
        typer.Option("--on", metavar="|".join(TARGETS), help="Where the job runs.", autocompletion=completion.targets),
    ],
    address: Annotated[
        str | None, typer.Option(metavar="URL", help="Where the target is. [dim]Default: the target's own.[/]")
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Id of the run. [dim]Default: environment, algorithm and chance.[/]"),
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run's own directory. [dim]Default: runs/ID.[/]")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Ray and Slurm: submit also what the cluster has no room for: it may grow.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not follow the log.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be submitted, without secrets.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object; does not follow the log. Needs --yes or --dry-run.")
    ] = False,
) -> None:
    """Submit a training as a job, and follow its log. Ctrl-C detaches; the job goes on.

    [cyan]distrl submit --preset cartpole-impala --on here[/]

    Exit code: that of the run, as of [cyan]distrl train[/]; with --detach 0 once it is submitted; 130 after Ctrl-C.
    """
    from distrl.apps.jobs.plan_text import files, plan_json, plan_text

    if layers.names_nothing:
        raise ConfigError("what to train? For example: distrl submit --preset cartpole-impala --on here")
    target = open_target(on)
    loaded = layers.load()
    refuse_sections_of_others(loaded, on)
    job = _job(loaded, run_id, run_dir, address, dry=dry_run, wait=wait)
    with answering(on):
        plan = target.plan(job)
    if not as_json:
        echo(plan_text(job, on, plan), err=dry_run)
    if dry_run:
        _print_files(files(job, plan), plan_json(job, on, plan) if as_json else None)
        return
    if not yes:
        ask_consent("--json asks nothing" if as_json else None)
    with interruptible() as interrupt:  # half a submission would be a job without a record
        record = _submitted(job, target, on, quiet=as_json)
    if as_json:
        echo(json.dumps({**plan_json(job, on, plan), **record.model_dump(mode="json")}, indent=2))
        return
    name = job.run_id if job.run_dir.parent == Path("runs").resolve() else str(job.run_dir)
    echo(f"distrl jobs · distrl logs -f {name} · distrl scale N {name} · distrl stop {name}")
    if interrupt.code is not None:
        raise typer.Exit(_detached(record, name))
    if not detach:
        raise typer.Exit(_follow(target, record, job.run_dir, name))


def refuse_sections_of_others(loaded: LoadedConfig, on: str) -> None:
    """Raise ConfigError if the configuration sets something of the section of another target."""
    for path, origin in loaded.given.items():
        section = path.partition(".")[0]
        if section in TARGETS and section != on:
            raise ConfigError(f"{path} (from {origin}) has no use with --on {on}; leave it out")


def _job(
    loaded: LoadedConfig, run_id: str | None, run_dir: Path | None, address: str | None, *, dry: bool, wait: bool
) -> "Job":
    """Return the job, whose name is free."""
    from distrl.apps.jobs.record import Job
    from distrl.apps.jobs.submission import new_run_id, require_free
    from distrl.memory_backend.keys import checked_run_id

    chosen = new_run_id(loaded.config, dry=dry) if run_id is None else checked_run_id(run_id)
    folder = (Path("runs") / chosen if run_dir is None else run_dir).resolve()
    require_free(chosen, folder)
    return Job(chosen, loaded, folder, address, wait, dry)


def _print_files(texts: dict[str, str], facts: "dict[str, object] | None") -> None:
    """Print what would be submitted; only what is the same at every call, whether or not the target answers."""
    if facts is not None:
        del facts["available"]
        echo(json.dumps({**facts, "files": texts}, indent=2))
        return
    for name, text in texts.items():
        echo(f"# ---- {name}\n{text}", nl=False)


def ask_consent(why: str | None = None) -> None:
    """Ask before anything is submitted.

    Args:
        why: Reason not to ask, and to raise ConfigError instead.
    """
    if why is None and not sys.stdin.isatty():
        why = "standard input is no terminal, which could answer"
    if why is not None:
        raise ConfigError(f"nothing is submitted without your consent, and {why}: add --yes")
    typer.confirm("Submit?", default=True, abort=True)


def _submitted(job: "Job", target: "Target", on: str, *, quiet: bool) -> "JobRecord":
    from distrl.apps.jobs.submission import submit as submit_job

    parts: list[str] = []
    warnings: list[str] = []
    try:
        with answering(on):
            return submit_job(job, target, parts.append, warnings.append)
    finally:
        for warning in warnings:
            echo(f"{typer.style('!', fg=typer.colors.YELLOW)} {warning}", err=True)
        for part in () if quiet else parts:
            echo(f"{typer.style('✓', fg=typer.colors.GREEN)} {part}")


def _follow(target: "Target", record: "JobRecord", run_dir: Path, name: str) -> int:
    """Print the log until the job has ended; return its exit code."""
    from distrl.apps.jobs.watching import job_words, watch

    try:
        for line in watch(record, run_dir, follow=True, report=lambda text: echo(text, err=True)):
            print_line(line)
        state = target.state(record)
    except KeyboardInterrupt:
        return _detached(record, name)
    except ConfigError as error:  # 2 would mean that nothing was submitted
        raise DistrlError(f"{error}; the job was submitted: distrl status {name}") from error
    if state.exit_code is None:
        raise DistrlError(f"{job_words(record, state)}; distrl status {name}")
    if state.exit_code:
        echo(f"distrl: error: {printable(' '.join(state.reason.split()))}", err=True)
    return state.exit_code


def _detached(record: "JobRecord", name: str) -> int:
    echo(f"\ndetached: {record.run_id} goes on; distrl logs -f {name} · distrl stop {name}", err=True)
    return EXIT_INTERRUPTED
