"""Addresses, tokens and who is let in, on real sockets."""

import os
import socket
import threading
from contextlib import ExitStack, closing, nullcontext, suppress

import pytest

from distrl import wire
from distrl.config.environment import EnvironmentConfig
from distrl.environments.remote import connection
from distrl.environments.remote.connection import (
    Address,
    Route,
    accept,
    back_off,
    check_admitted,
    check_listening,
    dial,
    hello,
    is_remote,
    listening,
    parse_address,
    read_token,
)
from distrl.environments.remote.protocol import Channel, ConnectionLostError, RemoteError
from distrl.errors import ConfigError, DecodeError

LONG_S = 60.0
TOKEN = "0123456789abcdef"
HERE = "127.0.0.1"


@pytest.fixture(autouse=True)
def _no_token(monkeypatch):
    monkeypatch.delenv(connection.TOKEN_VARIABLE, raising=False)


def call(port, greeting, wait_s=LONG_S):
    return dial(Address(HERE, port), greeting, message_timeout_s=LONG_S, wait_s=wait_s, max_bytes=10_000)


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("tcp://robot:6025", Address("robot", 6025)),
        ("tcp://10.0.0.1:1", Address("10.0.0.1", 1)),
        ("tcp://[::1]:6025", Address("::1", 6025)),
        ("tcp-listen://0.0.0.0:6025", Address("0.0.0.0", 6025, dial=False)),
    ],
)
def test_addresses(name, address):
    assert is_remote(name)
    assert parse_address(name) == address
    assert str(address) == name.partition("://")[2]


@pytest.mark.parametrize(
    "name",
    ["tcp://", "tcp://host", "tcp://:6025", "tcp://host:x", "tcp://host:99999", "tcp://me@host:1", "tcp://host:1/x"],
)
def test_what_is_no_address_is_refused_by_name(name):
    assert is_remote(name)
    with pytest.raises(ConfigError, match="is no address of an environment: tcp://HOST:PORT or tcp-listen://HOST:PORT"):
        parse_address(name)


def test_other_names_are_no_addresses():
    assert not is_remote("CartPole-v1")
    assert not is_remote("package.module:Class")


def token_file(folder, content):
    path = folder / "token"
    path.write_text(content)
    path.chmod(0o600)
    return str(path)


def test_the_token_is_in_a_file_or_in_the_environment(tmp_path, monkeypatch):
    assert read_token(None) is None
    monkeypatch.setenv(connection.TOKEN_VARIABLE, f" {TOKEN}\n")
    assert read_token(None) == TOKEN
    assert read_token(token_file(tmp_path, "another one of 24 bytes.\n")) == "another one of 24 bytes."


@pytest.mark.parametrize(("content", "message"), [("", "is empty"), ("short", "has 5 characters; 16 are")])
def test_a_token_that_is_no_secret_is_refused(tmp_path, content, message):
    with pytest.raises(ConfigError, match=message):
        read_token(token_file(tmp_path, content))


def test_a_token_that_cannot_be_read_or_that_others_can_read_is_refused(tmp_path):
    os.chmod(path := token_file(tmp_path, TOKEN), 0o640 if os.getuid() else 0o604)
    with pytest.raises(ConfigError, match=rf"others may read token_file .*; chmod 600 {path}"):
        read_token(path)
    with pytest.raises(ConfigError, match=r"cannot be read: .*No such file"):
        read_token(str(tmp_path / "nothing"))


@pytest.mark.parametrize(("host", "open_to_all"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_listening_for_others_needs_a_token(host, open_to_all):
    check_listening(Address(host, 6025), TOKEN)
    if open_to_all:
        with pytest.raises(ConfigError, match=r"others can reach 0\.0\.0\.0:6025, so a token is needed"):
            check_listening(Address(host, 6025), None)
    else:
        check_listening(Address(host, 6025), None)


def test_a_host_without_an_address_cannot_be_listened_on():
    nowhere = Address("x" * 64, 1)  # longer than a name may be, so that no resolver is asked
    with pytest.raises(ConfigError, match=r"cannot listen on xxx.*label"):
        check_listening(nowhere, None)
    with pytest.raises(ConfigError, match=r"cannot listen on xxx.*label"):
        listening(nowhere, shared=False)
    with pytest.raises(ConnectionLostError, match=r"xxx.* cannot be reached: .*label"):
        dial(nowhere, None, message_timeout_s=1.0, wait_s=1.0, max_bytes=1000)


def test_a_port_that_is_taken_is_a_config_error(free_port):
    with (
        socket.create_server((HERE, free_port)),
        pytest.raises(ConfigError, match=f"cannot listen on {HERE}:{free_port}: Address already in use"),
    ):
        listening(Address(HERE, free_port), shared=False)


@pytest.mark.parametrize(
    ("message", "let_in"),
    [
        ({"cmd": "hello", "token": TOKEN}, True),
        ({"cmd": "hello", "token": TOKEN + "0"}, False),
        ({"cmd": "hello", "token": ""}, False),
        ({"cmd": "hello", "token": "ä"}, False),
        ({"cmd": "hello", "token": TOKEN.encode()}, False),
        ({"cmd": "hello"}, False),
        ({"cmd": "step", "token": TOKEN}, False),
        ({}, False),
    ],
)
def test_only_the_token_lets_in(message, let_in):
    with nullcontext() if let_in else pytest.raises(DecodeError, match="robot does not know the token"):
        check_admitted("robot", TOKEN, message)
    check_admitted("robot", None, message)


def test_back_off_doubles_up_to_two_seconds_with_jitter():
    for attempt, most in enumerate([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]):
        drawn = [back_off(attempt) for _ in range(200)]
        assert most / 2 <= min(drawn) < max(drawn) <= most


@pytest.mark.row("N30")
def test_nobody_there_is_a_lost_connection(free_port):
    with pytest.raises(ConnectionLostError, match=f"{HERE}:{free_port} cannot be reached: Connection refused"):
        call(free_port, None)


def answering(server, reply):
    """Answers the first message of the next one that dials; returns what it was in a list."""
    got = []

    def run():
        channel = Channel(server.accept()[0], message_timeout_s=LONG_S)
        got.append(channel.receive(first_byte_s=LONG_S))
        channel.send(reply)
        channel.close()

    thread = threading.Thread(target=run)
    thread.start()
    return got, thread


@pytest.mark.parametrize("reply", [{"status": "ok"}, {"status": "error", "message": "unknown token"}])
def test_the_greeting_must_be_answered_with_ok(reply):
    with socket.create_server((HERE, 0)) as server:
        got, thread = answering(server, reply)
        if reply["status"] == "ok":
            call(server.getsockname()[1], hello(TOKEN)).close()
        else:
            with pytest.raises(RemoteError, match="unknown token"):
                call(server.getsockname()[1], hello(TOKEN))
        thread.join()
    assert got == [{"cmd": "hello", "token": TOKEN}]


def accepted(port, token=None, wait_s=LONG_S):
    address = Address(HERE, port, dial=False)
    return accept(address, token, wait_s=wait_s, message_timeout_s=LONG_S, max_bytes=10_000)


def persistently(port, greeting, errors=None):
    """Dial until the other side listens and says ok, as an environment does."""
    while True:
        try:
            return call(port, greeting)
        except ConnectionLostError:
            continue
        except RemoteError as error:
            if errors is None:
                raise
            errors.append(str(error))


def in_background(work):
    done = []
    thread = threading.Thread(target=lambda: done.append(work()))
    thread.start()
    return done, thread


def test_an_environment_that_dials_us_is_taken(free_port):
    taken, thread = in_background(lambda: accepted(free_port))
    with closing(persistently(free_port, hello(None))) as environment:
        thread.join()
        with closing(taken[0]) as ours:
            ours.send({"cmd": "reset"})
            assert environment.receive(first_byte_s=LONG_S) == {"cmd": "reset"}


def test_who_does_not_know_the_token_is_told_and_the_next_one_is_taken(free_port):
    taken, thread = in_background(lambda: accepted(free_port, TOKEN))
    with pytest.raises(RemoteError, match="does not know the token"):
        persistently(free_port, hello("not the right token"))
    with pytest.raises(RemoteError, match="did not begin with hello"):
        persistently(free_port, {"cmd": "step"})
    with closing(persistently(free_port, hello(TOKEN))):
        thread.join()
    taken[0].close()


def test_somebody_who_says_nothing_keeps_nobody_out(free_port):
    taken, thread = in_background(lambda: accepted(free_port))
    with ExitStack() as silent:
        while not taken:
            try:
                silent.enter_context(socket.create_connection((HERE, free_port)))
                break
            except ConnectionRefusedError:
                continue
        with closing(persistently(free_port, hello(None))):
            thread.join()
    taken[0].close()


def test_of_too_many_who_say_nothing_the_oldest_makes_room(free_port):
    taken, thread = in_background(lambda: accepted(free_port, TOKEN))
    with ExitStack() as silent:
        here = 0
        while here < connection._MOST_GREETINGS + 3:
            with suppress(ConnectionRefusedError):
                silent.enter_context(socket.create_connection((HERE, free_port)))
                here += 1
        with closing(call(free_port, hello(TOKEN))):  # at the first attempt
            thread.join()
    taken[0].close()


def test_a_connection_that_cannot_be_accepted_does_not_end_the_wait(monkeypatch):
    class Short:
        """Refuse a client for lack of room, then end."""

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            return None

        def settimeout(self, seconds):
            return None

        def accept(self):
            raise OSError(24, "Too many open files")

    monkeypatch.setattr(connection, "listening", lambda *args, **options: Short())
    with pytest.raises(ConnectionLostError, match=r"no environment has dialled .*Too many open files"):
        accepted(1, wait_s=0.05)


def test_one_who_leaves_while_he_is_let_in_leaves_nothing_open(free_port, monkeypatch):
    def gone(self, message, **limits):
        closed.append(self)
        raise ConnectionLostError("gone")

    def accept():
        with pytest.raises(ConnectionLostError, match="gone"):
            accepted(free_port)

    closed = []
    done, thread = in_background(accept)
    body = wire.pack(hello(None))
    monkeypatch.setattr(Channel, "send", gone)
    while True:
        with suppress(ConnectionRefusedError), socket.create_connection((HERE, free_port)) as raw:
            raw.sendall(b"%08d" % len(body) + body)
            thread.join()
            break
    assert done == [None]
    assert closed[0]._socket.fileno() == -1


def test_one_port_serves_several_who_wait_for_environments(free_port):
    waiting = [in_background(lambda: accepted(free_port)) for _ in range(2)]
    with ExitStack() as cleanup:
        for _ in waiting:
            cleanup.callback(persistently(free_port, hello(None), errors=[]).close)
        for taken, thread in waiting:
            thread.join()
            cleanup.callback(taken[0].close)


def test_nobody_in_time_is_a_lost_connection_that_says_who_was_refused(free_port):
    with pytest.raises(ConnectionLostError, match=rf"no environment has dialled {HERE}:{free_port} in 0 s$"):
        accepted(free_port, wait_s=0.05)


def route(id_="tcp://robot:6025", step_timeout_s=60.0, **kwargs):
    return Route.of(EnvironmentConfig(id=id_, kwargs=kwargs, step_timeout_s=step_timeout_s))


def test_we_dial_or_are_dialled(tmp_path):
    assert (route().address, route().token) == (Address("robot", 6025), None)
    listening = route("tcp-listen://0.0.0.0:6025", token_file=token_file(tmp_path, TOKEN))
    assert (listening.address.dial, listening.token) == (False, TOKEN)


def test_who_is_dialled_waits_longer_as_somebody_may_be_about_to_start_it():
    assert route().first_connection_s == 5.0
    assert route("tcp-listen://127.0.0.1:6025").first_connection_s == 30.0
    assert route("tcp-listen://127.0.0.1:6025", connect_timeout_s=2).first_connection_s == 2.0


def test_atari_is_not_for_remote_environments():
    with pytest.raises(ConfigError, match=r"environment tcp://robot:1: environment\.atari is not for remote"):
        Route.of(EnvironmentConfig(id="tcp://robot:1", atari={}))


def test_who_listens_for_others_needs_a_token(monkeypatch):
    with pytest.raises(ConfigError, match="a token is needed"):
        route("tcp-listen://0.0.0.0:6025")
    monkeypatch.setenv(connection.TOKEN_VARIABLE, TOKEN)
    assert route("tcp-listen://0.0.0.0:6025").token == TOKEN


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"gravity": 9.8}, r"environment\.kwargs\.gravity: Extra inputs are not permitted \(environment tcp://robot"),
        ({"give_up_s": -1}, r"environment\.kwargs\.give_up_s: Input should be greater than 0"),
        ({"observation_space": {"type": "Box", "shape": [1]}}, "come together"),
        ({"token_file": "/no/such/file"}, "cannot be read"),
        (
            {"give_up_s": 40},
            r"give_up_s \(40\) \+ message_timeout_s \(20\) is 60 and must be less than environment\.step_timeout_s 60",
        ),
        (
            {"connect_timeout_s": 45},
            r"connect_timeout_s \(45\) \+ message_timeout_s \(20\) is 65 and must be less than",
        ),
        ({"message_timeout_s": 30}, r"2 \* message_timeout_s \(30\) is 60 and must be less than"),
    ],
)
def test_parameters_that_are_wrong_are_named(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        route(**kwargs)
