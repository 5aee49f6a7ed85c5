"""`distrl autoscale`: let a running job choose its number of actors, and watch it do so."""

import time
from typing import Annotated

import typer

from distrl.commands.help import takes
from distrl.commands.options import RunOptions
from distrl.errors import ConfigError
from distrl.launch import attach


@takes(RunOptions)
def autoscale(
    job: RunOptions,
    least: Annotated[int | None, typer.Option("--min", min=1, metavar="N", help="Fewest actors.")] = None,
    most: Annotated[int | None, typer.Option("--max", min=1, metavar="M", help="Most actors.")] = None,
    off: Annotated[bool, typer.Option("--off", help="End it; the run keeps the actors that it has.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not print what the run decides.")] = False,
) -> None:
    """Let a run choose its number of actors, by how long learner and actors wait for each other.

    It prints each decision until Ctrl-C; the run goes on to decide. distrl scale N ends that, too.

    Example: [cyan]distrl autoscale --min 1 --max 16[/], [cyan]distrl autoscale --off[/]
    """
    if off and (least is not None or most is not None or detach):
        raise ConfigError("--off takes neither --min, --max nor --detach")
    # Imported here: the CLI's help needs no Redis client.
    from distrl.launch.wanted_follower import follow_wanted
    from distrl.roles.plan import ACTORS_ON_CLUSTER

    target = job.target()
    with attach.steering(target, "command line") as steering:
        if off:
            actors = steering.fix_actors()
            kept = "actors join it by themselves" if actors is None else f"the run keeps {_actors(actors)}"
            typer.echo(f"end of autoscaling requested; {kept}")
            return
        bound = steering.autoscale(least, most) or ACTORS_ON_CLUSTER
    typer.echo("autoscaling requested; end it with distrl autoscale --off")
    if detach:
        return
    try:
        with attach.open_backend(target) as backend:
            typer.echo(follow_wanted(backend, bound, _report))
    except KeyboardInterrupt:
        typer.echo("left; the run goes on to choose its number of actors")


def _report(actors: int, reason: str) -> None:
    typer.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {_actors(actors)} wanted: {reason}")


def _actors(count: int) -> str:
    return "1 actor" if count == 1 else f"{count} actors"
