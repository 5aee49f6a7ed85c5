"""`distrl doctor`: find problems of this machine, or of a run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.apps.commands.help import takes
from distrl.apps.commands.options import RunOptions, run_argument
from distrl.apps.commands.printing import echo
from distrl.errors import ConfigError, MemoryBackendError, OutageError, printable
from distrl.memory_backend.credentials import url_of_environment

if TYPE_CHECKING:
    from distrl.apps.doctor.findings import Finding

MARKS = {
    "ok": ("ok", typer.colors.GREEN),
    "warning": ("warn", typer.colors.YELLOW),
    "error": ("FAIL", typer.colors.RED),
}
_WIDTH = 20


@takes(RunOptions)
def doctor(
    named: RunOptions,
    run: Annotated[
        str | None,
        run_argument("A run's directory, or its id under runs/: look at that run. [dim]Default: this machine.[/]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects.")] = False,
) -> None:
    """Look for what could go wrong on this machine, or at what a run waits for, and say what to do.

    Exits with 1 if something would keep a training from running.

    [cyan]distrl doctor[/]

    [cyan]distrl doctor runs/first[/]

    [cyan]distrl doctor --redis-url redis://host:6379[/]
    """
    found = []
    for finding in _findings(named):
        found.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        echo(json.dumps([finding._asdict() for finding in found], indent=2))
    errors, warnings = (sum(finding.health == health for finding in found) for health in ("error", "warning"))
    if not as_json:
        echo(f"\n{_count(errors, 'problem')}, {_count(warnings, 'warning')}")
    raise typer.Exit(1 if errors else 0)


def _findings(named: RunOptions) -> "Iterator[Finding]":
    from distrl.apps.doctor.machine import examine_machine
    from distrl.apps.doctor.redis import examine_redis

    if named.name is not None or named.run_id is not None:
        yield from _of_run(named)
        return
    yield from examine_machine(Path("runs"))
    yield from examine_redis(named.redis_url or url_of_environment())


def _of_run(named: RunOptions) -> "Iterator[Finding]":
    from distrl.apps.doctor.findings import Finding
    from distrl.apps.doctor.redis import examine_redis
    from distrl.apps.doctor.run import ended, examine_run, in_one_process

    try:
        run = named.find()
    except ConfigError as error:
        if named.redis_url or named.run_id or named.path is None or not (named.path / "run.json").is_file():
            raise  # wrong words
        yield Finding("error", "run", str(error))
        return
    if run.summary is not None:
        yield ended(run.summary, str(run.path))
        return
    if run.state == "gone":
        yield Finding("error", "run", run.gone_words)
        return
    if run.record.redis_url is None:
        yield in_one_process(run.path)
        return
    yield from examine_redis(run.record.redis_url)
    try:
        with run.backend() as backend:
            yield from examine_run(backend, run.record.run_id)
    except OutageError as error:
        yield Finding("error", "run", str(error), "the run ends by itself, and its learner saves what it has")
    except MemoryBackendError as error:
        yield Finding("error", "run", str(error))


def _print(finding: "Finding") -> None:
    mark, color = MARKS[finding.health]
    echo(f"{typer.style(f'{mark:<5}', fg=color)}{printable(finding.name):<{_WIDTH}}{printable(finding.found)}")
    if finding.advice:
        echo(typer.style(f"{'':<{5 + _WIDTH}}{printable(finding.advice)}", dim=True))


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
