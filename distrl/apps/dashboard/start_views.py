"""Routes that start and resume trainings; without `--allow-start` each of them answers 403."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from distrl.apps.dashboard import drafts, starts
from distrl.apps.dashboard.authentication import client_of, read_body
from distrl.apps.dashboard.bodies import parsed
from distrl.apps.dashboard.payloads import Answer
from distrl.apps.dashboard.starts import Starts
from distrl.config.presets import presets

MOST_DRAFT_BYTES = 64 * 1024
"""Most bytes of a configuration from an editor: all values with their comments are half as many."""
_LOG = logging.getLogger(__name__)


def _allowed(request: Request) -> Starts:
    if request.app.state.starts is None:
        raise HTTPException(403, "this dashboard starts no trainings; distrl dashboard --allow-start lets it")
    if request.state.right != "act":
        raise HTTPException(403, "this token may only look")
    found: Starts = request.app.state.starts
    return found


def draft(request: Request) -> Response:
    """Return a configuration to edit: of the preset `preset` or of the run `run`; and the presets."""
    _allowed(request)
    preset, run = (request.query_params.get(name) for name in ("preset", "run"))
    text, index = "", request.app.state.runs.index
    if preset is not None:
        text = drafts.of_preset(preset)
    elif run is not None:
        text = drafts.of_run(index.leaves(index.entry(run)))
    return Answer({"config": text, "presets": presets()})


def state(request: Request) -> Response:
    """Return how a start goes: starting, running, ended or failed, and the problem."""
    return Answer(_allowed(request).state_of(request.path_params["id"]))


def _taking(
    model: Any, carry_out: Callable[[Starts], Callable[[Any], Any]], verb: str = ""
) -> Callable[[Request], Awaitable[Response]]:
    """Return a view.

    Args:
        verb: What is done, for the log; "": nothing is logged.
    """

    async def view(request: Request) -> Response:
        found = _allowed(request)
        asked = parsed(model, await read_body(request, MOST_DRAFT_BYTES))
        told = await run_in_threadpool(carry_out(found), asked)
        if verb:
            _LOG.info("%s by %s: %s", verb, client_of(request), told["name"])
        return Answer(told)

    return view


check = _taking(starts.Draft, lambda found: found.check)
start = _taking(starts.Draft, lambda found: found.start, "started")
resume = _taking(starts.Resumption, lambda found: found.resume, "resumed")
