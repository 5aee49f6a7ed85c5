"""Runs with saved policies, and servers of them on free ports."""

import contextlib
import http.client
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

import distrl
from distrl import wire
from distrl.apps.serve.app import ServeSettings
from distrl.apps.serve.gate import ClientGate
from distrl.apps.serve.report import ServerReport
from distrl.apps.serve.server import make_server
from distrl.apps.serve.sources import source_of
from distrl.apps.serve.versions import PolicyVersions
from distrl.apps.web.access import Access
from distrl.apps.web.listening import listen
from distrl.terminal.console import QuietView
from tests.waiting import PATIENCE_S

MASK = "network.heads_parameters=[{kind: policy, action_mask: action_mask}, {kind: value}]"
KINDS = {
    "mlp": ("CartPole-v1", ()),
    "lstm": ("CartPole-v1", ("network.middleware_parameters.kind=lstm",)),
    "masked": ("distrl.environments.worlds.toy:Masked", (MASK,)),
}
NOTHING_SEEN = [0.0] * 4
USUAL = ("actors.count=0", "stop.updates=1", "checkpoint.every_updates=1", "seed=3")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """trained(kind): a run of one update; each kind once."""
    made: dict[str, Path] = {}

    def train(kind: str) -> Path:
        if kind not in made:
            run_dir = tmp_path_factory.mktemp("runs") / kind
            env, sets = KINDS[kind]
            config = distrl.load("cartpole-impala", sets=[f"environment.id={env}", *USUAL, *sets])
            distrl.train(config, run_dir=run_dir, view=QuietView(run_dir, lambda text: None))
            made[kind] = run_dir
        return made[kind]

    return train


@pytest.fixture(scope="session")
def copied(trained: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """copied(kind): a run to be changed."""
    return lambda kind: Path(shutil.copytree(trained(kind), tmp_path_factory.mktemp("copies") / kind))


class Served:
    """A server in a thread of this process."""

    def __init__(self, port: int, server: Any) -> None:
        self.port = port
        self.server = server

    def ask(
        self, method: str, path: str, message: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return status and body, read as JSON where it is."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)) as connection:
            return ask_by(connection, method, path, message, headers)

    def act(self, **message: Any) -> dict[str, Any]:
        status, reply = self.ask("POST", "/act", message)
        assert status == reply.get("status", 200), reply
        return dict(reply)

    @contextlib.contextmanager
    def socket(self, *subprotocols: str, **others: Any) -> Iterator[Any]:
        """Yield a WebSocket; messages are sent and received by `exchange`."""
        url = f"ws://127.0.0.1:{self.port}/ws"
        with connect(url, subprotocols=subprotocols or None, proxy=None, compression=None, **others) as websocket:
            yield websocket


def ask_by(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    message: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """Ask by a connection that stays open."""
    body = message if message is None or isinstance(message, bytes) else json.dumps(message).encode()
    connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    data = answer.read()
    kind = answer.headers["Content-Type"]
    return answer.status, json.loads(data) if kind == "application/json" else data


def exchange(websocket: Any, **message: Any) -> dict[str, Any]:
    """Send a message in the WebSocket's format, and return the next reply."""
    packed = websocket.subprotocol == "msgpack"
    websocket.send(wire.pack(message) if packed else json.dumps(message))
    reply = websocket.recv(timeout=PATIENCE_S)
    return dict(wire.unpack(reply) if packed else json.loads(reply))  # type: ignore[arg-type]


@contextlib.contextmanager
def serving(
    *policies: Path,
    share: float = 0.5,
    access: Access | None = None,
    gate: ClientGate | None = None,
    report: ServerReport | None = None,
    port: int = 0,
    **settings: Any,
) -> Iterator[Served]:
    """Serve policies while inside, on a port or on one that is free."""
    versions = PolicyVersions([source_of(str(policy)) for policy in policies], share)
    gate = gate or ClientGate(access or Access("127.0.0.1"))
    server = make_server(versions, gate, ServeSettings(**{"poll_s": 0.01, **settings}), report=report)
    with listen("127.0.0.1", port) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Served(listening.getsockname()[1], server)
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def mlp(trained: Callable[[str], Path]) -> Iterator[Served]:
    with serving(trained("mlp"), seed=1) as served:
        yield served


@pytest.fixture(scope="module")
def lstm(trained: Callable[[str], Path]) -> Iterator[Served]:
    with serving(trained("lstm")) as served:
        yield served
