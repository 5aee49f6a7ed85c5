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
from distrl.launch.attach import find_target, open_backend
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
    job: RunOptions,
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
    for finding in _findings(job.path if job.name is not None else None, job.redis_url, job.run_id):
        found.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        echo(json.dumps([finding._asdict() for finding in found], indent=2))
    errors, warnings = (sum(finding.health == health for finding in found) for health in ("error", "warning"))
    if not as_json:
        echo(f"\n{_count(errors, 'problem')}, {_count(warnings, 'warning')}")
    raise typer.Exit(1 if errors else 0)


def _findings(run: Path | None, redis_url: str | None, run_id: str | None) -> "Iterator[Finding]":
    from distrl.apps.doctor.machine import examine_machine
    from distrl.apps.doctor.redis import examine_redis

    if run is not None or run_id is not None:
        yield from _of_run(run, redis_url, run_id)
        return
    yield from examine_machine(Path("runs"))
    yield from examine_redis(redis_url or url_of_environment())


def _of_run(run: Path | None, redis_url: str | None, run_id: str | None) -> "Iterator[Finding]":
    from distrl.apps.doctor.findings import Finding
    from distrl.apps.doctor.redis import examine_redis
    from distrl.apps.doctor.run import ended, examine_run, in_one_process

    try:
        target = find_target(run, redis_url, run_id)
    except ConfigError as error:
        if run is None or redis_url or run_id or not (run / "run.json").is_file():
            raise  # wrong words
        yield Finding("error", "run", str(error))
        return
    if target.summary is not None:
        yield ended(target.summary, str(target.run_dir))
        return
    if target.redis_url is None:
        assert target.run_dir is not None  # other runs are found by their Redis
        yield in_one_process(target.run_dir)
        return
    yield from examine_redis(target.redis_url)
    try:
        with open_backend(target) as backend:
            yield from examine_run(backend, target.run_id)
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
