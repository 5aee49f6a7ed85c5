import threading

import pytest

from tests.faults.job_server import Server


@pytest.fixture
def ray_variables(monkeypatch):
    """Ray's variables of this process stay as they are."""
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "RAY_ADDRESS", "RAY_AUTH_MODE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def job_server(ray_variables):
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.done.set()
    server.shutdown()
    thread.join()
    server.server_close()
