"""`distrl actors`: join a run with actors of this host."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.apps.commands.options import AllowOption, redis_url_option
from distrl.apps.commands.printing import echo
from distrl.errors import ConfigError, printable
from distrl.health import beating

if TYPE_CHECKING:
    from distrl.launch.run_to_join import RunToJoin


def actors(
    run_id: Annotated[str | None, typer.Option(metavar="ID", help="The run to join.")] = None,
    redis_url: Annotated[
        str | None, redis_url_option("Redis of the run. [dim]Or in DISTRL_REDIS_URL.[/]", of_environment=False)
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The run's directory, where this host has it: it names Redis, run, key and password."
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of actors. [dim]Default: one for each core.[/]"),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the run and its key file, and while Redis cannot be reached.")
    ] = False,
    log_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Logs of the actors. [dim]Default: actors-ID, or logs in --run-dir.[/]"),
    ] = None,
    dated: Annotated[bool, typer.Option("--dated", help="Lines that begin with date and time, for a log.")] = False,
    allow: AllowOption = None,
) -> None:
    """Join a run with actors of this host, until it ends.

    Ids come from the run. Actors that fail start again within actors.restart_budget. Ctrl-C and SIGTERM let every actor
    deliver the unroll that it has begun. Set DISTRL_RUN_KEY, or DISTRL_RUN_KEY_FILE, as for [cyan]distrl actor[/].

    [cyan]distrl actors --redis-url redis://host:6379 --run-id 20260101-120000-abcdef --count 8[/]

    [cyan]distrl actors --run-dir runs/pong --wait[/] follows the run to another host and Redis, too, and waits for the
    next launch after one that SIGTERM has ended.

    [cyan]DISTRL_RUN_KEY_FILE=run.key distrl actors --redis-url redis://host:6379 --run-id pong --wait[/]

    Exit code: 0 the run has ended, or SIGTERM; 130 Ctrl-C; 2 configuration; 6 no such run, or Redis cannot be reached.
    """
    # Imported here: the help needs none of it.
    from distrl.interrupt import interruptible
    from distrl.launch.joined_actors import join_actors
    from distrl.machine import cores

    to_join = _run_to_join(run_dir, run_id, redis_url, frozenset(allow or ()))
    with beating("actors"), interruptible() as interrupt:
        outcome = join_actors(
            to_join,
            cores() if count is None else count,
            wait=wait,
            log_dir=log_dir or (run_dir / "logs" if run_dir else Path(f"actors-{run_id}")),
            report=_reporter(dated=dated),
            interrupt=interrupt,
        )
    if outcome.error is not None:
        with suppress(OSError):  # without a reader, the exit code still reports it
            echo(f"distrl: error: {printable(' '.join(outcome.error.split()))}", err=True)
    raise typer.Exit(outcome.exit_code)


def _reporter(*, dated: bool) -> Callable[[str], None]:
    """Return what prints a line, until standard output is gone."""
    from distrl.terminal.console import PlainView, QuietView, UntilGoneView

    def write(text: str) -> None:
        echo(printable(text))

    return UntilGoneView(PlainView(dated=True, write=write) if dated else QuietView(write=write)).event


def _run_to_join(
    run_dir: Path | None, run_id: str | None, redis_url: str | None, allowed: frozenset[str]
) -> "RunToJoin":
    from distrl.launch.run_to_join import NamedRun, RunOfDirectory
    from distrl.memory_backend.credentials import url_of_environment
    from distrl.roles.trust import Trust, given_key

    if run_dir is not None:
        if run_id is not None or redis_url is not None:
            raise ConfigError("--run-dir names run and Redis; leave --run-id and --redis-url out")
        return RunOfDirectory(run_dir, allowed)
    url = redis_url or url_of_environment()
    if run_id is None or url is None:
        raise ConfigError("name the run: --run-dir DIR, or --run-id ID with --redis-url URL or DISTRL_REDIS_URL")
    return NamedRun(url, run_id, lambda: Trust(given_key(), allowed))
