"""Peers that are none of ours are refused, and nothing is served to them."""

import os
import socket
import threading
from contextlib import closing

import pytest

from distrl.actors.admission import ActorProgress
from distrl.errors import MissingRunError
from distrl.inference import client
from distrl.inference.client import ServerGoneError, SharedPolicy
from distrl.inference.layout import Layout, make_memory
from distrl.inference.messages import REPLY_BYTES, Answer, Hello, Kind, Reply, Request
from distrl.inference.place import socket_path
from distrl.inference.server import InferenceServer
from distrl.inference.versions import Versions
from distrl.networks.policy.description import BundleDescription
from tests.waiting import PATIENCE_S


@pytest.fixture
def serving(tmp_path, remembering):
    """A server in a thread, and a function that connects to it."""
    _, bundle = remembering
    description = BundleDescription.from_json(bundle.description)
    stop, listening, opened = threading.Event(), threading.Event(), []
    versions = Versions(bundle, lambda: None, tmp_path)
    server = InferenceServer(description, versions, tmp_path, lambda state: listening.set())
    thread = threading.Thread(target=server.serve, args=(stop.is_set,))
    thread.start()

    def connect():
        assert listening.wait(PATIENCE_S)
        opened.append(socket.socket(socket.AF_UNIX))
        opened[-1].settimeout(PATIENCE_S)
        opened[-1].connect(str(socket_path(tmp_path)))
        return opened[-1]

    connect.description = description
    yield connect
    stop.set()
    for connection in opened:
        connection.close()
    thread.join()


def greet(connection, description, rows=2, *, graph=None, memory=None):
    """Send a greeting; return the answer, and whether the server has closed the connection."""
    layout = Layout(description, rows) if rows else Layout(description, 1)
    descriptor = make_memory(layout.size) if memory is None else memory
    hello = Hello(bytes.fromhex(description.sha256) if graph is None else graph, rows)
    socket.send_fds(connection, [hello.encode()], [descriptor])
    os.close(descriptor)
    return Reply.decode(connection.recv(REPLY_BYTES)).answer


def is_closed(connection):
    return connection.recv(1) == b""


def ordinary_file(size):
    """A file that could be made smaller while the server has it mapped."""
    path = f"/dev/shm/distrl-test-{os.getpid()}"
    with open(path, "wb") as file:
        file.truncate(size)
    descriptor = os.open(path, os.O_RDWR)
    os.unlink(path)
    return descriptor


def test_a_greeting_has_to_fit_the_policy_and_its_memory(serving):
    description = serving.description
    size = Layout(description, 2).size
    assert greet(serving(), description) is Answer.DONE
    for bad in (
        {"rows": 0},
        {"graph": bytes(32)},
        {"memory": make_memory(size - 64)},
        {"memory": ordinary_file(size)},
        {"memory": os.open("/dev/null", os.O_RDWR)},
    ):
        connection = serving()
        assert greet(connection, description, **bad) is Answer.REFUSED, bad
        assert is_closed(connection)
    assert greet(serving(), description) is Answer.DONE  # it serves on


def test_what_is_no_message_ends_the_connection(serving):
    for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 500):
        connection = serving()
        connection.sendall(noise)
        assert Reply.decode(connection.recv(REPLY_BYTES)).answer is Answer.REFUSED
    greeted = serving()
    greet(greeted, serving.description)
    greeted.send(Request(Kind.FOLLOW, 1, 0, 0).encode())
    assert Reply.decode(greeted.recv(REPLY_BYTES)) == Reply(Answer.NO_WEIGHTS, 1)
    greeted.send(b"\x07" + Request(Kind.FOLLOW, 2, 0, 0).encode()[1:])
    assert Reply.decode(greeted.recv(REPLY_BYTES)).answer is Answer.REFUSED
    assert is_closed(greeted)


def test_an_error_behind_the_weights_ends_the_server_and_refuses_no_actor(tmp_path, remembering, monkeypatch):
    """The run has ended: its supervisor is told, as by every other role."""
    monkeypatch.setattr(client, "STOPPING_S", 0.0)
    _, bundle = remembering
    description = BundleDescription.from_json(bundle.description)

    def fetch():
        raise MissingRunError("the run has ended", ended=True)

    server, stop = InferenceServer(description, Versions(bundle, fetch, tmp_path), tmp_path), threading.Event()

    def ask():
        actor = SharedPolicy(bundle.description, 2, tmp_path, stop.is_set, ActorProgress())
        with closing(actor), pytest.raises(ServerGoneError):
            actor.follow(1, fetch, 1.0)

    asking = threading.Thread(target=ask)
    asking.start()
    with pytest.raises(MissingRunError):
        server.serve(lambda: False)
    stop.set()
    asking.join()


def test_a_step_before_any_weights_is_answered(serving):
    with closing(serving()) as connection:
        greet(connection, serving.description)
        connection.send(Request(Kind.STEP, 1, 7, 7).encode())
        assert Reply.decode(connection.recv(REPLY_BYTES)) == Reply(Answer.FORGOTTEN, 1, 7)
