"""Run one role to its end and return its exit code; the same for processes, Ray and `distrl actor`."""

import os
import threading
import time
from collections.abc import Iterable
from contextlib import closing

from distrl.errors import ConfigError, DistrlError
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.keys import checked_actor
from distrl.memory_backend.records import RoleStatus
from distrl.networks.framework.lean_import import collector_at_rest
from distrl.roles.description import RunAddress
from distrl.roles.join import HEARTBEAT_S, JoinedRole, be_done, become, give_way, join, log
from distrl.roles.lifeline import LIFELINE_VARIABLE
from distrl.roles.plan import Role
from distrl.roles.trust import Trust, given_key


def run_role(role: Role, address: RunAddress, stop: threading.Event) -> int:
    """Run a role until it ends by itself, or because `stop` was set.

    Returns:
        The exit code of errors.py. Errors are logged as one line behind 'distrl: error:', tracebacks above it.
    """
    try:
        _make_role(role, address, stop).run()
    except DistrlError as error:
        log.info("traceback", exc_info=True)
        log.error("distrl: error: %s", error)
        return error.exit_code
    except Exception as error:
        log.info("traceback", exc_info=True)
        log.error("distrl: error: unexpected %s: %s", type(error).__name__, " ".join(str(error).split()))
        return 1
    return 0


def _make_role(role: Role, address: RunAddress, stop: threading.Event) -> JoinedRole:
    # Imported here: no role needs another one's modules.
    if role.kind == "actor":
        with collector_at_rest():
            from distrl.roles.actor import ActorRole
        return ActorRole(role, address, stop)
    if role.kind == "evaluator":
        with collector_at_rest():
            from distrl.roles.evaluator import EvaluatorRole
        return EvaluatorRole(role, address, stop)
    from distrl.roles.learner import LearnerRole

    return LearnerRole(role, address, stop)


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
        return run_role(role, address, stop)
    finally:
        be_done()


def refuse_second(role: Role, address: RunAddress) -> None:
    """Raise ConfigError if another process sends heartbeats as this role: one within two intervals."""
    with closing(join(address, role)[0]) as backend:
        before = _heartbeat(backend, role)
        if before is None:
            return
        time.sleep(2 * HEARTBEAT_S + 0.5)
        now = _heartbeat(backend, role) or before
    if (now.incarnation, now.pid, now.beat) == (before.incarnation, before.pid, before.beat):
        return
    who = f"process {now.pid} on {now.host}"
    if role.kind == "actor":
        raise ConfigError(f"run {address.run_id} has {role.name}, {who}; choose another --id, or use distrl actors")
    raise ConfigError(f"run {address.run_id} has a learner, {who}; stop it first, or let its supervisor do it")


def _heartbeat(backend: Backend, role: Role) -> RoleStatus | None:
    registry = backend.registry
    beats = registry.actors([role.id]) if role.kind == "actor" else registry.roles()  # an actor may not read all
    return next((status for status in beats if Role.of(status) == role), None)
