"""Addresses of one role of a live run: its newest numbers over time, and the stacks of its threads."""

import re
import time

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from distrl.apps.dashboard.authentication import read_body
from distrl.apps.dashboard.files import NotThereError
from distrl.apps.dashboard.live_runs import LiveRun
from distrl.apps.dashboard.payloads import Answer, Runs
from distrl.errors import ConfigError
from distrl.role_kinds import KINDS

STACKS_S = 4.0
"""Time for the role to send its stacks, which it does with the next but one of its heartbeats."""
POLL_S = 0.2
_NUMBER = re.compile(r"[0-9]{1,19}")


def history(request: Request) -> Response:
    """Return the role's numbers at the newest looks of pages at the run, see `RoleHistory.of`."""
    return Answer(_run(request).history.of(_key(request)))


async def stacks(request: Request) -> Response:
    """Have the role's heartbeat tell the stacks of its threads, and return them."""
    await read_body(request)  # bounded, and of no meaning
    key, run = _key(request), _run(request)
    return Answer({"stacks": await run_in_threadpool(_stacks, run, key)})


def _stacks(run: LiveRun, key: str) -> str:
    try:
        with run.backend() as backend:
            before = {role.key: role.at for role in backend.registry.roles()}
            if key not in before:
                raise NotThereError(f"the run has no {key.replace(':', ' ')}, or it has not reported yet")
            backend.registry.set_control(stacks=key)
        until = time.monotonic() + STACKS_S
        while time.monotonic() < until:
            time.sleep(POLL_S)  # without the connection, which the run's page needs meanwhile
            with run.backend() as backend:
                found = [role for role in backend.registry.roles() if role.key == key and role.stacks]
            if found and found[0].at > before[key]:
                return found[0].stacks
    finally:
        with run.backend() as backend:
            backend.registry.set_control(stacks="")
    raise ConfigError(f"{key.replace(':', ' ')} has sent no heartbeat with stacks within {STACKS_S:g} s; it may hang")


def _run(request: Request) -> LiveRun:
    runs: Runs = request.app.state.runs
    entry = runs.index.entry(request.path_params["id"])
    record = runs.index.running(entry)
    if record is None:
        raise ConfigError(f"{entry.name} does not run")
    return runs.live.of(record)


def _key(request: Request) -> str:
    role, number = request.path_params["role"], request.path_params["number"]
    if role not in KINDS or not _NUMBER.fullmatch(number):
        raise NotThereError(f"a role is one of {', '.join(KINDS)}, and a number")
    return f"{role}:{int(number)}"
