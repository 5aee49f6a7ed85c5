import socket

import pytest

from distrl.errors import MemoryBackendError
from distrl.memory_backend.meter import Meter, MeteredSocket
from distrl.memory_backend.redis_address import parse_address
from distrl.memory_backend.redis_client import connect


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_bytes_are_counted_by_either_way(pair):
    ours, theirs = pair
    meter = Meter(10, 60.0)
    metered = MeteredSocket(ours, meter)
    theirs.sendall(b"x" * 30)
    assert metered.recv(4) == b"xxxx"
    buffer = bytearray(6)
    assert metered.recv_into(buffer) == 6
    with pytest.raises(MemoryBackendError, match="answers with more than 10 bytes"):
        metered.recv(1)
    meter.begin()
    assert metered.recv(10) == b"x" * 10
    assert metered.fileno() == ours.fileno()


def test_seconds_are_counted_over_all_of_it(pair):
    ours, theirs = pair
    now = [0.0]
    metered = MeteredSocket(ours, Meter(10, 5.0, lambda: now[0]))
    for _ in range(5):
        theirs.sendall(b"x")  # each in time, all together not
        assert metered.recv(1) == b"x"
        now[0] += 1.0
    theirs.sendall(b"x")
    with pytest.raises(MemoryBackendError, match="has not answered within 5 s"):
        metered.recv(1)


def test_a_time_out_of_the_socket_is_its_own(pair):
    ours, _ = pair
    ours.settimeout(0.01)
    with pytest.raises(TimeoutError):
        MeteredSocket(ours, Meter(10, 60.0)).recv(1)
    assert ours.gettimeout() == 0.01


@pytest.mark.redis
def test_a_connection_that_is_metered(redis_url):
    meter = Meter(2**20, 60.0)
    client = connect(parse_address(redis_url), name="test", give_up_s=1.0, meter=meter)
    client.call("SET", "metered", b"x" * 2**18)
    for _ in range(4):
        meter.begin()
        assert len(client.call("GET", "metered")) == 2**18
    for _ in range(2):
        client.call("GET", "metered")
    with pytest.raises(MemoryBackendError, match="more than 1,048,576 bytes"):
        client.call("GET", "metered")
    meter.begin()
    assert client.call("DEL", "metered") == 1
    client.close()
