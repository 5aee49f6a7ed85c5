"""Frames on real sockets: any pieces, any size up to the limit, a deadline for each message, and nothing but maps."""

import contextlib
import socket
import threading

import msgpack
import msgpack_numpy
import numpy as np
import pytest

from distrl import wire
from distrl.environments.remote import protocol
from distrl.environments.remote.protocol import Channel, ConnectionLostError, RemoteError, foreign_text
from distrl.errors import DecodeError

LONG_S = 60.0  # never reached by a test that passes


def frame(message) -> bytes:
    body = wire.pack(message)
    return f"{len(body):08d}".encode() + body


@pytest.fixture
def pair():
    """A channel, and the raw socket at its other end."""
    with contextlib.ExitStack() as cleanup:
        server = cleanup.enter_context(socket.create_server(("127.0.0.1", 0)))
        raw = cleanup.enter_context(socket.create_connection(server.getsockname()))
        connected, _ = server.accept()
        channel = Channel(connected, message_timeout_s=LONG_S)
        cleanup.callback(channel.close)
        yield channel, raw


def receive(channel):
    return channel.receive(first_byte_s=LONG_S)


@pytest.mark.row("N31", "T23")
def test_a_request_is_eight_digits_and_a_map(pair):
    channel, raw = pair
    channel.send({"cmd": "seed", "value": 200})
    assert raw.recv(1000) == b"00000018" + b"\x82\xa3cmd\xa4seed\xa5value\xcc\xc8"


@pytest.mark.row("N31", "T23")
def test_one_byte_at_a_time_is_still_parsed(pair):
    channel, raw = pair
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = frame({"status": "ok", "obs_dict": {"observation": np.arange(6, dtype=np.float32).reshape(2, 3)}})

    def dribble():
        for byte in data:
            raw.sendall(bytes([byte]))

    thread = threading.Thread(target=dribble)
    thread.start()
    message = receive(channel)
    thread.join()
    np.testing.assert_array_equal(message["obs_dict"]["observation"], [[0, 1, 2], [3, 4, 5]])


@pytest.mark.row("N31")
def test_ten_megabytes_go_both_ways_through_partial_reads_and_writes(pair):
    channel, raw = pair
    picture = np.random.default_rng(0).integers(0, 256, 10_000_000, dtype=np.uint8)
    other = Channel(raw.dup(), message_timeout_s=LONG_S)

    def echo():
        other.send({"status": "ok", "back": receive(other)["picture"]})

    thread = threading.Thread(target=echo)
    thread.start()
    channel.send({"cmd": "step", "picture": picture})
    answered = channel.reply(first_byte_s=LONG_S)
    thread.join()
    other.close()
    np.testing.assert_array_equal(answered["back"], picture)


def test_messages_that_come_together_are_taken_apart(pair):
    channel, raw = pair
    raw.sendall(frame({"cmd": "reset"}) + frame({"cmd": "step", "action": 1}) + frame({"cmd": "reset"})[:5])
    assert receive(channel) == {"cmd": "reset"}
    assert receive(channel) == {"cmd": "step", "action": 1}
    raw.sendall(frame({"cmd": "reset"})[5:])
    assert receive(channel) == {"cmd": "reset"}


@pytest.mark.row("N31")
@pytest.mark.parametrize(("length", "accepted"), [(1000, True), (1001, False), (99_999_999, False)])
def test_a_header_beyond_the_limit_is_refused_before_anything_is_read(pair, length, accepted):
    channel, raw = pair
    channel.set_limits(LONG_S, 1000)
    padding = length - len(msgpack.packb({"x": b"\0" * 990})) + 990
    body = msgpack.packb({"x": b"\0" * padding}) if length <= 1001 else b""
    raw.sendall(f"{length:08d}".encode() + body)
    if accepted:
        assert len(body) == length
        assert receive(channel) == {"x": b"\0" * padding}
    else:
        with pytest.raises(DecodeError, match=f"announced {length:,} bytes; the limit is 1,000"):
            receive(channel)


# Bytes that a peer may send instead of a message, and the error.
GARBAGE = {
    "no digits": (b"GET / HTTP/1.1\r\n\r\n", r"b'GET / HT' where a length in 8 digits"),
    "negative": (b"-0000001x", "where a length"),
    "spaces": (b"      1x", "where a length"),
    "a header of binary": (b"\x00\x00\x00\x00\x00\x00\x00\x05hello", "where a length"),
    "an empty body": (b"00000000", "not msgpack"),
    "no msgpack": (b"00000003\xc1\xc1\xc1", "not msgpack"),
    "a number": (b"00000001\x05", "sent a int, not a map"),
    "a sequence": (b"00000002\x91\x01", "sent a tuple, not a map"),
    "an array": (frame(np.zeros(2)), "sent a ndarray, not a map"),
    "trailing bytes": (b"00000003\x80\x80\x80", "not msgpack"),
    "object array": (
        (lambda body: f"{len(body):08d}".encode() + body)(
            msgpack.packb({"a": np.array([{}], dtype=object)}, default=msgpack_numpy.encode)
        ),
        "refused",
    ),
    "deeply nested": (b"00000061" + b"\x81\xa1a" * 20 + b"\x05", "nested too deeply"),
}


@pytest.mark.row("N31")
@pytest.mark.parametrize(("sent", "what"), GARBAGE.values(), ids=GARBAGE.keys())
def test_what_is_no_message_is_a_decode_error_in_one_line(pair, sent, what):
    channel, raw = pair
    raw.sendall(sent)
    with pytest.raises(DecodeError, match=what) as raised:
        receive(channel)
    assert "\n" not in str(raised.value)


@pytest.mark.row("N31")
@pytest.mark.parametrize(
    ("sent", "where"),
    [(b"", "between messages"), (b"0000", "in the middle"), (frame({"cmd": "reset"})[:-1], "in the middle")],
)
def test_an_end_says_whether_a_message_was_cut(pair, sent, where):
    channel, raw = pair
    raw.sendall(sent)
    raw.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionLostError, match=f"closed the connection {where}"):
        receive(channel)


@pytest.mark.parametrize("sent", [b"", b"0", b"00000012", b"00000012\x81"])
def test_a_message_that_does_not_come_in_time_is_a_lost_connection(pair, sent):
    channel, raw = pair
    channel.set_limits(0.05, 1000)
    raw.sendall(sent)
    with pytest.raises(ConnectionLostError, match=f"sent {len(sent) or 'nothing'}.* in the time it has"):
        channel.receive(first_byte_s=0.05)


def test_somebody_who_does_not_read_is_a_lost_connection(pair):
    channel, _raw = pair
    channel.set_limits(0.2, 1000)
    with pytest.raises(ConnectionLostError, match="has not read a message in the time it has"):
        channel.send({"x": np.zeros(60_000_000, np.uint8)})  # more than the kernel keeps


def test_a_reset_connection_is_a_lost_one(pair):
    channel, raw = pair
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closing resets
    raw.close()
    with pytest.raises(ConnectionLostError, match="is broken: Connection reset by peer"):
        receive(channel)


def test_what_cannot_be_sent_is_not_begun(pair, monkeypatch):
    assert protocol.LARGEST_BODY_BYTES == 99_999_999
    monkeypatch.setattr(protocol, "LARGEST_BODY_BYTES", 1_000)
    channel, raw = pair
    with pytest.raises(TypeError, match="has no encoding"):
        channel.send({"cmd": object()})
    with pytest.raises(ValueError, match="1,000 is the most"):
        channel.send({"x": np.zeros(1_000, np.uint8)})
    channel.send({"cmd": "reset"})
    assert raw.recv(1000) == frame({"cmd": "reset"})


@pytest.mark.row("N31")
@pytest.mark.parametrize(
    ("message", "error", "what"),
    [
        ({"status": "error", "message": "no such level"}, RemoteError, r"127.0.0.1:\d+: no such level"),
        ({"status": "error"}, RemoteError, "no reason given"),
        ({"status": "error", "message": "a\nb\x1b[31m"}, RemoteError, r"a b\?\[31m$"),
        ({"status": "fine"}, DecodeError, "status 'fine'"),
        ({}, DecodeError, "status 'None'"),
    ],
)
def test_a_reply_that_is_not_ok_is_an_exception_with_its_message(pair, message, error, what):
    channel, raw = pair
    raw.sendall(frame(message))
    with pytest.raises(error, match=what):
        channel.reply(first_byte_s=LONG_S)


def test_a_dismissed_peer_reads_why_even_if_it_had_sent_more(pair):
    channel, raw = pair
    raw.sendall(b"garbage!" * 1000)
    other = Channel(raw.dup(), message_timeout_s=LONG_S)
    thread = threading.Thread(target=channel.dismiss, args=("that was no message",))
    thread.start()
    with pytest.raises(RemoteError, match="that was no message"):
        other.reply(first_byte_s=LONG_S)
    other.close()
    raw.close()
    thread.join()


def test_an_interrupted_channel_ends_what_waits_on_it(pair):
    channel, _raw = pair
    ended = []

    def wait():
        with pytest.raises(ConnectionLostError):
            channel.receive(first_byte_s=None)
        ended.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    channel.interrupt()
    thread.join()
    assert ended == [True]
    channel.close()
    channel.interrupt()  # too late, and no harm


def test_one_line_is_short_and_printable():
    assert foreign_text("a\n\tb") == "a b"
    assert foreign_text("\x07" * 3) == "???"
    assert len(foreign_text("x" * 5000)) == 300
