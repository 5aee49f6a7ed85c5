"""One function per route: it checks the request's parameters and returns the response."""

import math
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast, get_args

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from distrl.apps.dashboard import comparing, control, details, edits, exposition, files, histograms, log_search
from distrl.apps.dashboard.authentication import client_of, read_body
from distrl.apps.dashboard.bodies import parsed
from distrl.apps.dashboard.list_view import MOST_COLUMNS, MOST_OPEN, MOST_ROWS, USUAL_ROWS, ListView
from distrl.apps.dashboard.payloads import Answer, Runs, metric_rows
from distrl.apps.dashboard.sweeps import described as sweep_state
from distrl.apps.dashboard.sweeps import find_sweeps
from distrl.apps.reports.curves import Statistic
from distrl.errors import ConfigError
from distrl.memory_backend.steering import Steering
from distrl.metrics.snapshot import X_AXES
from distrl.metrics.titles import TITLES
from distrl.version import __version__

MOST_POINTS, USUAL_POINTS = 4000, 800
MOST_WINDOW = 1001
MOST_METRICS, MOST_GROUPS = 16, 16
MOST_QUERY = 1000
_METRIC = re.compile(r"[^\x00-\x1f]{1,100}")


def session(request: Request) -> Response:
    """Return the session's right, the table of metrics, and titles of numbers."""
    runs = _runs(request)
    return Answer(
        {
            "right": request.state.right,
            "may_start": request.app.state.starts is not None and request.state.right == "act",
            "signed_in": request.state.session is not None,
            "version": __version__,
            "root": str(runs.index.root.resolve()),
            "metrics": metric_rows(),
            "titles": TITLES,
            "axes": list(X_AXES),
            "at": time.time(),
        }
    )


def listed(request: Request) -> Response:
    """List runs: `query`, `sort` by a name with or without `-`, `offset`, `limit`."""
    found = _runs(request).page(_view(request))
    return Answer({"runs": found["rows"], "matched": found["matched"], "total": found["total"]})


def selection(request: Request) -> Response:
    """Return the ids of all runs that `query` selects."""
    return Answer({"ids": [row["id"] for row in _runs(request).selected(_text(request, "query", "", MOST_QUERY))]})


def columns(request: Request) -> Response:
    """Return the columns that a list of the runs that `query` selects may show."""
    return Answer(_runs(request).choices(_text(request, "query", "", MOST_QUERY)))


async def edit(request: Request) -> Response:
    """Change labels of runs: {"ids": […], "name", "note", "archived", "tags", "add", "remove"}."""
    asked = parsed(edits.Edit, await read_body(request))
    return Answer(await run_in_threadpool(_runs(request).edits.label, asked, client_of(request)))


async def remove(request: Request) -> Response:
    """Delete the directories of runs: {"ids": […]}."""
    asked = parsed(edits.Removal, await read_body(request))
    return Answer(await run_in_threadpool(_runs(request).edits.remove, asked, client_of(request)))


def described(request: Request) -> Response:
    """Return one run."""
    return Answer(details.described(_runs(request), request.path_params["id"]))


def curves(request: Request) -> Response:
    """Return lines of one run: `metric` (repeatable), `over`, `points`, `smooth`, `raw`, `since`, `from`, `to`."""
    found = _runs(request).curves(
        request.path_params["id"],
        _metrics(request),
        _over(request),
        _whole(request, "points", USUAL_POINTS, 4, MOST_POINTS),
        _whole(request, "smooth", 1, 1, MOST_WINDOW),
        _stretch(request),
        _choice("raw", _text(request, "raw", "0"), ("0", "1")) == "1",
        _text(request, "since", "", 40),
    )
    return Answer(found)


def curves_as_csv(request: Request) -> Response:
    """Return numbers of one run at every row that the server keeps, as CSV: `metric` (repeatable)."""
    pieces = _runs(request).csv(request.path_params["id"], _metrics(request))
    return StreamingResponse(pieces, media_type="text/csv", headers={"Content-Disposition": "attachment"})


def marks(request: Request) -> Response:
    """Return evaluations, targets, restarts, checkpoints and changes of one run at their places on the axis `over`."""
    return Answer(_runs(request).marks(request.path_params["id"], _over(request)))


def histogram(request: Request) -> Response:
    """Return the tags of a run's histograms or, with `tag`, those of one over steps."""
    tag = _text(request, "tag", "")
    return Answer(histograms.heat_map_of(_folder(request), tag) if tag else histograms.tags_of(_folder(request)))


def compared(request: Request) -> Response:
    """Return curves of runs side by side: what `_asked` reads, `metric`, `over`, `points`, `smooth`, `only` (ids)."""
    query = request.query_params
    found = comparing.Compared(_runs(request), _asked(request)).curves(
        _metrics(request)[0],
        _over(request),
        _whole(request, "points", USUAL_POINTS, 4, MOST_POINTS),
        _whole(request, "smooth", 1, 1, MOST_WINDOW),
        set(query.getlist("only")) if "only" in query else None,
    )
    return Answer(found)


def compared_settings(request: Request) -> Response:
    """Return settings, outcomes and groups of runs side by side: see `_asked`."""
    return Answer(comparing.Compared(_runs(request), _asked(request)).table())


def sweeps(request: Request) -> Response:
    """Return every sweep, search and population with its state."""
    return Answer({"sweeps": [sweep_state(one) for one in find_sweeps(_runs(request).index)]})


def configuration(request: Request) -> Response:
    """Return every value with its origin, secrets masked."""
    return Answer(_runs(request).configuration(request.path_params["id"]))


def events(request: Request) -> Response:
    """Return the newest events, oldest first."""
    return Answer({"events": [event._asdict() for event in files.events(_folder(request))]})


def log(request: Request) -> Response:
    """Return a role's log from byte `after` on; without `after`, its end."""
    after = None if "after" not in request.query_params else _whole(request, "after", 0, 0, 2**62)
    return Answer(details.log_piece(_runs(request), request.path_params["id"], request.path_params["role"], after))


def log_matches(request: Request) -> Response:
    """Search the end of a role's log: `words` must all occur in a line, `level` is the lowest level."""
    words, level = _text(request, "words", "").split(), details.level_of(_text(request, "level", "debug"))
    path = request.path_params
    return Answer(details.matches(_runs(request), path["id"], path["role"], words, level))


def whole_log(request: Request) -> Response:
    """Return a role's log as a file, with secrets masked."""
    role = request.path_params["role"]
    pieces = log_search.whole(_folder(request), role)
    name = f"{request.path_params['id']}-{role}.log"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(pieces, media_type="text/plain; charset=utf-8", headers=headers)


def checkpoints(request: Request) -> Response:
    """Return the run's checkpoints and the commands that use them."""
    return Answer(details.checkpoints(_runs(request), request.path_params["id"]))


def evaluations(request: Request) -> Response:
    """Return the run's recorded evaluations."""
    return Answer(details.evaluations(_runs(request), request.path_params["id"]))


def data(request: Request) -> Response:
    """Return the figures of the recorded episodes that the run learns from."""
    return Answer(details.data(_runs(request), request.path_params["id"]))


def films(request: Request) -> Response:
    """Return the list of the run's films."""
    return Answer(details.films(_runs(request), request.path_params["id"]))


def film(request: Request) -> Response:
    """Return one film of that list, or the requested range of it."""
    found = files.film(_folder(request), request.path_params["name"])
    suffix = found.suffix.lower()
    name = f"{request.path_params['id']}-{found.name}"
    return FileResponse(found, media_type=files.FILMS[suffix], filename=name, content_disposition_type="inline")


def fleet(request: Request) -> Response:
    """Return hosts, and the Redis of every live run."""
    return Answer(_runs(request).fleet())


def settable(request: Request) -> Response:
    """Return the settings that may change while a run trains."""
    runs = _runs(request)
    record = runs.index.running(runs.index.entry(request.path_params["id"]))
    if record is None:
        return Answer({"settings": []})
    with runs.live.of(record).backend() as backend:
        return Answer({"settings": [asdict(parameter) for parameter in Steering(backend, "dashboard").steerable()]})


def changes(request: Request) -> Response:
    """Return the changes of `run`, or of the list, since the answer with the mark `since`."""
    since, run_id = _text(request, "since", ""), request.query_params.get("run")
    return Answer(request.app.state.watches.changes(run_id or _view(request), since))


def alerts(request: Request) -> Response:
    """Return the alerts since the dashboard began, the newest first; none if those marked `since` are still right.

    `problem` is the error of the last look at the runs, if it failed.
    """
    problem = request.app.state.background.failing.get("alerts")
    return Answer(request.app.state.alerts.answer(_text(request, "since", "")) | {"problem": problem})


async def act(request: Request) -> Response:
    """Control a live run: {"action": …, "value": …}."""
    asked = control.ControlRequest.read(await read_body(request))
    by = f"{client_of(request)}, dashboard"
    told = await run_in_threadpool(_act, _runs(request), request.path_params["id"], asked, by)
    return Answer({"message": told})


def metrics(request: Request) -> Response:
    """Return metrics in Prometheus' text format."""
    content = exposition.exposition(_runs(request), request.app.state.background.failures)
    return Response(content, media_type=exposition.MEDIA_TYPE)


def healthy(request: Request) -> Response:
    """Return 200 if the folder of runs can be read and 503 if not, for probes without a token; no other information."""
    try:
        with os.scandir(_runs(request).index.root):
            return Answer({"ok": True})
    except OSError:
        return Answer({"ok": False}, 503)


def _act(runs: Runs, run_id: str, asked: control.ControlRequest, by: str) -> str:
    entry = runs.index.entry(run_id)
    record = runs.index.running(entry)
    if record is None:
        raise ConfigError(f"{entry.name} does not run")
    with runs.live.of(record).backend() as backend:
        return control.apply(asked, Steering(backend, by))


def _runs(request: Request) -> Runs:
    runs: Runs = request.app.state.runs
    return runs


def _folder(request: Request) -> Path:
    index = _runs(request).index
    return index.directory(index.entry(request.path_params["id"]))


def _view(request: Request) -> ListView:
    names = request.query_params
    return ListView(
        query=_text(request, "query", "", MOST_QUERY),
        sort=_text(request, "sort", "-started"),
        offset=_whole(request, "offset", 0, 0, 10**9),
        limit=_whole(request, "limit", USUAL_ROWS, 1, MOST_ROWS) if "limit" in names else None,
        columns=_texts(request, "column", MOST_COLUMNS) if "column" in names else None,
        group=_text(request, "group", ""),
        opened=frozenset(_texts(request, "open", MOST_OPEN)),
        folded=frozenset(_texts(request, "fold", MOST_OPEN)),
    )


def _texts(request: Request, name: str, most: int) -> tuple[str, ...]:
    found = [text for text in request.query_params.getlist(name) if text]
    if len(found) > most or any(len(text) > 300 for text in found):
        raise ConfigError(f"{name} occurs at most {most} times, and is at most 300 characters long")
    return tuple(found)


def _text(request: Request, name: str, usual: str, most: int = 300) -> str:
    value = request.query_params.get(name, usual)
    if len(value) > most:
        raise ConfigError(f"{name} is longer than {most} characters")
    return value


def _choice(name: str, value: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise ConfigError(f"{name} is one of {', '.join(allowed)}")
    return value


def _whole(request: Request, name: str, usual: int, low: int, high: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return usual
    if not re.fullmatch(r"[0-9]{1,19}", text) or not low <= int(text) <= high:
        raise ConfigError(f"{name} is a whole number from {low:,} to {high:,}")
    return int(text)


def _stretch(request: Request) -> tuple[float, float] | None:
    texts = [request.query_params.get(name) for name in ("from", "to")]
    if texts == [None, None]:
        return None
    try:
        low, high = (float(text or "") for text in texts)
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError("from and to are numbers, both of them, and from is the lower one")
    return low, high


def _asked(request: Request) -> comparing.Asked:
    """Read `id` (repeatable), `sweep`, `group` (repeatable), `statistic`, `outcome`."""
    query = request.query_params
    groups = [group for group in query.getlist("group") if group] if "group" in query else [comparing.USUAL]
    if len(groups) > MOST_GROUPS or any(len(group) > 300 for group in groups):
        raise ConfigError(f"group is a dotted path of a setting, at most {MOST_GROUPS} of them")
    statistic = _choice("statistic", _text(request, "statistic", "interval"), get_args(Statistic))
    outcome = _choice("outcome", _text(request, "outcome", ""), ("", *comparing.OUTCOMES))
    return comparing.Asked(
        query.getlist("id"), _text(request, "sweep", ""), groups, cast(Statistic, statistic), outcome
    )


def _over(request: Request) -> str:
    return _choice("over", _text(request, "over", "steps"), tuple(X_AXES))


def _metrics(request: Request) -> list[str]:
    names = request.query_params.getlist("metric") or ["mean_return_100"]
    if len(names) > MOST_METRICS or not all(_METRIC.fullmatch(name) for name in names):
        raise ConfigError(f"metric is a name of a column, at most {MOST_METRICS} of them")
    return names
