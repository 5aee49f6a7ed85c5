"""The webhook against real HTTP servers: delivered once, tried again, given up, and servers that misbehave."""

import contextlib
import http.client
import http.server
import json
import logging
import socket
import threading
from dataclasses import replace

import pytest

from distrl.apps.dashboard import webhook
from distrl.apps.dashboard.alert_rules import Alert, Change
from distrl.apps.dashboard.alert_settings import AlertSettings
from distrl.apps.dashboard.webhook import Webhook
from tests.waiting import lasts, wait_until

FIRED = Change("fired", Alert(7, "failed", "bad", "ab12", "first", "failed: boom", 1000.0))
PATIENCE_S = 60.0


class Receiver:
    """A server that answers by `answers`, one by one; the last one stays."""

    def __init__(self):
        self.requests, self.answers, self.came = [], [200], threading.Condition()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                content = self.rfile.read(int(self.headers["Content-Length"]))
                with receiver.came:
                    receiver.requests.append((self.path, dict(self.headers), json.loads(content)))
                    answer = receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
                    receiver.came.notify_all()
                if callable(answer):
                    answer(self)
                    return
                self.send_response(answer)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def do_GET(self):
                self.do_POST()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook/s3cret?key=s3cret"

    def wait(self, count):
        with self.came:
            assert self.came.wait_for(lambda: len(self.requests) >= count, PATIENCE_S)


@pytest.fixture
def receiver(monkeypatch):
    monkeypatch.setattr(webhook, "PAUSES_S", (0.01, 0.01))
    server = Receiver()
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture
def hook():
    opened = []

    def make(url, **changes):
        opened.append(Webhook(AlertSettings(webhook=url, **changes)))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def told(caplog):
    """The one line of the log, once it is there."""
    (line,) = wait_until(lambda: caplog.messages, "a line of the log")
    assert "s3cret" not in line
    assert "\n" not in line
    return line


def test_an_alert_is_delivered_once(receiver, hook):
    sender = hook(receiver.url, webhook_token="a-token")
    sender.send(FIRED)
    sender.send(FIRED._replace(event="cleared"))
    receiver.wait(2)
    path, headers, body = receiver.requests[0]
    assert path == "/hook/s3cret?key=s3cret"
    assert headers["Authorization"] == "Bearer a-token"
    assert headers["Content-Type"] == "application/json"
    assert body["text"] == "[bad] first: failed: boom"
    assert body["event"] == "fired"
    alert = {"id": 7, "rule": "failed", "severity": "bad", "run": "ab12", "name": "first", "text": "failed: boom"}
    assert body["alert"] == alert | {"at": 1000.0, "cleared": None}
    assert body.keys() == {"text", "event", "host", "alert"}
    assert receiver.requests[1][2]["text"] == "[bad] first: failed: boom (cleared)"
    sender.close()
    assert len(receiver.requests) == 2


def test_the_text_calls_nobody_in_a_chat(receiver, hook):
    hook(receiver.url).send(FIRED._replace(alert=replace(FIRED.alert, name="<!channel> & co")))
    receiver.wait(1)
    body = receiver.requests[0][2]
    assert body["text"] == "[bad] &lt;!channel&gt; &amp; co: failed: boom"
    assert body["alert"]["name"] == "<!channel> & co"


@pytest.mark.parametrize(
    ("url", "warned"),
    [("http://hooks.example.com/a", True), ("https://hooks.example.com/a", False), ("http://127.0.0.1:1/a", False)],
)
def test_a_token_without_encryption_is_warned_of(hook, caplog, url, warned):
    hook(url, webhook_token="a-token")
    assert ("without encryption" in caplog.text) is warned


def test_lower_severities_are_not_posted(receiver, hook):
    sender = hook(receiver.url, webhook_from="warning")
    sender.send(FIRED._replace(alert=Alert(1, "ended", "info", "a", "a", "ended", 1.0)))
    sender.send(FIRED)
    receiver.wait(1)
    assert receiver.requests[0][2]["alert"]["rule"] == "failed"


def test_it_is_tried_again_after_500_and_429(receiver, hook, caplog):
    receiver.answers = [500, 429, 204]
    hook(receiver.url).send(FIRED)
    receiver.wait(3)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("answer", "attempts", "problem"),
    [
        (503, 3, "it answered 503"),
        (404, 1, "it answered 404"),
        (302, 1, "it answered 302; redirects are not followed, name the final URL"),
    ],
)
def test_it_is_given_up_with_one_line(receiver, hook, caplog, answer, attempts, problem):
    receiver.answers = [answer]
    hook(receiver.url).send(FIRED)
    port = receiver.server.server_address[1]
    line = f"webhook http://127.0.0.1:{port}/•••: {problem}; [bad] first: failed: boom is not delivered"
    assert told(caplog) == line
    assert [path for path, _, _ in receiver.requests] == ["/hook/s3cret?key=s3cret"] * attempts


def test_a_server_that_is_not_there_is_one_line(hook, caplog, free_port, monkeypatch):
    monkeypatch.setattr(webhook, "PAUSES_S", (0.01,))
    hook(f"http://127.0.0.1:{free_port}/s3cret").send(FIRED)
    assert "Connection refused" in told(caplog)


def hangs(handler):
    handler.server.hanging.wait(PATIENCE_S)


def trickles(handler):
    """A byte of a header now and then: each of them in time, all together never."""
    try:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not handler.server.hanging.wait(0.02):
            handler.wfile.write(b"x")
    except OSError:
        pass  # the client has given up


@pytest.mark.parametrize("answer", [hangs, trickles])
def test_a_server_that_does_not_finish_its_answer_is_given_up(receiver, hook, caplog, monkeypatch, answer):
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.3)
    receiver.server.hanging = threading.Event()
    receiver.answers = [answer]
    hook(receiver.url).send(FIRED)
    assert "no answer within 0.3 s" in told(caplog)
    receiver.server.hanging.set()


def test_a_handshake_that_does_not_end_is_given_up(hook, caplog, monkeypatch):
    """A byte of a TLS record now and then: each of them in time, all together never."""
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(webhook, "PAUSES_S", ())
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def trickle():
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):  # the client has given up
                connection.sendall(b"\x16\x03\x03\x40\x00")
                while not ended.wait(0.02):
                    connection.sendall(b"\x02")

        thread = threading.Thread(target=trickle)
        thread.start()
        hook(f"https://localhost:{server.getsockname()[1]}/s3cret").send(FIRED)
        try:
            assert "no answer within 0.3 s" in told(caplog)
        finally:
            ended.set()
            thread.join()


def test_a_connection_that_comes_too_late_is_not_used(receiver, hook, caplog, monkeypatch):
    """A host of several addresses has a time-out for each."""
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(webhook, "PAUSES_S", ())
    connect = http.client.HTTPConnection.connect
    monkeypatch.setattr(http.client.HTTPConnection, "connect", lambda self: (lasts(0.6), connect(self)))
    receiver.server.hanging = threading.Event()
    receiver.answers = [trickles]
    hook(receiver.url).send(FIRED)
    try:
        assert "no answer within 0.3 s" in told(caplog)
    finally:
        receiver.server.hanging.set()


def test_an_endless_answer_is_not_read(receiver, hook, caplog):
    sent = []

    def endless(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(10 * 2**30))
        handler.end_headers()
        try:
            while sum(sent) < 10 * 2**30:
                sent.append(handler.wfile.write(bytes(2**16)))
        except OSError:
            pass  # the client has left

    receiver.answers = [endless, 200]
    sender = hook(receiver.url)
    sender.send(FIRED)
    sender.send(FIRED)
    receiver.wait(2)
    assert caplog.messages == []
    assert sum(sent) < 2**27


def test_a_full_queue_drops_alerts_and_never_waits(receiver, hook, caplog, monkeypatch):
    monkeypatch.setattr(webhook, "MOST_WAITING", 2)
    receiver.server.hanging = threading.Event()
    receiver.answers = [hangs]
    sender = hook(receiver.url)
    sender.send(FIRED)
    receiver.wait(1)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            sender.send(FIRED)
    assert caplog.messages[0].endswith("2 alerts wait; [bad] first: failed: boom is dropped")
    receiver.server.hanging.set()
