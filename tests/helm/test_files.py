"""Files of the chart that need no helm: users of Redis, alerts, versions, and the program that makes the Secret."""

import base64
import json
import re
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import distrl
from distrl.apps.commands.main import app
from tests.faults.tls_redis import Authority
from tests.helm.rendering import CHART, ROOT

ALERTS = yaml.safe_load((CHART / "files/alerts.yaml").read_text())["groups"][0]["rules"]
RUNBOOK = (ROOT / "docs/reliability.md").read_text()


def sections(text: str) -> set[str]:
    """Anchors of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_users_of_redis_are_those_of_the_command():
    done = CliRunner().invoke(app, ["redis", "acl"])
    assert (CHART / "files/users.acl").read_text() == done.stdout, "distrl redis acl > helm/distrl/files/users.acl"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_every_alert_has_a_section_in_the_runbook(alert):
    page, _, section = alert["annotations"]["runbook_url"].partition("#")
    assert page == "@runbook@"
    assert section in sections(RUNBOOK)


def test_every_exit_code_has_a_section_in_the_runbook():
    assert {f"exit-code-{code}" for code in (0, 1, 2, 3, 4, 5, 6, 130, 137, 143)} <= sections(RUNBOOK)


def test_the_chart_has_the_version_of_the_program():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (distrl.__version__, distrl.__version__)


class Api(BaseHTTPRequestHandler):
    """The part of the Kubernetes API that has Secrets."""

    secrets: dict[str, Any]
    refuse: int | None

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self._answer(200 if name in self.secrets else 404, self.secrets.get(name, {}))

    def do_POST(self) -> None:
        made = self._body()
        self.secrets[made["metadata"]["name"]] = made
        self._answer(self.refuse or 201, made)

    def do_PATCH(self) -> None:
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        found = self.secrets[self.path.rpartition("/")[2]]
        found["data"] = {**(found.get("data") or {}), **self._body()["data"]}
        self._answer(200, found)

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, code: int, body: Any) -> None:
        assert self.headers["Authorization"] == "Bearer of-the-account"
        assert self.path.startswith("/api/v1/namespaces/team-a/secrets")
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def api(tmp_path):
    """An API server, and a function that runs the program against it."""
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.sign("api")
    (tmp_path / "token").write_text("of-the-account")
    (tmp_path / "namespace").write_text("team-a")
    (tmp_path / "ca.crt").write_bytes(authority.file.read_bytes())
    handler = type("Handler", (Api,), {"secrets": {}, "refuse": None})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = HTTPServer(("127.0.0.1", 0), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    program = (CHART / "files/make_secret.py").read_text()
    program = program.replace("/var/run/secrets/kubernetes.io/serviceaccount", str(tmp_path))

    def run(*keys: str) -> subprocess.CompletedProcess[str]:
        variables = {"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": str(server.server_port)}
        command = [sys.executable, "-I", "-c", program, "mine", "r", *keys]
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)

    yield handler, run
    server.shutdown()
    server.server_close()


def test_the_secret_is_made_once_and_keys_are_only_added(api):
    handler, run = api
    assert run("run-key", "dashboard-token").stdout == "Secret mine: run-key, dashboard-token added\n"
    first = dict(handler.secrets["mine"]["data"])
    assert all(re.fullmatch(r"[0-9a-f]{64}", base64.b64decode(value).decode()) for value in first.values())
    assert len(set(first.values())) == 2
    assert run("run-key", "dashboard-token").stdout == "Secret mine: no key added\n"
    assert handler.secrets["mine"]["data"] == first
    assert run("run-key", "auth_token").stdout == "Secret mine: auth_token added\n"
    assert {**handler.secrets["mine"]["data"], **first} == handler.secrets["mine"]["data"]


def test_what_the_api_refuses_is_one_line(api):
    handler, run = api
    handler.refuse = 403
    done = run("run-key")
    assert done.returncode == 1
    assert done.stderr == "the Kubernetes API refuses POST /api/v1/namespaces/team-a/secrets: 403 Forbidden\n"
