"""The wanted number of actors of a run, as other processes follow it: `distrl autoscale`."""

import time
from collections.abc import Callable

from distrl.errors import FencedError, MissingRunError, OutageError
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.records import Control
from distrl.roles.plan import ACTORS_ON_CLUSTER

LOOK_EVERY_S = 1.0
TURNED_OFF = "autoscaling was ended"
PATIENCE_S = 60.0
"""Longest outage of Redis that a follower survives; the supervisor decides nothing meanwhile."""


def follow_wanted(
    backend: Backend, act: Callable[[int, str], bool], pause: Callable[[float], None] = time.sleep
) -> str:
    """Call `act` with the wanted number and its reason, at first and whenever it changes, until the run ends.

    The number is within the bounds that operators have set: an actor host that is taken over can write any number into
    the supervisor's heartbeat, but no bound.

    Args:
        act: Returns whether the number is followed; if not, it is called again a second later.

    Returns:
        Why it ended, in words.

    Raises:
        OutageError: Redis did not answer for `PATIENCE_S`.
    """
    followed: int | None = None
    answered_at = time.monotonic()
    while True:
        try:
            control = backend.registry.control()
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
            if control.stop is not None:
                return f"the run ends: {control.stop}"
            if control.autoscale is False:
                return TURNED_OFF
            if supervisor is not None and (wanted := _within(control, supervisor.actors_wanted)) != followed:
                why = supervisor.wanted_because if wanted == supervisor.actors_wanted else "the bounds have changed"
                followed = wanted if wanted is None or act(wanted, why) else None
        pause(LOOK_EVERY_S)


def _within(control: Control, wanted: int | None) -> int | None:
    """Return the wanted number within the bounds in force."""
    most = control.max_actors or ACTORS_ON_CLUSTER
    return None if wanted is None else min(max(wanted, control.min_actors or 1), most)
