"""Posts alerts to the operator's URL, on a thread of its own: time-outs, retries with back-off, a bounded queue.

Nothing but the status of an answer is used. Redirects are not followed, proxies of the environment are not used.
"""

import html
import http.client
import json
import logging
import queue
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from distrl.apps.dashboard.alert_rules import Change
from distrl.apps.dashboard.alert_settings import AlertSettings
from distrl.apps.dashboard.severities import SEVERITIES
from distrl.apps.web.access import is_loopback
from distrl.config.secrets import masked_text
from distrl.errors import one_line
from distrl.version import __version__

TIMEOUT_S = 10.0
"""Time-out of one attempt."""
PAUSES_S = (1.0, 4.0, 15.0, 60.0)
"""Seconds between attempts; after the last one the alert is given up."""
MOST_WAITING = 100
END_S = 2.0
"""Time-out of the attempt in progress when the dashboard ends."""
_LOG = logging.getLogger(__name__)


class Webhook:
    """Posts the alerts of a severity and above to one URL."""

    def __init__(self, settings: AlertSettings) -> None:
        assert settings.webhook is not None
        self._url = urlsplit(settings.webhook)
        self._name = settings.webhook_shown
        self._token = settings.webhook_token
        if self._token is not None and self._url.scheme == "http" and not is_loopback(self._url.hostname or ""):
            _LOG.warning("webhook %s: the token is sent without encryption; name an https URL", self._name)
        self._least = SEVERITIES.index(settings.webhook_from)
        self._waiting: queue.Queue[Change | None] = queue.Queue(MOST_WAITING)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        self._thread.start()

    def send(self, change: Change) -> None:
        """Queue an alert without waiting; with a full queue it is dropped, and logged."""
        if SEVERITIES.index(change.alert.severity) < self._least:
            return
        try:
            self._waiting.put_nowait(change)
        except queue.Full:
            _LOG.warning("webhook %s: %d alerts wait; %s is dropped", self._name, MOST_WAITING, _line(change))

    def close(self) -> None:
        """End the thread; alerts that wait are dropped."""
        self._ending.set()
        with suppress(queue.Full):  # the thread sees the event first
            self._waiting.put_nowait(None)
        self._thread.join(END_S)

    def _run(self) -> None:
        while (change := self._waiting.get()) is not None and not self._ending.is_set():
            problem = ""
            for pause_s in (0.0, *PAUSES_S):
                if self._ending.wait(pause_s):
                    return
                problem, again = self._posted(change)
                if not again:
                    break
            if problem:
                _LOG.warning("webhook %s: %s; %s is not delivered", self._name, problem, _line(change))

    def _posted(self, change: Change) -> tuple[str, bool]:
        """Post once; return the problem, "" if there is none, and whether another attempt may help."""
        try:
            status = self._status(json.dumps(body(change)).encode())
        except (OSError, http.client.HTTPException, ValueError) as error:
            told = masked_text(one_line(error))[:200] or type(error).__name__
            return f"no answer within {TIMEOUT_S:g} s" if isinstance(error, TimeoutError) else told, True
        if 200 <= status < 300:
            return "", False
        if 300 <= status < 400:
            return f"it answered {status}; redirects are not followed, name the final URL", False
        return f"it answered {status}", status >= 500 or status in (408, 429)

    def _status(self, content: bytes) -> int:
        """Post and return the status; the answer's body is not read."""
        host = self._url.hostname
        assert host is not None
        connection = (
            http.client.HTTPSConnection(host, self._url.port, timeout=TIMEOUT_S, context=ssl.create_default_context())
            if self._url.scheme == "https"
            else http.client.HTTPConnection(host, self._url.port, timeout=TIMEOUT_S)
        )
        headers = {"Content-Type": "application/json", "User-Agent": f"distrl/{__version__}"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        late = threading.Event()

        def cut() -> None:
            late.set()
            if connection.sock is not None:
                with suppress(OSError):  # closed meanwhile
                    connection.sock.shutdown(socket.SHUT_RDWR)

        limit = threading.Timer(TIMEOUT_S, cut)  # the socket's own time-out begins anew with every byte
        limit.daemon = True
        limit.start()
        try:
            connection.connect()
            if late.is_set():  # `cut` had no socket yet; a host of several addresses has a time-out for each
                raise TimeoutError
            path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
            connection.request("POST", path, content, headers)
            status = connection.getresponse().status
            if late.is_set():  # headers that were cut look complete
                raise TimeoutError
            return status
        except (OSError, http.client.HTTPException) as error:
            if late.is_set():
                raise TimeoutError from error
            raise
        finally:
            limit.cancel()
            connection.close()


def body(change: Change) -> dict[str, Any]:
    """Return what is posted; `text` is one line for chat services, escaped, as `<!channel>` has a meaning there."""
    alert = asdict(change.alert)
    return {
        "text": html.escape(_line(change), quote=False),
        "event": change.event,
        "host": socket.gethostname(),
        "alert": alert,
    }


def _line(change: Change) -> str:
    alert = change.alert
    cleared = " (cleared)" if change.event == "cleared" else ""
    return f"[{alert.severity}] {alert.name}: {alert.text}{cleared}"
