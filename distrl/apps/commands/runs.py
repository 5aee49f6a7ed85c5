"""`distrl runs` and `distrl compare`: runs side by side, live and finished, from their directories."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from distrl.apps.commands import completion
from distrl.apps.commands.options import redis_url_option
from distrl.apps.commands.printing import echo
from distrl.errors import ConfigError, printable
from distrl.memory_backend.credentials import url_of_environment
from distrl.runs.directories import find_runs
from distrl.runs.listing import SORTS, compare_runs, entry_name, listed, ordered, selected

PATIENCE_S = 2.0
"""After this time a command prints that it is still working."""


def runs(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="[DIR]…", help="Folders of runs. [dim]Default: runs/.[/]")
    ] = None,
    env: Annotated[
        str | None, typer.Option(metavar="ID", help="Only runs of this environment; * and ? match anything.")
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs with this algorithm, likewise.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE",
            help="running, ended, gone (without a summary), damaged, solved, stopped, interrupted or failed.",
        ),
    ] = None,
    sort: Annotated[str, typer.Option(metavar="COLUMN", help=f"{', '.join(SORTS)}.")] = "started",
    archived: Annotated[bool, typer.Option("--archived", help="Also runs that the dashboard has archived.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="All facts about each, as a JSON list.")] = False,
    redis_url: Annotated[
        str | None,
        redis_url_option("List the runs that this Redis holds, with the ages of heartbeats.", of_environment=False),
    ] = None,
    remove: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Remove what this run has left in Redis (--redis-url, or DISTRL_REDIS_URL)."),
    ] = None,
) -> None:
    """List runs, live and finished, the newest first.

    [cyan]distrl runs[/]

    [cyan]distrl runs runs sweeps --env 'CartPole*' --state solved --sort env_steps_per_s[/]

    [cyan]distrl runs --redis-url redis://host:6379[/], and [cyan]--remove ID[/] for one that has died
    """
    if redis_url is not None or remove is not None:
        if folders or env or algorithm or state or archived or sort != "started":
            raise ConfigError("--redis-url and --remove are about runs in Redis; use them without DIR and filters")
        _runs_in_redis(redis_url or url_of_environment(), remove, as_json=as_json)
        return
    places = folders or [Path("runs")]
    if folders is None and not places[0].is_dir():
        raise ConfigError(f"there is no folder runs/ in {Path.cwd()}; name one: distrl runs DIR")
    with waiting("still reading runs …"):
        found = [listed(run, entry_name(run.path, places)) for run in find_runs(places, warn)]
        entries = ordered(selected(found, env, algorithm, state, archived=archived), sort)
    if as_json:
        echo(json.dumps([asdict(one) for one in entries], indent=2))
        return
    from distrl.apps.commands.run_tables import runs_table

    nothing = f"no run in {', '.join(map(str, places))}" + (" matches the filters" if found else "")
    echo(runs_table(entries, now=time.time()) if entries else nothing)
    hidden = 0 if archived else sum(one.archived for one in found)
    if hidden:
        echo(f"{hidden:,} archived {'run is' if hidden == 1 else 'runs are'} left out (--archived lists them, too)")


def _runs_in_redis(url: str | None, remove: str | None, *, as_json: bool) -> None:
    """List the runs that a Redis holds, or remove one of them."""
    if url is None:
        raise ConfigError("--remove needs --redis-url, or the environment variable DISTRL_REDIS_URL")
    # Imported here: other listings need no Redis client.
    from distrl.launch.stored_runs import remove_run, stored_runs

    if remove is not None:
        remove_run(url, remove)
        echo(f"removed the keys of run {remove}")
        return
    found = [*stored_runs(url, warn)]
    if as_json:
        echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    from distrl.apps.commands.run_tables import stored_runs_table

    echo(stored_runs_table([asdict(one) for one in found]) if found else "no run in this Redis")


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN RUN…", help="Directories of runs, or folders of them.", autocompletion=completion.runs
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show the differences between configurations of runs, and the outcome of each.

    [cyan]distrl compare runs/first runs/second[/]
    """
    with waiting("still reading runs …"):
        found = [*find_runs(runs, warn)]
        if len(found) < 2:
            count = "one run" if found else "no run"
            raise ConfigError(f"there is nothing to compare: {count} in {', '.join(map(str, runs))}; name two or more")
        compared = compare_runs(found)
    if as_json:
        echo(json.dumps(compared.json(), indent=2))
        return
    from distrl.apps.commands.run_tables import comparison_tables

    echo(comparison_tables(compared))


def warn(text: str) -> None:
    """Print one line on stderr about a run that is skipped."""
    echo(f"distrl: passed over: {printable(' '.join(text.split()))}", err=True)


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """While inside, print the text on a terminal's stderr after two seconds."""
    if not sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(PATIENCE_S, lambda: echo(text, err=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
