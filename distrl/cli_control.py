"""Commands for a job that runs: they read and ask through its registry in Redis."""

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.config.load import parse_assignment
from distrl.launch import attach
from distrl.memory_backend.registry_interface import rates_while_paused
from distrl.metrics.summary import closing_text

if TYPE_CHECKING:
    from distrl.memory_backend.registry_interface import Errand
    from distrl.memory_backend.steering import Steering

POLL_S = 0.1
RunOption = Annotated[
    Path | None,
    typer.Option("--run", metavar="DIR", help="A run's directory. [dim]Default: the newest under runs/.[/]"),
]
UrlOption = Annotated[
    str | None, typer.Option("--redis-url", help="Redis of the run, with --run-id. [dim]Or in DISTRL_REDIS_URL.[/]")
]
IdOption = Annotated[str | None, typer.Option("--run-id", metavar="ID", help="A run by its id, without its directory.")]


def status(
    run: RunOption = None,
    redis_url: UrlOption = None,
    run_id: IdOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show how a run is doing, or how it ended.

    Example: [cyan]distrl status --run runs/first[/]
    """
    target = attach.find_target(run, redis_url, run_id)
    if target.summary is not None:
        text = closing_text(target.summary, target.run_dir)
        typer.echo(target.summary.model_dump_json(indent=2) if as_json else f"{target.run_id}: {text}")
        return
    with attach.open_backend(target) as backend:
        registry = backend.registry
        control, roles, counts = registry.control(), registry.roles(), backend.ledger.counts()
        snapshots = registry.snapshots("0")
    snapshot = {**snapshots[-1][1], **rates_while_paused(roles)} if snapshots else {}
    if as_json:
        told = {"run_id": target.run_id, "control": asdict(control), "snapshot": snapshot}
        rows = [asdict(role) for role in roles]
        typer.echo(
            json.dumps({**told, "roles": rows, "ledger": asdict(counts), "imbalance": counts.imbalance}, indent=2)
        )
        return
    # Imported here: tables are rich's, which other commands need not load.
    from distrl.cli_tables import print_status

    print_status(target.run_id, control, roles, counts, snapshot)


def scale(
    actors: Annotated[int, typer.Argument(min=1, metavar="N", help="How many actors there are to be.")],
    run: RunOption = None,
    redis_url: UrlOption = None,
    run_id: IdOption = None,
) -> None:
    """Change the number of actors while a run goes on.

    Example: [cyan]distrl scale 8[/]
    """
    with _steering(run, redis_url, run_id) as job:
        job.scale(actors)
    typer.echo(f"asked for {actors} actors; distrl status shows them come and go")


def pause(run: RunOption = None, redis_url: UrlOption = None, run_id: IdOption = None) -> None:
    """Let the actors wait after the unroll in hand; nothing is lost.

    Example: [cyan]distrl pause[/]
    """
    with _steering(run, redis_url, run_id) as job:
        job.pause()
    typer.echo("asked to pause; distrl resume goes on")


def resume(run: RunOption = None, redis_url: UrlOption = None, run_id: IdOption = None) -> None:
    """Go on after a pause.

    Example: [cyan]distrl resume[/] (a run that has ended is continued by [cyan]distrl train --resume DIR[/])
    """
    with _steering(run, redis_url, run_id) as job:
        job.resume()
    typer.echo("asked to go on")


def stop(run: RunOption = None, redis_url: UrlOption = None, run_id: IdOption = None) -> None:
    """End a run in order: it saves a checkpoint, writes its summary and exits with 0.

    Example: [cyan]distrl stop --run runs/first[/]
    """
    with _steering(run, redis_url, run_id) as job:
        job.stop()
    typer.echo("asked to stop")


def checkpoint(run: RunOption = None, redis_url: UrlOption = None, run_id: IdOption = None) -> None:
    """Save what is learned now, and say when it is there.

    Example: [cyan]distrl checkpoint[/]
    """
    _run_errand("checkpoint", lambda job: job.checkpoint(), run, redis_url, run_id)
    typer.echo("all that was learned when you asked is in a checkpoint")


def evaluate_now(run: RunOption = None, redis_url: UrlOption = None, run_id: IdOption = None) -> None:
    """Evaluate the newest weights now, and say when that is done.

    Example: [cyan]distrl evaluate-now[/] (a run that has ended: [cyan]distrl evaluate DIR[/])
    """
    _run_errand("evaluation", lambda job: job.evaluate(), run, redis_url, run_id)
    typer.echo("evaluated; distrl status and the run's events tell what came of it")


def set_parameters(
    sets: Annotated[
        list[str] | None, typer.Argument(metavar="PATH=VALUE…", help="As of --set; none: show what can change.")
    ] = None,
    run: RunOption = None,
    redis_url: UrlOption = None,
    run_id: IdOption = None,
) -> None:
    """Change parameters while a run goes on; checkpoints remember them.

    Example: [cyan]distrl set network.learning_rate=1e-4 algorithm.entropy_weight=0.001[/]
    """
    assignments = (parse_assignment(text, "distrl set") for text in sets or ())
    settings = {".".join(path): value for path, value in assignments}
    with _steering(run, redis_url, run_id) as job:
        if settings:
            job.change(settings)
        now = job.steerable()
    for parameter in now:
        value = "(a schedule)" if parameter.value is None else parameter.value
        typer.echo(f"{parameter.path} = {value}  # {parameter.meaning}")


def _steering(run: Path | None, redis_url: str | None, run_id: str | None) -> "AbstractContextManager[Steering]":
    return attach.steering(attach.find_target(run, redis_url, run_id), "command line")


def _run_errand(
    errand: "Errand",
    ask: "Callable[[Steering], int]",
    run: Path | None,
    redis_url: str | None,
    run_id: str | None,
) -> None:
    """Asks for it and waits until it is done."""
    # Imported here: rich costs time that other commands need not pay.
    from rich.console import Console

    with _steering(run, redis_url, run_id) as job:
        number = ask(job)
        with Console(stderr=True).status(f"{errand} asked for; waiting for it (Ctrl-C leaves it to the run) …"):
            while not job.is_done(errand, number):
                time.sleep(POLL_S)
