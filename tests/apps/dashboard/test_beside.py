import socket
import urllib.error
import urllib.request

import pytest

from distrl.apps.dashboard import beside
from distrl.apps.dashboard.access import READ_ONLY_TOKEN_VARIABLE, TOKEN_VARIABLE
from distrl.apps.dashboard.beside import dashboard_beside, page_of
from distrl.apps.dashboard.files import id_of
from distrl.errors import ConfigError, MissingExtraError

TOKEN = "token-of-many-letters"


@pytest.fixture(autouse=True)
def without_tokens(monkeypatch):
    for name in (TOKEN_VARIABLE, READ_ONLY_TOKEN_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def test_a_page_while_inside_whose_tokens_come_from_the_environment(root, make_run, monkeypatch):
    folder = make_run("a")
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with dashboard_beside(folder) as address:
        url, page = address.split("#")
        assert page == f"/run/{id_of('a')}"
        for path, told in (("api/session", b'"right":"act"'), (f"api/runs/{id_of('a')}", b'"name":"a"')):
            asking = urllib.request.Request(f"{url}{path}")
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(asking, timeout=60)
            asking.add_header("Authorization", f"Bearer {TOKEN}")
            with urllib.request.urlopen(asking, timeout=60) as answer:
                assert told in answer.read()
    port = int(url.rstrip("/").rpartition(":")[2])
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    monkeypatch.setenv(TOKEN_VARIABLE, "short")
    with pytest.raises(ConfigError, match="at least 16"):
        dashboard_beside(folder).__enter__()


def test_what_is_shown_beside_the_run(tmp_path, monkeypatch):
    started = []

    class Child:
        def __init__(self, command, **_):
            started.append(command[-2])
            self.stdin = open("/dev/null")  # noqa: SIM115

        def wait(self, *_):
            return 0

    monkeypatch.setattr(beside.subprocess, "Popen", Child)
    for name in ("runs/a", "home/b"):
        with dashboard_beside(tmp_path / name):
            pass
    assert started == [str(tmp_path / "runs"), str(tmp_path / "home" / "b")]
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_without_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(beside.NEEDED, "no_such_module", "uvicorn")
    with pytest.raises(
        MissingExtraError,
        match=r"uvicorn, which the dashboard needs, is not installed: pip install '.*\[dashboard\]'",
    ):
        dashboard_beside(tmp_path).__enter__()


def test_the_address_of_a_run(tmp_path):
    assert page_of(tmp_path, tmp_path / "a" / "b") == f"#/run/{id_of('a/b')}"
    assert page_of(tmp_path, tmp_path) == f"#/run/{id_of('')}"
