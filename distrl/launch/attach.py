"""Find and reach a running job from another process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.data_store.saved_elsewhere import newest_resumable
from distrl.errors import ConfigError
from distrl.memory_backend.credentials import url_of_environment
from distrl.runs.directories import newest_run, open_run
from distrl.runs.summary import Summary

if TYPE_CHECKING:
    from distrl.memory_backend.backend import Backend
    from distrl.memory_backend.steering import Steering


@dataclass(frozen=True)
class Target:
    """The run that a command names; `summary` is set once it has ended."""

    run_id: str
    redis_url: str | None
    run_dir: Path | None = None
    summary: Summary | None = None


def find_target(run: Path | None, redis_url: str | None, run_id: str | None) -> Target:
    """Return the run that --run, or --redis-url with --run-id, or nothing at all (the newest under runs/) names.

    Raises:
        ConfigError: No such run, or one whose process is gone without a summary.
    """
    if run_id is not None:
        if run is not None:
            raise ConfigError(f"--run {run} and --run-id {run_id} both name a run; give one of them")
        url = redis_url or url_of_environment()
        if url is None:
            raise ConfigError("--run-id needs --redis-url, or the environment variable DISTRL_REDIS_URL")
        return Target(run_id, url)
    if redis_url is not None:
        raise ConfigError("--redis-url needs --run-id; distrl runs --redis-url URL lists the ids")
    found = open_run(run if run is not None else newest_run(Path("runs")))
    if found.state == "gone":
        newest = newest_resumable(found.path)
        goes_on = "" if newest is None else f"; go on with distrl train --resume {newest}"
        raise ConfigError(
            f"{found.path} does not run: its process {found.record.pid} is gone and left no summary{goes_on}"
        )
    if found.summary is not None:
        return Target(found.record.run_id, None, found.path, found.summary)
    return Target(found.record.run_id, found.record.redis_url, found.path)


@contextmanager
def open_backend(target: Target) -> Iterator["Backend"]:
    """Open the memory backend of a run that has not ended."""
    if target.redis_url is None:
        raise ConfigError(f"{target.run_dir} is one process without Redis (actors.count: 0); Ctrl-C ends it")
    # Imported here: the CLI's help needs no Redis client.
    from distrl.memory_backend.backend import connect

    backend = connect(target.redis_url, target.run_id, name="cli", give_up_s=3.0)
    try:
        backend.config_json()  # raises for a run that is not there, before anything is written under its name
        yield backend.of_standing_launch()
    finally:
        backend.close()


@contextmanager
def steering(target: Target, by: str) -> Iterator["Steering"]:
    """Open the requests to a run that has not ended; `by` names the interface, for the record."""
    if target.summary is not None:
        raise ConfigError(f"{target.run_dir} has ended ({target.summary.stop_reason}); distrl status shows how")
    # Imported here, as above.
    from distrl.memory_backend.steering import Steering, operator

    with open_backend(target) as backend:
        yield Steering(backend, operator(by))
