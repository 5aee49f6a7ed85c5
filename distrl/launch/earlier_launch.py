"""The launch before this one: keys of the same run that still stand in Redis, because its supervisor has died."""

import json
from contextlib import closing

from distrl.errors import ConfigError, MissingRunError
from distrl.memory_backend.backend import connect
from distrl.roles.description import Run
from distrl.roles.presence import living


def remove_earlier_launch(run: Run) -> str | None:
    """Remove the keys of a launch of the same run and directory that has died; nothing if there is none.

    Returns:
        One line for the user; None if there was nothing to remove.

    Raises:
        ConfigError: It lives; or a run of that id belongs to another directory.
        MemoryBackendError: Redis is unreachable, or the run is of another protocol version.
    """
    address, description = run.address, run.description
    with closing(connect(address.redis_url, address.run_id, name="supervisor", give_up_s=3.0)) as first:
        try:
            earlier = first.of_standing_launch()
            found = earlier.config_json()
        except MissingRunError:
            return None
        if (alive := living(earlier.registry, ["supervisor", "learner"])) is not None:
            raise ConfigError(
                f"run {address.run_id} at {earlier.engine.url} goes on: {alive}, sends heartbeats; stop it first, or "
                "choose another --run-id"
            )
        run_dir = _directory(found)
        if run_dir != description.run_dir:
            raise ConfigError(
                f"run {address.run_id} at {earlier.engine.url} has ended without removing its keys, and its directory "
                f"is {run_dir}; choose another --run-id, or remove it: distrl runs --redis-url URL --remove "
                f"{address.run_id}"
            )
        earlier.delete()  # not those of a third launch, if one has begun meanwhile
    return f"removed what an earlier launch of {address.run_id} had left in Redis"


def _directory(description: str) -> str:
    try:
        return str(json.loads(description)["run_dir"])
    except (ValueError, KeyError, TypeError):
        return "unknown"
