"""One function per route: it checks the request's parameters and returns the response."""

import math
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

import distrl
from distrl.dashboard import control, details, exposition, files, histograms, log_search
from distrl.dashboard.authentication import read_body
from distrl.dashboard.payloads import Answer, Runs, metric_rows
from distrl.errors import ConfigError
from distrl.memory_backend.steering import Steering
from distrl.metrics.snapshot import X_AXES
from distrl.runs.curves import Statistic

MOST_POINTS, USUAL_POINTS = 4000, 800
MOST_WINDOW = 1001
MOST_METRICS, MOST_RUNS = 16, 60
_METRIC = re.compile(r"[^\x00-\x1f]{1,100}")
_SORTS = (
    *("started", "name", "env", "algorithm", "state", "env_steps", "mean_return_100"),
    *("training_s", "wall_s", "env_steps_per_s"),
)


def session(request: Request) -> Response:
    """Return the session's right and the table of metrics."""
    runs = _runs(request)
    return Answer(
        {
            "right": request.state.right,
            "signed_in": request.state.session is not None,
            "version": distrl.__version__,
            "root": str(runs.index.root.resolve()),
            "metrics": metric_rows(),
            "axes": list(X_AXES),
            "at": time.time(),
        }
    )


def listed(request: Request) -> Response:
    """List runs: `filter` has words that must all occur, `state` is a state, `sort` a column with or without `-`."""
    words = _text(request, "filter", "").lower().split()
    state = _text(request, "state", "")
    sort = _text(request, "sort", "-started")
    column = _choice("sort", sort.removeprefix("-"), _SORTS)
    rows = [row for row in _runs(request).listed() if _fits(row, words, state)]

    def value(row: dict[str, Any]) -> Any:
        return row[column] if column in row else row["numbers"].get(column)

    known = [row for row in rows if value(row) is not None]
    known.sort(key=value, reverse=sort.startswith("-"))
    rows = known + [row for row in rows if value(row) is None]  # unknown values come last in both orders
    return Answer({"runs": rows})


def described(request: Request) -> Response:
    """Return one run."""
    return Answer(details.described(_runs(request), request.path_params["id"]))


def curves(request: Request) -> Response:
    """Return lines of one run: `metric` (repeatable), `over`, `points`, `smooth`, `from` and `to` in x, `raw`."""
    found = _runs(request).curves(
        request.path_params["id"],
        _metrics(request),
        _over(request),
        _whole(request, "points", USUAL_POINTS, 4, MOST_POINTS),
        _whole(request, "smooth", 1, 1, MOST_WINDOW),
        _stretch(request),
        _choice("raw", _text(request, "raw", "0"), ("0", "1")) == "1",
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
    """Compare runs: `id` (repeatable), `metric`, `over`, `points`, `smooth`, `group`, `statistic`."""
    ids = request.query_params.getlist("id")
    if not 1 <= len(ids) <= MOST_RUNS:
        raise ConfigError(f"name 1 to {MOST_RUNS} runs: id=…&id=…")
    found = _runs(request).compared(
        ids,
        _metrics(request)[0],
        _over(request),
        _whole(request, "points", USUAL_POINTS, 4, MOST_POINTS),
        _whole(request, "smooth", 1, 1, MOST_WINDOW),
        _text(request, "group", ""),
        cast(Statistic, _choice("statistic", _text(request, "statistic", "mean"), ("mean", "iqm"))),
    )
    return Answer(found)


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
    """Return hosts, and the Redis of every running job."""
    return Answer(_runs(request).fleet())


def settable(request: Request) -> Response:
    """Return the settings that may change while a run trains."""
    runs = _runs(request)
    record = runs.index.running(runs.index.entry(request.path_params["id"]))
    if record is None:
        return Answer({"settings": []})
    with runs.jobs.of(record).backend() as backend:
        return Answer({"settings": [asdict(parameter) for parameter in Steering(backend, "dashboard").steerable()]})


def changes(request: Request) -> Response:
    """Return the changes of `run`, or of the list, since the answer with the mark `since`."""
    since, run_id = _text(request, "since", ""), request.query_params.get("run")
    return Answer(request.app.state.watches.changes(run_id, since))


async def act(request: Request) -> Response:
    """Control a running job: {"action": …, "value": …}."""
    asked = control.Request.read(await read_body(request))
    by = f"{request.client.host if request.client else 'unknown'}, dashboard"
    told = await run_in_threadpool(_act, _runs(request), request.path_params["id"], asked, by)
    return Answer({"told": told})


def metrics(request: Request) -> Response:
    """Return metrics in Prometheus' text format."""
    return Response(exposition.exposition(_runs(request)), media_type=exposition.MEDIA_TYPE)


def healthy(request: Request) -> Response:
    """Return 200 if the folder of runs can be read and 503 if not, for probes without a token; no other information."""
    try:
        with os.scandir(_runs(request).index.root):
            return Answer({"ok": True})
    except OSError:
        return Answer({"ok": False}, 503)


def _act(runs: Runs, run_id: str, asked: control.Request, by: str) -> str:
    entry = runs.index.entry(run_id)
    record = runs.index.running(entry)
    if record is None:
        raise ConfigError(f"{entry.name} does not run")
    with runs.jobs.of(record).backend() as backend:
        return control.apply(asked, Steering(backend, by))


def _runs(request: Request) -> Runs:
    runs: Runs = request.app.state.runs
    return runs


def _folder(request: Request) -> Path:
    index = _runs(request).index
    return index.directory(index.entry(request.path_params["id"]))


def _fits(row: dict[str, Any], words: Sequence[str], state: str) -> bool:
    shown = _state_of(row)
    told = [str(row[name]) for name in ("name", "path", "env", "algorithm", "run_id", "state")]
    text = " ".join([*told, shown]).lower()
    return (not state or state in (row["state"], shown)) and all(word in text for word in words)


def _state_of(row: dict[str, Any]) -> str:
    """Return the word that the list shows for a run's state, as `stateOf` in states.js."""
    if row["state"] == "running" and row.get("paused"):
        return "paused"
    if row["state"] == "ended":
        numbers = row["numbers"]
        return "failed" if numbers["exit_code"] else "stopped" if numbers["stop_reason"] == "asked" else "ended"
    return str(row["state"])


def _text(request: Request, name: str, usual: str) -> str:
    value = request.query_params.get(name, usual)
    if len(value) > 300:
        raise ConfigError(f"{name} is too long")
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


def _over(request: Request) -> str:
    return _choice("over", _text(request, "over", "steps"), tuple(X_AXES))


def _metrics(request: Request) -> list[str]:
    names = request.query_params.getlist("metric") or ["mean_return_100"]
    if len(names) > MOST_METRICS or not all(_METRIC.fullmatch(name) for name in names):
        raise ConfigError(f"metric is a name of a column, at most {MOST_METRICS} of them")
    return names
