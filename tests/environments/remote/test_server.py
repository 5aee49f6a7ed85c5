"""Environments served on real sockets: clients next to each other, and hostile ones that harm no other client."""

import socket
import threading
from contextlib import ExitStack, closing

import msgpack
import msgpack_numpy
import numpy as np
import pytest

from distrl import wire
from distrl.config.environment import EnvironmentConfig
from distrl.environments.remote import server as module
from distrl.environments.remote.connection import TOKEN_VARIABLE, Address
from distrl.environments.remote.protocol import Channel, ConnectionLostError, RemoteError
from distrl.environments.remote.server import EnvironmentServer, serve_environment
from distrl.environments.remote.session import RemoteSession
from distrl.environments.worlds.toy import StepCounter
from distrl.errors import ConfigError
from distrl.interrupt import Interrupt

HERE = "127.0.0.1"
LONG_S = 60.0
TOKEN = "0123456789abcdef"


class Serving:
    """A server on a thread, and what it has said."""

    def __init__(self, token=None, most=16, make=StepCounter):
        self.lines: list[str] = []
        self.made = []
        self._spoken = threading.Condition()
        self._end = threading.Event()

        def session():
            self.made.append(make())
            return RemoteSession(self.made[-1])

        self.server = EnvironmentServer(session, token, self._write)
        arguments = (Address(HERE, 0), most, self._end.is_set)
        self._thread = threading.Thread(target=self.server.listen, args=arguments)
        self._thread.start()
        self.port = int(self.wait_for("listening on").rpartition(":")[2])

    def _write(self, line):
        with self._spoken:
            self.lines.append(line)
            self._spoken.notify_all()

    def wait_for(self, text):
        """The first line that holds the text."""
        with self._spoken:
            assert self._spoken.wait_for(lambda: any(text in line for line in self.lines), LONG_S), self.lines
            return next(line for line in self.lines if text in line)

    def connect(self) -> socket.socket:
        return socket.create_connection((HERE, self.port))

    def client(self) -> Channel:
        return Channel(self.connect(), message_timeout_s=LONG_S)

    def close(self):
        self._end.set()
        self._thread.join()
        self.server.close()


@pytest.fixture
def serving():
    with ExitStack() as cleanup:

        def start(**options):
            return cleanup.enter_context(closing(Serving(**options)))

        yield start


def ask(channel, **request):
    channel.send(request)
    return channel.reply(first_byte_s=LONG_S)


def play(channel):
    """A whole episode; the sum of its rewards."""
    ask(channel, cmd="reset")
    total, over = 0.0, False
    while not over:
        step = ask(channel, cmd="step", action=0)
        total, over = total + step["reward"], step["is_terminal"]
    return total


def test_each_connection_has_an_environment_of_its_own(serving):
    served = serving()
    with closing(served.client()) as first, closing(served.client()) as second:
        ask(first, cmd="reset")
        ask(second, cmd="reset")
        ask(first, cmd="step", action=0)
        assert ask(first, cmd="step", action=0)["reward"] == 2.0
        assert ask(second, cmd="step", action=0)["reward"] == 1.0
    assert len(served.made) == 2
    served.wait_for("closed the connection between messages, after 2 steps")
    served.wait_for("closed the connection between messages, after 1 steps")


def frame(body: bytes) -> bytes:
    return f"{len(body):08d}".encode() + body


OBJECTS = msgpack.packb({"cmd": "step", "action": np.array([{}], dtype=object)}, default=msgpack_numpy.encode)

# What a hostile client sends, and what it is told before it is dropped.
HOSTILE = {
    "garbage": (b"GET / HTTP/1.1\r\n\r\n", "where a length in 8 digits must stand"),
    "oversized header": (b"99999999", "announced 99,999,999 bytes; the limit is"),
    "object dtype": (frame(OBJECTS), "refused"),
    "no map": (frame(wire.pack([1, 2])), "sent a tuple, not a map"),
    "no msgpack": (frame(b"\xc1"), "not msgpack"),
    "a bomb of containers": (frame(b"\xdd\x00\x0f\xff\xff" + b"\x90" * 3000), "more than 65536 elements"),
    "half a message": (frame(wire.pack({"cmd": "reset"}))[:-1], "closed the connection in the middle of a message"),
    "half a header": (b"0000", "closed the connection in the middle of a message"),
}


@pytest.mark.row("N31")
@pytest.mark.parametrize(("sent", "told"), HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("known", [False, True], ids=["first message", "later message"])
def test_a_hostile_client_is_told_and_dropped_and_the_others_go_on(serving, sent, told, known):
    served = serving()
    with closing(served.client()) as good, served.connect() as raw:
        ask(good, cmd="reset")
        bad = Channel(raw.dup(), message_timeout_s=LONG_S)
        if known:
            ask(bad, cmd="reset")
        raw.sendall(sent)
        raw.shutdown(socket.SHUT_WR)
        with closing(bad):
            with pytest.raises(RemoteError, match=told):
                bad.reply(first_byte_s=LONG_S)
            with pytest.raises(ConnectionLostError):
                bad.receive(first_byte_s=LONG_S)
        assert ask(good, cmd="step", action=0)["reward"] == 1.0
        with closing(served.client()) as next_one:
            assert play(next_one) == 15.0


def test_a_slow_client_is_told_and_dropped(serving, monkeypatch):
    monkeypatch.setattr("distrl.environments.remote.connection.GREETING_S", 0.2)
    served = serving()
    with served.connect() as raw, closing(Channel(raw.dup(), message_timeout_s=LONG_S)) as slow:
        raw.sendall(b"0000")
        with pytest.raises(RemoteError, match="sent 4 of 8 bytes in the time it has for a message"):
            slow.reply(first_byte_s=LONG_S)


@pytest.mark.parametrize("first", [{"cmd": "hello", "token": TOKEN[:-1] + "0"}, {"cmd": "hello"}, {"cmd": "reset"}])
def test_without_the_token_nothing_is_made(serving, first):
    served = serving(token=TOKEN)
    with closing(served.client()) as stranger, pytest.raises(RemoteError, match="does not know the token"):
        ask(stranger, **first)
    assert served.made == []
    with closing(served.client()) as known:
        assert ask(known, cmd="hello", token=TOKEN) == {"status": "ok"}
        assert play(known) == 15.0
    assert TOKEN not in str(served.lines)


def test_a_stranger_who_says_nothing_is_dropped(serving, monkeypatch):
    monkeypatch.setattr(module, "GREETING_S", 0.2)
    served = serving(token=TOKEN)
    with closing(served.client()) as silent, pytest.raises(RemoteError, match="sent nothing in the time it has"):
        silent.reply(first_byte_s=LONG_S)
    assert served.made == []


def test_a_stranger_who_says_too_much_is_dropped(serving):
    served = serving(token=TOKEN)
    with closing(served.client()) as loud, pytest.raises(RemoteError, match="the limit is 4,096"):
        ask(loud, cmd="hello", token="x" * 5000)
    assert served.made == []


def test_no_more_than_the_most_connections(serving):
    served = serving(most=1)
    with closing(served.client()) as first:
        ask(first, cmd="reset")
        with closing(served.client()) as second:
            second.send({"cmd": "describe"})
            reply = second.receive(first_byte_s=LONG_S)
            assert (reply["message"], reply["retry"]) == ("1 connections are the most there may be", True)
        ask(first, cmd="step", action=0)
    served.wait_for("after 1 steps")


@pytest.mark.parametrize("token", [None, TOKEN])
def test_strangers_who_say_nothing_keep_nobody_out(serving, token):
    served = serving(token=token, most=1)
    with ExitStack() as silent:
        strangers = [silent.enter_context(served.connect()) for _ in range(module._GREETINGS + 5)]
        with closing(served.client()) as known:
            assert ask(known, cmd="hello", token=TOKEN) == {"status": "ok"}
            assert play(known) == 15.0
        strangers[0].settimeout(LONG_S)
        assert strangers[0].recv(1000) == b""  # the oldest made room
    assert len(served.made) == 1


class Sticks(StepCounter):
    def close(self):
        raise RuntimeError("the arm sticks")


def test_an_environment_that_fails_in_close_is_told_of(serving):
    served = serving(make=Sticks)
    with closing(served.client()) as client:
        ask(client, cmd="reset")
    assert "its environment failed in close: RuntimeError: the arm sticks" in served.wait_for("sticks")


def test_who_dials_dials_again_after_an_environment_that_failed_in_close():
    with socket.create_server((HERE, 0)) as listener:
        server = EnvironmentServer(lambda: RemoteSession(Sticks()), None, lambda line: None)
        end = threading.Event()
        address = Address(HERE, listener.getsockname()[1])
        thread = threading.Thread(target=server.dial, args=(address, 1, end.is_set))
        thread.start()
        try:
            listener.settimeout(LONG_S)
            for _ in range(2):
                with closing(Channel(listener.accept()[0], message_timeout_s=LONG_S)) as channel:
                    assert channel.receive(first_byte_s=LONG_S) == {"cmd": "hello"}
                    channel.send({"status": "ok"})
                    ask(channel, cmd="reset")
        finally:
            end.set()
            server.close()
            thread.join()


def test_a_connection_that_cannot_be_accepted_does_not_end_the_server(serving, monkeypatch):
    class Short:
        """Has no room for the first who dials."""

        def __init__(self, server):
            self._server = server
            self._left = 1

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            self._server.close()

        def accept(self):
            self._left -= 1
            if self._left == 0:
                raise OSError(24, "Too many open files")
            return self._server.accept()

        def __getattr__(self, name):
            return getattr(self._server, name)

    real = module.listening
    monkeypatch.setattr(module, "listening", lambda *args, **options: Short(real(*args, **options)))
    served = serving()
    served.wait_for("a connection could not be accepted: [Errno 24] Too many open files")
    with closing(served.client()) as client:
        assert play(client) == 15.0


def test_an_environment_that_raises_keeps_its_connection(serving):
    class Breaks(StepCounter):
        def step(self, action):
            raise RuntimeError("the motor is hot")

    served = serving(make=Breaks)
    with closing(served.client()) as client:
        ask(client, cmd="reset")
        with pytest.raises(RemoteError, match="RuntimeError: the motor is hot"):
            ask(client, cmd="step", action=0)
        assert ask(client, cmd="reset")["status"] == "ok"


def test_an_environment_that_cannot_be_made_is_the_reply(serving):
    def broken():
        raise OSError("no ROM here")

    served = serving(make=broken)
    with closing(served.client()) as client, pytest.raises(RemoteError, match="OSError: no ROM here"):
        ask(client, cmd="reset")
    served.wait_for("dismissed: OSError: no ROM here")


def test_refusals_are_counted_and_told_once_a_second(serving, monkeypatch):
    monkeypatch.setattr(module, "REFUSALS_EVERY_S", 1e9)
    served = serving()
    for _ in range(3):
        with served.connect() as raw:
            raw.sendall(b"garbage!")
            while raw.recv(1000):
                pass
    assert len([line for line in served.lines if "dismissed" in line]) == 1
    assert served.server._refused == 3


def test_progress_is_told_while_somebody_is_there(serving, monkeypatch):
    monkeypatch.setattr(module, "PROGRESS_EVERY_S", 0.0)
    served = serving()
    with closing(served.client()) as client:
        play(client)
        served.wait_for("1 connections · ")
        served.wait_for(" steps/s · 5 steps · 1 episodes")


def test_closing_ends_connections_that_wait(serving, monkeypatch):
    monkeypatch.setattr(module, "_END_S", LONG_S)
    served = serving()
    with closing(served.client()) as client:
        ask(client, cmd="reset")
        served.close()
        with pytest.raises((ConnectionLostError, RemoteError)):
            client.reply(first_byte_s=LONG_S)
    assert not any(thread.is_alive() for thread in served.server._threads)


def serve(config, **changes):
    arguments = {"listen_at": (HERE, 0), "dial": None, "connections": 1, "token_file": None, "write": lambda line: None}
    return serve_environment(EnvironmentConfig(**config), **{**arguments, **changes})


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        ({"id": "NoSuch-v0"}, {}, "unknown environment 'NoSuch-v0'"),
        ({"id": "tcp://host:1"}, {}, "is an address already"),
        ({"id": "CartPole-v1"}, {"listen_at": ("0.0.0.0", 0)}, "a token is needed"),
        ({"id": "CartPole-v1"}, {"token_file": "/no/such/file"}, "cannot be read"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anybody_comes(monkeypatch, config, changes, message):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=message):
        serve(config, **changes)


def test_an_environment_that_takes_long_to_make_is_told_of(monkeypatch):
    told, lines = threading.Event(), []

    def write(line):
        lines.append(line)
        told.set()

    def slow(config):
        assert told.wait(LONG_S)
        raise ConfigError("it is slow, and broken")

    monkeypatch.setattr(module, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(module, "make_one", slow)
    with pytest.raises(ConfigError, match="it is slow, and broken"):
        serve({"id": "CartPole-v1"}, write=write)
    assert lines == ["making the environment CartPole-v1 …"]


@pytest.mark.parametrize(("code", "name"), [(130, "Ctrl-C"), (0, "SIGTERM")])
@pytest.mark.parametrize("dial", [None, (HERE, 1)])
def test_a_signal_ends_it_with_its_code(monkeypatch, code, name, dial):
    lines = []

    class Asked:
        def __enter__(self):
            return Interrupt(code, name)

        def __exit__(self, *exception):
            return None

    monkeypatch.setattr(module, "interruptible", Asked)
    config = {"id": "distrl.environments.worlds.toy:StepCounter"}
    assert serve(config, dial=dial, write=lines.append) == code
    assert lines[-1] == f"stopped by {name}"
