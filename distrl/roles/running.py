"""Run one role to its end and return its exit code; the same for processes, Ray and `distrl actor`."""

import os
import threading
from collections.abc import Iterable
from contextlib import closing
from importlib import import_module

from distrl.errors import ConfigError, DistrlError, ExitError, MissingRunError, bounded, one_line
from distrl.health import beating
from distrl.memory_backend.keys import checked_actor
from distrl.networks.framework.lean_import import collector_at_rest
from distrl.role_kinds import KINDS
from distrl.roles.description import RunAddress
from distrl.roles.join import JoinedRole, be_done, become, give_way, join, log
from distrl.roles.lifeline import LIFELINE_VARIABLE
from distrl.roles.plan import Role
from distrl.roles.presence import living
from distrl.roles.trust import Trust, given_key


def run_role(role: Role, address: RunAddress, stop: threading.Event) -> int:
    """Run a role until it ends by itself, or because `stop` was set.

    Returns:
        The exit code of errors.py. Errors are logged as one line behind 'distrl: error:', tracebacks above it.
    """
    try:
        _make_role(role, address, stop).run()
    except DistrlError as error:
        if role.kind != "learner" and isinstance(error, MissingRunError) and error.ended:
            log.info("%s", error)  # the keys are removed a moment after the end, of which a slow role may not know
            return 0
        log.info("traceback", exc_info=True)
        log.error("distrl: error: %s", bounded(str(error)))
        return error.exit_code
    except SystemExit as error:
        log.info("traceback", exc_info=True)
        log.error("distrl: error: %s", ExitError(error))
        return ExitError.exit_code
    except BaseException as error:  # also KeyboardInterrupt of the run's code: Ctrl-C sets `stop`
        log.info("traceback", exc_info=True)
        log.error("distrl: error: unexpected %s: %s", type(error).__name__, bounded(one_line(error)))
        return 1
    return 0


def _make_role(role: Role, address: RunAddress, stop: threading.Event) -> JoinedRole:
    module, _, name = KINDS[role.kind].entry.partition(":")
    with collector_at_rest():  # imported here: no role needs another one's modules
        kind: type[JoinedRole] = getattr(import_module(module), name)
    return kind(role, address, stop)


def run_here(role: Role, *, redis_url: str, run_id: str, allowed: Iterable[str] = ()) -> int:
    """Run `distrl actor`, `distrl evaluator` or `distrl learner`: this process becomes the role.

    Args:
        allowed: Names of code that the operator allows the run's description to name.

    Raises:
        ConfigError: The actor's id is not allowed; or the run has such a role: of two actors with one id only one is
            seen and watched, and two learners would fence each other out and write the same checkpoints.
    """
    checked_actor(role.id)
    address = RunAddress(redis_url, run_id, Trust(given_key(), frozenset(allowed)))
    if role.kind != "evaluator" and LIFELINE_VARIABLE not in os.environ:  # a parent knows that its role is gone
        refuse_second(role, address)
    stop = threading.Event()
    become(role.name, stop)
    give_way(role)
    try:
        with beating(role.kind):
            return run_role(role, address, stop)
    finally:
        be_done()


def refuse_second(role: Role, address: RunAddress) -> None:
    """Raise ConfigError if another process sends heartbeats as this role."""
    with closing(join(address, role)[0]) as backend:
        alive = living(lambda: backend.registry.heartbeats([role.key]))
    if alive is None:
        return
    remedy = "choose another --id, or use distrl actors" if role.kind == "actor" else "stop it first"
    raise ConfigError(f"run {address.run_id} has {alive}; {remedy}")
