"""`distrl sweep --on TARGET`: the target of a sweep's jobs, and the consent to submit them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.apps.commands import completion
from distrl.apps.commands.answering import answering
from distrl.apps.commands.printing import echo
from distrl.apps.commands.submit import ask_consent, refuse_sections_of_others
from distrl.apps.experiments.directory import SweepDirectory
from distrl.apps.experiments.sweep import Sweep, number_of_runs, planned_runs
from distrl.apps.jobs.targets import open_target
from distrl.config.document import parse_mapping
from distrl.config.load import LoadedConfig, dump_given
from distrl.errors import ConfigError, printable

if TYPE_CHECKING:
    from distrl.apps.experiments.runs_as_jobs import JobsTarget, RunsAsJobs

ON = ("here", "ray", "slurm")
"""Targets whose jobs write a directory that this host shares."""


@dataclass(frozen=True)
class JobOptions:
    """Where the runs of a sweep train, as the command line describes it."""

    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="|".join(ON),
            help="Submit each run as a job. [dim]Default: train here, or where the sweep's jobs are.[/]",
            autocompletion=completion.targets,
        ),
    ] = None
    address: Annotated[
        str | None, typer.Option(metavar="URL", help="With --on: where it is. [dim]Default: the target's own.[/]")
    ] = None
    wait: Annotated[
        bool, typer.Option("--wait", help="With --on: also if it has no room for one run now: it may grow.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", help="With --on: do not ask.")] = False


def runs_as_jobs(
    options: JobOptions, directory: SweepDirectory, sweep: Sweep, base: LoadedConfig, most: int, *, dry: bool
) -> "RunsAsJobs | None":
    """Return room for `most` jobs at the target of the sweep, after the user's consent; None if its runs train here.

    Args:
        dry: Show the plan, and do not ask.

    Raises:
        ConfigError: The target cannot run them, the sweep's jobs are elsewhere, or there is no consent.
    """
    from distrl.apps.experiments.runs_as_jobs import JobsTarget, RunsAsJobs, place_of

    before = place_of(directory)
    if before is None and options.on is None:
        if options.address is not None or options.wait or options.yes:
            raise ConfigError("--address, --wait and --yes are for jobs; add --on")
        return None
    on, address = (options.on or "", None) if before is None else before
    if options.on not in (None, on):
        raise ConfigError(f"--on {options.on}: the jobs of {directory.path} are on {on}; leave it out")
    if on not in ON:
        raise ConfigError(f"--on {printable(on)}: a sweep reads the directories of its runs, as with {', '.join(ON)}")
    if before is not None and options.address is not None and address is None:
        raise ConfigError(f"--address {options.address}: the jobs of {directory.path} are on {on}; leave it out")
    place = JobsTarget(on, options.address or address, open_target(on))
    if before is None:
        _show(place, options, directory, sweep, base)
        if not (options.yes or dry):
            ask_consent()
    return RunsAsJobs(directory, most, place, lambda line: echo(line, err=True))


def _show(
    place: "JobsTarget", options: JobOptions, directory: SweepDirectory, sweep: Sweep, base: LoadedConfig
) -> None:
    """Show the plan of the first run."""
    from distrl.apps.experiments.runs_as_jobs import job_of
    from distrl.apps.jobs.plan_text import plan_text

    refuse_sections_of_others(base, place.name)
    first = next(planned_runs(sweep))
    tree = parse_mapping(dump_given(base), "the shared configuration")
    job = job_of(tree, directory.run(first), first, place.address, wait=options.wait, dry=True)
    with answering(place.name):
        plan = place.target.plan(job)
    total = number_of_runs(sweep)
    echo(f"{'many runs' if total is None else f'{total} runs'} like this one:\n{plan_text(job, place.name, plan)}")
