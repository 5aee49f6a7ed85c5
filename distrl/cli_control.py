"""Commands for a job that runs: status, scale, pause, resume, stop. They act through the run's registry in Redis."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel, ValidationError

from distrl.errors import ConfigError
from distrl.metrics.summary import Summary, closing_text

if TYPE_CHECKING:
    from distrl.memory_backend.backend import Backend

RunOption = Annotated[
    Path | None,
    typer.Option("--run", metavar="DIR", help="A run's directory. [dim]Default: the newest under runs/.[/]"),
]
UrlOption = Annotated[
    str | None, typer.Option("--redis-url", help="Redis of the run, with --run-id. [dim]Or in DISTRL_REDIS_URL.[/]")
]
IdOption = Annotated[str | None, typer.Option("--run-id", metavar="ID", help="A run by its id, without its directory.")]


class RunRecord(BaseModel):
    """run.json: how to reach the running job. `redis_url` is None where everything is one process."""

    run_id: str
    redis_url: str | None
    pid: int


@dataclass(frozen=True)
class Target:
    """The run a command is meant for; `summary` is set once it has ended."""

    run_id: str
    redis_url: str | None
    run_dir: Path | None = None
    summary: Summary | None = None


def status(
    run: RunOption = None,
    redis_url: UrlOption = None,
    run_id: IdOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show how a run is doing, or how it ended.

    Example: [cyan]distrl status --run runs/first[/]
    """
    target = find_target(run, redis_url, run_id)
    if target.summary is not None:
        text = closing_text(target.summary, target.run_dir)
        typer.echo(target.summary.model_dump_json(indent=2) if as_json else f"{target.run_id}: {text}")
        return
    with open_backend(target) as backend:
        registry = backend.registry
        control, roles, counts = registry.control(), registry.roles(), backend.ledger.counts()
        snapshots = registry.snapshots("0")
    snapshot = snapshots[-1][1] if snapshots else {}
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
    _ask(find_target(run, redis_url, run_id), lambda backend: backend.registry.set_control(target_actors=actors))
    typer.echo(f"asked for {actors} actors; distrl status shows them come and go")


def pause(run: RunOption = None, redis_url: UrlOption = None, run_id: IdOption = None) -> None:
    """Let the actors wait after the unroll in hand; nothing is lost.

    Example: [cyan]distrl pause[/]
    """
    _ask(find_target(run, redis_url, run_id), lambda backend: backend.registry.set_control(paused=True))
    typer.echo("asked to pause; distrl resume goes on")


def resume(run: RunOption = None, redis_url: UrlOption = None, run_id: IdOption = None) -> None:
    """Go on after a pause.

    Example: [cyan]distrl resume[/] (a run that has ended is continued by [cyan]distrl train --resume DIR[/])
    """
    _ask(find_target(run, redis_url, run_id), lambda backend: backend.registry.set_control(paused=False))
    typer.echo("asked to go on")


def stop(run: RunOption = None, redis_url: UrlOption = None, run_id: IdOption = None) -> None:
    """End a run in order: it saves a checkpoint, writes its summary and exits with 0.

    Example: [cyan]distrl stop --run runs/first[/]
    """
    _ask(find_target(run, redis_url, run_id), lambda backend: backend.registry.set_control(stop="asked"))
    typer.echo("asked to stop")


def find_target(run: Path | None, redis_url: str | None, run_id: str | None) -> Target:
    """The run that --run, or --redis-url with --run-id, or nothing at all (the newest under runs/) names.

    Raises:
        ConfigError: No such run, or one whose process is gone without a summary.
    """
    if run_id is not None:
        if run is not None:
            raise ConfigError(f"--run {run} and --run-id {run_id} both name a run; give one of them")
        url = redis_url or os.environ.get("DISTRL_REDIS_URL")
        if url is None:
            raise ConfigError("--run-id needs --redis-url, or the environment variable DISTRL_REDIS_URL")
        return Target(run_id, url)
    if redis_url is not None:
        raise ConfigError("--redis-url needs --run-id, which the run's title and its run.json show")
    run_dir = run if run is not None else _newest(Path("runs"))
    record = _read_record(run_dir / "run.json")
    if (run_dir / "summary.json").is_file():
        summary = Summary.read(run_dir / "summary.json")
        if summary.run_id == record.run_id:  # otherwise that of an earlier launch, which this one has resumed
            return Target(record.run_id, None, run_dir, summary)
    if not _alive(record.pid):
        raise ConfigError(
            f"{run_dir} does not run: its process {record.pid} is gone and left no summary; "
            f"go on with distrl train --resume {run_dir}"
        )
    return Target(record.run_id, record.redis_url, run_dir)


@contextmanager
def open_backend(target: Target) -> Iterator["Backend"]:
    """The memory backend of a run that has not ended.

    Raises:
        ConfigError: The run has no Redis.
        MemoryBackendError: Redis does not answer within seconds, or does not know the run.
    """
    if target.redis_url is None:
        raise ConfigError(f"{target.run_dir} is one process without Redis (actors.count: 0); Ctrl-C ends it")
    # Imported here: the CLI's help needs no Redis client.
    import sys

    from distrl.memory_backend.backend import QueueCaps
    from distrl.memory_backend.redis_backend import RedisBackend

    no_producer = QueueCaps(entries=sys.maxsize, bytes=sys.maxsize)
    backend = RedisBackend.open(target.redis_url, target.run_id, no_producer, name="cli", give_up_s=3.0)
    try:
        backend.config_json()  # raises for a run that is not there, before anything is written under its name
        yield backend
    finally:
        backend.close()


def _ask(target: Target, change: Callable[["Backend"], None]) -> None:
    if target.summary is not None:
        raise ConfigError(f"{target.run_dir} has ended ({target.summary.stop_reason}); distrl status shows how")
    with open_backend(target) as backend:
        change(backend)


def _newest(runs: Path) -> Path:
    records = sorted(runs.glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    if not records:
        raise ConfigError(f"there is no run under {runs.resolve()}; name one: --run DIR")
    return records[-1].parent


def _read_record(path: Path) -> RunRecord:
    try:
        return RunRecord.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path.parent} is not a run's directory: {path.name}: {error.strerror}") from error
    except ValidationError as error:
        raise ConfigError(f"{path} is damaged: {error.errors(include_url=False)[0]['msg']}") from error


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's process, but a process
        return True
    return True
