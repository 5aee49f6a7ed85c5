"""`distrl health`: the probe of a container."""

from typing import Annotated

import typer

from distrl import health as files
from distrl.errors import ConfigError


def health(
    role: Annotated[
        str | None,
        typer.Option(metavar="KIND", help=f"Judge these alone: {', '.join(files.KINDS)}. [dim]Default: all.[/]"),
    ] = None,
    within: Annotated[float, typer.Option(min=0.1, metavar="S", help="Greatest age of a heartbeat.")] = files.WITHIN_S,
) -> None:
    """Look whether distrl's processes here are alive, by the heartbeats in the directory DISTRL_HEALTH_DIR.

    For probes of containers: it needs neither Redis nor the run, and takes a tenth of a second. Processes write
    heartbeats where they find the variable, as in distrl's images.

    [cyan]distrl health[/]

    [cyan]distrl health --role learner --within 60[/]

    Exit code: 0 every kind of process that is here has a new heartbeat; 1 one has none, or there is no process; 2
    usage.
    """
    if role not in (None, *files.KINDS):
        raise ConfigError(f"--role {role}: name {', '.join(files.KINDS)}")
    raise typer.Exit(files.probe(role, within))
