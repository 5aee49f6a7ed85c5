"""`distrl actors`: join a run with actors of this host."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from distrl.commands.evaluate import AllowOption
from distrl.commands.options import JoinedRedisOption
from distrl.errors import printable


def actors(
    run_id: Annotated[str, typer.Option(metavar="ID", help="The run to join.")],
    redis_url: JoinedRedisOption,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of actors. [dim]Default: one for each core.[/]"),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the run and its key file, and while Redis cannot be reached.")
    ] = False,
    log_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Logs of the actors. [dim]Default: actors-ID.[/]")
    ] = None,
    allow: AllowOption = None,
) -> None:
    """Join a run with actors of this host, until it ends.

    Ids come from the run. Actors that fail start again within actors.restart_budget. Ctrl-C and SIGTERM let every actor
    deliver the unroll that it has begun. Set DISTRL_RUN_KEY, or DISTRL_RUN_KEY_FILE, as for [cyan]distrl actor[/].

    [cyan]distrl actors --redis-url redis://host:6379 --run-id 20260101-120000-abcdef --count 8[/]

    [cyan]DISTRL_RUN_KEY_FILE=run.key distrl actors --redis-url redis://host:6379 --run-id pong --wait[/]

    Exit code: 0 the run has ended, or SIGTERM; 130 Ctrl-C; 2 configuration; 6 no such run, or Redis cannot be reached.
    """
    # Imported here: the help needs none of it.
    from distrl.interrupt import interruptible
    from distrl.launch.joined_actors import join_actors
    from distrl.roles.machine import cores
    from distrl.roles.trust import Trust, given_key
    from distrl.terminal.console import QuietView, UntilGoneView

    with interruptible() as interrupt:
        outcome = join_actors(
            redis_url,
            run_id,
            lambda: Trust(given_key(), frozenset(allow or ())),
            cores() if count is None else count,
            wait=wait,
            log_dir=Path(f"actors-{run_id}") if log_dir is None else log_dir,
            report=UntilGoneView(QuietView(write=lambda text: print(printable(text), flush=True))).event,
            interrupt=interrupt,
        )
    if outcome.error is not None:
        with suppress(OSError):  # without a reader, the exit code still reports it
            typer.echo(f"distrl: error: {printable(' '.join(outcome.error.split()))}", err=True)
    raise typer.Exit(outcome.exit_code)
