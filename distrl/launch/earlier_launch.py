"""The launch before this one: keys of the same run that still stand in Redis, because its supervisor has died."""

import json
from contextlib import closing

from distrl.errors import ConfigError, MissingRunError
from distrl.memory_backend.backend import connect
from distrl.roles.presence import leaders, living


def dead_launch(url: str, run_id: str, run_dir: str) -> str | None:
    """Connect to Redis, and check that a run of this id may be launched there from this directory.

    Args:
        run_dir: As the run's description has it: absolute.

    Returns:
        Token of the launch whose keys stand there, which the next one replaces; None if there are none.

    Raises:
        ConfigError: A run of that id lives, or belongs to another directory.
        MemoryBackendError: Redis is unreachable, or the run is of another protocol version.
    """
    with closing(connect(url, run_id, name="supervisor", give_up_s=3.0)) as first:
        try:
            earlier = first.of_standing_launch()
            found = earlier.config_json()
        except MissingRunError:
            return None
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
        return earlier.launch


def _directory(description: str) -> str:
    try:
        return str(json.loads(description)["run_dir"])
    except (ValueError, KeyError, TypeError):
        return "unknown"
