"""The launch before this one: keys of the same run that still stand in Redis, because its supervisor has died."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager

from distrl.errors import ConfigError, MissingRunError
from distrl.memory_backend.backend import Backend, connect
from distrl.roles.description import Run
from distrl.roles.presence import leaders, living


def check_run_id(url: str, run_id: str, run_dir: str) -> None:
    """Connect to Redis once, and check that a run of this id may be launched there from this directory.

    Args:
        run_dir: As the run's description has it: absolute.

    Raises:
        ConfigError: A run of that id lives, or belongs to another directory.
        MemoryBackendError: Redis is unreachable, or the run is of another protocol version.
    """
    with _dead_launch(url, run_id, run_dir):
        pass


def remove_earlier_launch(run: Run) -> str | None:
    """Remove the keys of a launch of the same run and directory that has died; nothing if there is none.

    Returns:
        One line for the user; None if there was nothing to remove.

    Raises:
        ConfigError, MemoryBackendError: As `check_run_id`.
    """
    with _dead_launch(run.address.redis_url, run.address.run_id, run.description.run_dir) as earlier:
        if earlier is None:
            return None
        earlier.delete()  # not those of a third launch, if one has begun meanwhile
    return f"removed what an earlier launch of {run.address.run_id} had left in Redis"


@contextmanager
def _dead_launch(url: str, run_id: str, run_dir: str) -> Iterator[Backend | None]:
    """Yield the backend of the launch whose keys stand in Redis; None where there are none."""
    with closing(connect(url, run_id, name="supervisor", give_up_s=3.0)) as first:
        try:
            earlier = first.of_standing_launch()
            found = earlier.config_json()
        except MissingRunError:
            yield None
            return
        if (alive := living(lambda: leaders(earlier.registry))) is not None:
            raise ConfigError(
                f"run {run_id} at {earlier.engine.url} goes on: {alive}, sends heartbeats; stop it first, or choose "
                "another --run-id"
            )
        other = _directory(found)
        if other != run_dir:
            raise ConfigError(
                f"run {run_id} at {earlier.engine.url} has ended without removing its keys, and its directory is "
                f"{other}; choose another --run-id, or remove it: distrl runs --redis-url URL --remove {run_id}"
            )
        yield earlier


def _directory(description: str) -> str:
    try:
        return str(json.loads(description)["run_dir"])
    except (ValueError, KeyError, TypeError):
        return "unknown"
