"""`distrl dashboard`: the page beside trainings."""

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from distrl.apps.commands.printing import echo
from distrl.apps.dashboard.access import READ_ONLY_TOKEN_VARIABLE, TOKEN_VARIABLE
from distrl.apps.dashboard.beside import PORT, require_dashboard
from distrl.apps.web.access import Access, token_of_environment
from distrl.config.secrets import read_secret
from distrl.errors import EXIT_INTERRUPTED, ConfigError
from distrl.health import opened

DEFAULT_RUNS = Path("runs")
AlertsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|off",
        help="YAML with the limits of alerts and a webhook, see docs/dashboard.md; off: no alerts.",
    ),
]
AllowStartOption = Annotated[
    bool,
    typer.Option("--allow-start", help="Let pages start and resume trainings, which run code as you. Needs a token."),
]


def dashboard(
    runs: Annotated[
        Path, typer.Argument(metavar="RUNS_DIR", help="Where the runs are; or one run's own directory.")
    ] = DEFAULT_RUNS,
    host: Annotated[str, typer.Option(metavar="HOST", help="What to listen on; others than loopback need a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="N", help="[dim]Default: 8720, or the next free one.[/]")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help=f"Holds the token. [dim]Or in {TOKEN_VARIABLE}.[/]")
    ] = None,
    read_only_token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help=f"Holds one of those who may only look. [dim]Or in {READ_ONLY_TOKEN_VARIABLE}.[/]"
        ),
    ] = None,
    redis_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Show the runs that this Redis knows of, too, wherever they were launched. May be repeated.",
        ),
    ] = None,
    alerts: AlertsOption = None,
    allow_start: AllowStartOption = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Show runs, live and finished, on a page; steer those that run.

    [cyan]distrl dashboard[/]

    [cyan]distrl dashboard /data/runs --host 0.0.0.0 --token-file token[/]

    [cyan]distrl dashboard --redis-url redis://head:6379[/]
    """
    require_dashboard()
    if not runs.is_dir() and not (redis_url and runs == DEFAULT_RUNS):  # runs of a Redis need no folder here
        raise ConfigError(f"{runs} is no directory; name the one that holds the runs: distrl dashboard RUNS_DIR")
    # Imported here: other commands need no web server.
    from distrl.apps.dashboard.alert_settings import AlertSettings, read_alert_settings
    from distrl.apps.dashboard.live_runs import check_reachable
    from distrl.apps.dashboard.server import make_server
    from distrl.apps.web.listening import listen, url_of

    all_rights = _token(token_file, "--token-file", TOKEN_VARIABLE)
    access = Access(host, all_rights, _token(read_only_token_file, "--read-only-token-file", READ_ONLY_TOKEN_VARIABLE))
    alert_settings = AlertSettings() if alerts is None else read_alert_settings(alerts, os.environ)
    check_reachable(redis_url or ())
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("distrl.apps.dashboard").setLevel(logging.INFO)  # who deletes, edits and starts what
    with listen(host, port, PORT) as listening, opened("dashboard") as beats:
        server = make_server(runs, access, redis_url or (), beats, alert_settings, may_start=allow_start)
        _serve(partial(server.run, sockets=[listening]), runs, url_of(listening), open_page=open_page)


def _serve(run: Callable[[], None], runs: Path, url: str, *, open_page: bool) -> None:
    echo(f"distrl dashboard of {runs} at {url} (Ctrl-C ends it)")
    if open_page:
        typer.launch(url)
    try:
        run()
    except KeyboardInterrupt:  # uvicorn has ended in order, and raises it again
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _token(file: Path | None, option: str, variable: str) -> str | None:
    return token_of_environment(variable) if file is None else read_secret(str(file), option)
