"""`distrl jobs` and `distrl logs`: submitted jobs, and what their roles write."""

import json
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.apps.commands import completion
from distrl.apps.commands.answering import answering
from distrl.apps.commands.durations import duration_option
from distrl.apps.commands.options import AddressOption
from distrl.apps.commands.printing import echo
from distrl.apps.commands.runs import warn
from distrl.config.stores import is_store_url
from distrl.errors import ConfigError, printable
from distrl.role_kinds import TABLE
from distrl.runs.directories import run_directory

if TYPE_CHECKING:
    from distrl.apps.jobs.target import LogLine

_LOGS = {"job": False, **{kind.name: kind.numbered for kind in TABLE}, "actors": True}
"""Writers of logs, the training itself and parents of actors among them -> whether there may be several."""
_ROLE = re.compile(r"([a-z]+)(?::(\d+))?")
_COLORS = (typer.colors.CYAN, typer.colors.YELLOW, typer.colors.BLUE, typer.colors.MAGENTA)
_WIDTH = 9


def jobs(
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="The runs in a data store, in place of those under runs/.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list.")] = False,
) -> None:
    """List the jobs under runs/, the newest first, with their states.

    [cyan]distrl jobs[/]

    [cyan]distrl jobs --store s3://bucket/runs[/]
    """
    from distrl.apps.jobs.finding import known_jobs
    from distrl.apps.jobs.stored_jobs import stored_jobs
    from distrl.apps.jobs.watching import facts_of, states_of

    with answering("the targets of the jobs"):
        if store is None:
            known = [*known_jobs(Path("runs"))]
            asked = iter(states_of([record for record, state in known if state is None]))
            found = [(record, next(asked) if state is None else state) for record, state in known]
        else:
            found = stored_jobs(store, states_of, warn)
    facts = [facts_of(*each) for each in found]
    facts.sort(key=lambda job: -job["submitted"])
    if as_json:
        echo(json.dumps(facts, indent=2))
        return
    from distrl.apps.commands.run_tables import jobs_table

    nothing = f"no run in {store}" if store else "no job under runs/; distrl submit makes one"
    echo(jobs_table(facts, time.time()) if facts else nothing)


def logs(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A run's directory, the id of a run or job under runs/, or STORE/RUN for what a data store has. "
            "[dim]Default: the newest under runs/.[/]",
            autocompletion=completion.runs,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job has ended.")] = False,
    role: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE", help="learner, evaluator, actor, actor:3 or job; repeatable."),
    ] = None,
    since: Annotated[float | None, duration_option("Only lines that are not older: 90s, 5m, 1h.")] = None,
    address: AddressOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on each line.")] = False,
) -> None:
    """Show what the roles of a job or run write, in the order of time: before its start, why it waits.

    [cyan]distrl logs -f pong-7f3a[/]

    [cyan]distrl logs runs/first --role learner --role actor:3 --since 5m[/]

    [cyan]distrl logs s3://bucket/runs/pong-7f3a[/]
    """
    from distrl.apps.jobs.finding import as_job, at_address
    from distrl.apps.jobs.stored_jobs import stored_log
    from distrl.apps.jobs.watching import job_words, state_of, watch

    def report(text: str) -> None:
        echo(text, err=True)

    roles = [role_name(text) for text in role or ()]
    earliest = 0.0 if since is None else time.time() - since
    job = None
    if run is not None and is_store_url(run):
        if follow or address is not None:
            raise ConfigError(f"{run}: a data store has copies of logs; --follow and --address are for jobs")
        found = stored_log(run)
    else:
        folder = run_directory(run)
        job = at_address(as_job(folder), address)
        _require_logged(roles, job.target)
        found = watch(job, folder, follow=follow, report=report)
    empty = silent = True
    for line in found:
        empty = False
        if line.at >= earliest and is_of(roles, line.role):
            silent = False
            print_line(line, as_json=as_json)
    if silent and not empty:
        report("no line of its log matches --role and --since")
    if job is None:
        return
    state = state_of(job)
    if state.state in ("gone", "failed", "interrupted") or (empty and state.state == "running"):
        report(job_words(job, state))


def role_name(text: str) -> str:
    """Return the role that "actor:3", "actor" or "learner" names, as logs call it."""
    found = _ROLE.fullmatch(text)
    if found is None or found[1] not in _LOGS or (found[2] is not None and not _LOGS[found[1]]):
        raise ConfigError(f"--role {text}: name {', '.join(_LOGS)}, or one actor as actor:3")
    return found[1] if found[2] is None else f"{found[1]} {int(found[2])}"


def _require_logged(roles: list[str], target: str) -> None:
    """Raise ConfigError if a target's log does not tell a role apart."""
    from distrl.apps.jobs.targets import open_target

    known = open_target(target).logs
    for role in roles:
        kind = role.partition(" ")[0]
        if known is not None and (kind not in known or kind != role):
            raise ConfigError(
                f"--role {role.replace(' ', ':')}: the log of a job on {target} has the roles {', '.join(known)}; all "
                "others write files in logs/ of the run's directory"
            )


def is_of(roles: list[str], role: str) -> bool:
    """Whether a role is among the named ones; no name names all roles.

    "actor" names all actors, and the parents of actors, whose log has the lines of theirs.
    """
    return not roles or any(role == name or role.startswith((f"{name} ", f"{name}s ")) for name in roles)


def print_line(line: "LogLine", *, as_json: bool = False) -> None:
    """Print one line of a log: time, role, text; coloured where standard output is a terminal."""
    text = printable(line.text.expandtabs())
    if as_json:
        echo(json.dumps({**asdict(line), "text": text}))
        return
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at))
    kind, _, number = line.role.partition(" ")
    color = _COLORS[int(number) % len(_COLORS)] if number.isdecimal() else typer.colors.GREEN
    role = typer.style(f"{printable(line.role):<{_WIDTH}}", fg=None if kind == "job" else color)
    echo(f"{typer.style(stamp, dim=True)} {role} {text}")
