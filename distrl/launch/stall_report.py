"""The report of a run that makes no progress: queues, versions, ages, and the stacks of all roles."""

import time
from collections.abc import Iterator, Mapping, Sequence

from distrl.memory_backend.backend import Backend
from distrl.memory_backend.records import ALL_ROLES, RoleStatus
from distrl.metrics.phrases import used_words
from distrl.roles.join import HEARTBEAT_S
from distrl.roles.plan import Role
from distrl.roles.stacks import stacks

ANSWER_S = 15 * HEARTBEAT_S
"""Longest time for every role that still sends heartbeats to add its stacks."""


def stall_report(backend: Backend, why: str) -> str:
    """Ask all roles for the stacks of their threads; wait until all have answered, at most `ANSWER_S` seconds."""
    registry = backend.registry
    before = {Role.of(status): (status.incarnation, status.beat) for status in registry.roles()}
    deadline, answers = time.monotonic() + ANSWER_S, dict[Role, str]()
    while True:
        registry.set_control(stacks=ALL_ROLES)  # each time: a page that has asked for one role's cancels it
        statuses = registry.roles()
        answers |= {Role.of(status): status.stacks for status in statuses if status.stacks}
        silent = {Role.of(one) for one in statuses if before.get(Role.of(one)) == (one.incarnation, one.beat)}
        if (not silent and answers.keys() >= set(map(Role.of, statuses))) or time.monotonic() >= deadline:
            break
        time.sleep(HEARTBEAT_S / 4)
    registry.set_control(stacks="")
    return "\n".join([why, "", *_numbers(backend), "", *_roles(statuses, silent), "", *_stacks(statuses, answers)])


def _numbers(backend: Backend) -> Iterator[str]:
    counts, control = backend.ledger.counts(), backend.registry.control()
    free, held = backend.tickets.counts()
    dropped = ", ".join(f"{count} {reason}" for reason, count in counts.dropped.items() if count) or "none"
    yield f"unrolls: {counts.queued} queued, {counts.in_flight} in flight, {counts.stream_bytes:,} bytes"
    used = used_words(counts.trained, counts.stored)
    yield f"         {counts.produced} produced, {used}, {counts.lost} lost, dropped: {dropped}"
    yield f"tickets: {free} free, {held} held"
    yield f"weights: version {backend.weights.version()}"
    actors = "autoscaling" if control.autoscale else control.target_actors or "as configured"
    requested = f"{'pause' if control.paused else 'no pause'}, actors: {actors}"
    yield f"requested: {requested}"


def _roles(statuses: Sequence[RoleStatus], silent: set[Role]) -> Iterator[str]:
    for status in statuses:
        role = Role.of(status)
        told = f", SILENT for {ANSWER_S:g} s or longer" if role in silent else ""
        yield (
            f"{role.name}: {status.state}, incarnation {status.incarnation}, weights version {status.weights_version}, "
            f"last step {status.last_step_age_s:.1f} s ago, process {status.pid} on {status.host}{told}"
        )
    if not statuses:
        yield "no role has reported"


def _stacks(statuses: Sequence[RoleStatus], answers: Mapping[Role, str]) -> Iterator[str]:
    for role in map(Role.of, statuses):
        yield f"===== {role.name}\n{answers.get(role, 'no stacks reported')}"
    yield f"===== the run's own command\n{stacks()}"
