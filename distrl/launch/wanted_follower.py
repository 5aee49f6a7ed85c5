"""The wanted number of actors of a run, as other processes follow it: `distrl autoscale`, and starters of actors."""

import time
from collections.abc import Callable

from distrl.errors import FencedError, MissingRunError, OutageError
from distrl.memory_backend.backend import Backend

LOOK_EVERY_S = 1.0
PATIENCE_S = 60.0
"""Longest outage of Redis that a follower survives; the supervisor decides nothing meanwhile."""


def follow_wanted(
    backend: Backend, most: int, act: Callable[[int, str], None], pause: Callable[[float], None] = time.sleep
) -> str:
    """Call `act` with the wanted number and its reason, at first and whenever it changes, until the run ends.

    Args:
        most: Highest number that `act` is called with. An actor host that is taken over can write any into Redis.

    Returns:
        Why it ended, in words.

    Raises:
        OutageError: Redis did not answer for `PATIENCE_S`.
    """
    told: int | None = None
    answered_at = time.monotonic()
    while True:
        try:
            stop = backend.registry.control().stop
            backend.check_launch()
            supervisor = backend.registry.supervisor()
        except MissingRunError:
            return "the run has ended"
        except FencedError:
            return "the run was launched again"
        except OutageError:
            if time.monotonic() - answered_at > PATIENCE_S:
                raise
        else:
            answered_at = time.monotonic()
            if stop is not None:
                return f"the run ends: {stop}"
            if supervisor is not None and supervisor.actors_wanted is not None:
                wanted = min(max(supervisor.actors_wanted, 1), most)
                if wanted != told:
                    told = wanted
                    act(wanted, supervisor.wanted_because)
        pause(LOOK_EVERY_S)
