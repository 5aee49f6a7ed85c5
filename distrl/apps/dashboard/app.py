"""The dashboard's routes and application."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from distrl.apps.dashboard import role_views, start_views, views
from distrl.apps.dashboard.alert_settings import AlertSettings
from distrl.apps.dashboard.alerts import LOOK_S, AlertWatch
from distrl.apps.dashboard.assets import STATIC, Assets
from distrl.apps.dashboard.authentication import HEALTH, LOGIN, LOGOUT, Authenticator, Guard, TooLargeError
from distrl.apps.dashboard.background import Background
from distrl.apps.dashboard.bodies import TooLateError
from distrl.apps.dashboard.changes import Watches
from distrl.apps.dashboard.files import NotThereError
from distrl.apps.dashboard.live_runs import SCAN_S
from distrl.apps.dashboard.payloads import Answer, Runs
from distrl.apps.dashboard.starts import Starts
from distrl.apps.web.access import Access
from distrl.errors import ConfigError, MemoryBackendError, one_line

SWEEP_S = 10.0
REST_S = 0.25
"""Seconds between two readings of settings, in which requests have the processor."""


def make_app(
    root: Path,
    access: Access,
    redis_urls: Sequence[str] = (),
    alerts: AlertSettings | None = None,
    *,
    may_start: bool = False,
) -> Starlette:
    """Make the dashboard of the runs below `root` and of those in these Redis servers.

    Args:
        alerts: None: no alerts.
        may_start: Whether a page with the right to act may start trainings, and so run code.

    Raises:
        ConfigError: `may_start` without a token for it.
    """
    if may_start and access.token is None:
        raise ConfigError(
            "--allow-start lets pages run code as you, and there is no token, so any user of this machine could; write "
            "one to a file and add --token-file FILE (or set DISTRL_DASHBOARD_TOKEN)"
        )
    authenticator, background = Authenticator(access), Background()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        work = _work(app.state.runs, redis_urls, app.state.alerts)
        tasks = [asyncio.create_task(background.repeat(name, each)) for name, each in work.items()]
        yield
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):  # as asked
                await task
        app.state.alerts.close()
        app.state.runs.close()

    guard = [Middleware(Guard, access=access, authenticator=authenticator), Middleware(GZipMiddleware, compresslevel=5)]
    app = Starlette(
        routes=_routes(authenticator, Assets()), middleware=guard, exception_handlers=_answers(), lifespan=lifespan
    )
    app.state.runs = Runs(root, redis_urls)
    app.state.watches = Watches(app.state.runs)
    app.state.background = background
    app.state.alerts = AlertWatch(app.state.runs, alerts)
    app.state.starts = Starts(app.state.runs.index) if may_start else None
    return app


def _routes(authenticator: Authenticator, assets: Assets) -> list[BaseRoute]:
    return [
        Route("/", assets.index),
        Route(LOGIN, authenticator.sign_in, methods=["GET", "POST"]),
        Route(LOGOUT, authenticator.sign_out, methods=["POST"]),
        Route(HEALTH, views.healthy),
        Route("/metrics", views.metrics),
        Route("/api/session", views.session),
        Route("/api/runs", views.listed),
        Route("/api/runs/{id}", views.described),
        Route("/api/runs/{id}/curve", views.curves),
        Route("/api/runs/{id}/curve.csv", views.curves_as_csv),
        Route("/api/runs/{id}/marks", views.marks),
        Route("/api/runs/{id}/histograms", views.histogram),
        Route("/api/runs/{id}/config", views.configuration),
        Route("/api/runs/{id}/events", views.events),
        Route("/api/runs/{id}/logs/{role}", views.log),
        Route("/api/runs/{id}/logs/{role}/matches", views.log_matches),
        Route("/api/runs/{id}/logs/{role}/whole", views.whole_log),
        Route("/api/runs/{id}/checkpoints", views.checkpoints),
        Route("/api/runs/{id}/evaluations", views.evaluations),
        Route("/api/runs/{id}/data", views.data),
        Route("/api/runs/{id}/films", views.films),
        Route("/api/runs/{id}/films/{name:path}", views.film),
        Route("/api/runs/{id}/settable", views.settable),
        Route("/api/runs/{id}/roles/{role}/{number}/history", role_views.history),
        Route("/api/runs/{id}/roles/{role}/{number}/stacks", role_views.stacks, methods=["POST"]),
        Route("/api/runs/{id}/control", views.act, methods=["POST"]),
        Route("/api/selection", views.selection),
        Route("/api/columns", views.columns),
        Route("/api/edit", views.edit, methods=["POST"]),
        Route("/api/remove", views.remove, methods=["POST"]),
        Route("/api/compare", views.compared),
        Route("/api/compare/settings", views.compared_settings),
        Route("/api/sweeps", views.sweeps),
        Route("/api/fleet", views.fleet),
        Route("/api/changes", views.changes),
        Route("/api/alerts", views.alerts),
        Route("/api/draft", start_views.draft),
        Route("/api/draft/check", start_views.check, methods=["POST"]),
        Route("/api/start", start_views.start, methods=["POST"]),
        Route("/api/resume", start_views.resume, methods=["POST"]),
        Route("/api/starts/{id}", start_views.state),
        Route("/page/{edition}/{name}", assets.file),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]


def _work(runs: Runs, redis_urls: Sequence[str], alerts: AlertWatch) -> dict[str, Callable[[], float]]:
    """Return what the dashboard repeats, by name; each call returns the seconds until the next one."""

    def let_go() -> float:
        runs.live.let_go()
        return SWEEP_S

    def scan() -> float:
        runs.live.scan()
        return SCAN_S

    def read_settings() -> float:
        return REST_S if runs.read_settings() else SCAN_S

    def look_for_alerts() -> float:
        alerts.look()
        return LOOK_S

    work: dict[str, Callable[[], float]] = {"connections": let_go, "settings": read_settings}
    if redis_urls:
        work["scan"] = scan
    if alerts.is_on:
        work["alerts"] = look_for_alerts
    return work


def _answers() -> dict[Any, Callable[[Request, Exception], Response]]:
    """Return a response for each kind of exception."""
    return {
        TooLargeError: _answering(413),
        TooLateError: _answering(409),
        NotThereError: _answering(404),
        ConfigError: _answering(400),
        MemoryBackendError: _answering(409),
        OSError: _unreadable,
        ClientDisconnect: _answering(400),  # the client disconnected before it had sent its body
        HTTPException: _http_error,
    }


def _answering(status: int) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, error: Exception) -> Response:
        told, root = one_line(error), request.app.state.runs.index.root
        for path in (root.resolve(), root.absolute()):
            told = told.replace(f"{path}/", "")  # paths relative to the folder of runs
        return Answer({"error": told}, status)

    return answer


def _unreadable(request: Request, error: Exception) -> Response:
    """A file that was removed or cannot be read; the response hides its path."""
    return Answer({"error": "a file of the run cannot be read"}, 404)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Answer({"error": str(error.detail)}, error.status_code, dict(error.headers or {}))
