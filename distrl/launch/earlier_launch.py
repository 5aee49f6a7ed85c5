"""The launch before this one: keys of the same run that still stand in Redis, because its supervisor has died."""

import json
import time
from collections.abc import Callable
from contextlib import closing

from distrl.errors import ConfigError, MissingRunError, OutageError
from distrl.memory_backend.backend import connect
from distrl.roles.presence import leaders, living

POLL_S = 1.0


class LivingLaunchError(ConfigError):
    """A run of the same id lives."""


def wait_for_room(url: str, run_id: str, run_dir: str, wait_s: float, report: Callable[[str], None]) -> None:
    """Check as `dead_launch`; within `wait_s` wait for Redis, and for the end of an earlier launch.

    Args:
        report: Gets one line for each reason to wait.

    Raises:
        LivingLaunchError, OutageError: The time is over.
        ConfigError, MemoryBackendError: As `dead_launch`.
    """
    deadline, told = time.monotonic() + wait_s, ""
    while True:
        try:
            dead_launch(url, run_id, run_dir)
            return
        except (LivingLaunchError, OutageError) as error:
            left_s = deadline - time.monotonic()
            if left_s <= 0.0:
                raise
            reason = "the earlier launch still ends" if isinstance(error, LivingLaunchError) else str(error)
            if reason != told:
                told = reason
                report(f"waiting, {left_s:.0f} s at most (launch.wait_s): {told}")
        time.sleep(min(POLL_S, left_s))


def dead_launch(url: str, run_id: str, run_dir: str) -> str | None:
    """Connect to Redis, and check that a run of this id may be launched there from this directory.

    Args:
        run_dir: As the run's description has it: absolute.

    Returns:
        Token of the launch whose keys stand there, which the next one replaces; None if there are none.

    Raises:
        LivingLaunchError: A run of that id lives.
        ConfigError: It belongs to another directory.
        MemoryBackendError: Redis is unreachable, or the run is of another protocol version.
    """
    with closing(connect(url, run_id, name="supervisor", give_up_s=3.0)) as first:
        try:
            earlier = first.of_standing_launch()
            found = earlier.config_json()
        except MissingRunError:
            return None
        if (alive := living(lambda: leaders(earlier.registry))) is not None:
            raise LivingLaunchError(
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
