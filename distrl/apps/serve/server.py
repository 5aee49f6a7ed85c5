"""The server as a process: uvicorn on a socket until SIGTERM or Ctrl-C."""

import uvicorn

from distrl.apps.serve.app import Application, ServeSettings
from distrl.apps.serve.connections import ServedHttp, ServedSocket
from distrl.apps.serve.gate import ClientGate
from distrl.apps.serve.report import ServerReport
from distrl.apps.serve.sessions import Learning
from distrl.apps.serve.versions import PolicyVersions
from distrl.health import Beats

GRACE_S = 10
PING_S = 20.0
"""A WebSocket whose client does not answer a ping within that long is closed."""


def make_server(
    versions: PolicyVersions,
    gate: ClientGate,
    settings: ServeSettings,
    beats: Beats | None = None,
    report: ServerReport | None = None,
    learning: Learning | None = None,
) -> uvicorn.Server:
    """Make a server of these versions.

    Args:
        learning: Learns from sessions' episodes; None: nothing is learned.
        beats: Written by the server's own loop: no heartbeat means that no request is answered.
        report: Shows the server on a run's page; None: no page does.
    """

    async def notify() -> None:
        if beats is not None:
            beats.beat()

    application = Application(versions, gate, settings, report, learning)
    most = settings.most_connections
    http = type("Http", (ServedHttp,), {"application": application, "most": most, "most_per_address": most})
    server = uvicorn.Server(
        uvicorn.Config(
            application,
            log_level="error",  # of warnings, clients could write as many as they like
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,  # rates are counted by address, which a client's header must not change
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=60,
            lifespan="on",
            loop="uvloop",
            http=http,
            ws=ServedSocket,
            ws_max_size=settings.most_body_bytes,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            ws_per_message_deflate=False,  # 100 KB per connection, for messages of 100 bytes
            callback_notify=notify,
            timeout_notify=1,
        )
    )
    if report is not None:
        report.connections = lambda: len(server.server_state.connections)
    return server
