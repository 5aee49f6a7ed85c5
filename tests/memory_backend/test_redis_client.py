"""redis_client: what happens when replies are lost, Redis is gone, refuses, or evicts."""

import os
import select
import shutil
import signal
import socket
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
import redis

from distrl.config.schedules import Progress
from distrl.errors import FencedError, MemoryBackendError
from distrl.memory_backend import backend as backends
from distrl.memory_backend import redis_client, redis_connection
from distrl.memory_backend.embedded_redis import EmbeddedRedis
from distrl.memory_backend.ledger import EntryOutcome
from distrl.memory_backend.meter import Meter
from distrl.memory_backend.redis_address import parse_address
from distrl.memory_backend.redis_client import RedisClient
from distrl.memory_backend.stream import QueueCaps
from distrl.types import UnrollHeader
from tests.faults.own_redis import OwnRedis
from tests.forging import add_to_ledger
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


def connect(url, **options):
    """Connect to the Redis at a URL."""
    return redis_client.connect(parse_address(url), **options)


class LossyProxy:
    """Forwards to Redis; once armed, hands the next request with `marker` on, swallows its reply and hangs up."""

    def __init__(self, upstream):
        self.directory = Path(tempfile.mkdtemp(prefix="distrl-proxy-"))
        self.url = f"unix://{self.directory / 'proxy.sock'}"
        self.upstream = upstream.removeprefix("unix://")
        self.marker = None
        self.lost = 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.url.removeprefix("unix://"))
        self.listener.listen()
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self.serve, args=(client,))
            self.threads.append(thread)
            thread.start()

    def serve(self, client):
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self.upstream)
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if client in ready:
                    request = client.recv(2**20)
                    if not request:
                        return
                    server.sendall(request)
                    if self.marker is not None and self.marker in request:
                        self.marker = None
                        server.recv(2**20)  # Redis has applied it
                        self.lost += 1
                        return
                if server in ready:
                    reply = server.recv(2**20)
                    if not reply:
                        return
                    client.sendall(reply)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(5.0)
        shutil.rmtree(self.directory)


@pytest.fixture
def lossy(redis_run):
    """(a backend behind the proxy, the proxy)."""
    proxy = LossyProxy(redis_run.url)
    honest, redis_run.url = redis_run.url, proxy.url
    backend = redis_run.connect()
    redis_run.url = honest
    yield backend, proxy
    backend.close()
    proxy.close()


def test_an_acknowledgement_whose_reply_is_lost_counts_once(lossy):
    backend, proxy = lossy
    learner = backend.become_learner()
    backend.unrolls.push(UnrollHeader(0, 1, 0, 0, 1), b"x")
    entries = backend.unrolls.take(1, 0.0)
    proxy.marker = b"EXEC"
    learner.unrolls.settle(entries, EntryOutcome.TRAINED)
    assert proxy.lost == 1
    counts = backend.ledger.counts()
    assert (counts.trained, counts.stream_bytes, counts.imbalance) == (1, 0, 0)


def test_weights_tickets_and_roll_back_survive_lost_replies_exactly_once(lossy):
    backend, proxy = lossy
    learner = backend.become_learner()
    add_to_ledger(backend, {"produced": 2, "trained": 2})
    proxy.marker = b"EXEC"
    learner.weights.publish(1, b"w", Progress())
    proxy.marker = b"EXEC"
    learner.tickets.issue(3)
    proxy.marker = b"EXEC"
    learner.ledger.recover(0)
    assert proxy.lost == 3
    assert backend.weights.fetch()[:2] == (1, b"w")
    assert backend.tickets.counts() == (3, 0)
    assert backend.ledger.counts().rolled_back == 2


def test_a_run_whose_creation_is_not_heard_of_exists(lossy):
    backend, proxy = lossy
    backend.delete()
    proxy.marker = b"EXEC"
    backend.create("again")
    assert proxy.lost == 1
    assert backend.config_json() == "again"


def test_a_repeated_push_stores_a_copy_that_the_ledger_counts(lossy):
    backend, proxy = lossy
    learner = backend.become_learner()
    proxy.marker = b"XADD"
    backend.unrolls.push(UnrollHeader(0, 1, 0, 0, 1), b"x")
    assert proxy.lost == 1
    first, second = backend.unrolls.take(10, 0.0)
    assert first.header == second.header
    learner.unrolls.settle([first], EntryOutcome.TRAINED)
    learner.unrolls.settle([second], EntryOutcome.DUPLICATE)
    counts = backend.ledger.counts()
    assert (counts.produced, counts.trained, counts.dropped["duplicate"], counts.foreign) == (2, 1, 1, 0)
    assert (counts.imbalance, counts.stream_bytes) == (0, 0)


@pytest.mark.parametrize("block_s", [0.0, 5.0])
def test_a_ticket_whose_reply_is_lost_is_not_taken_twice(lossy, block_s):
    backend, proxy = lossy
    backend.registry.register_actor(0)
    backend.become_learner().tickets.issue(2)
    proxy.marker = b"LMOVE" if block_s == 0.0 else b"BLMOVE"
    assert backend.tickets.take((0, 1), block_s)
    assert proxy.lost == 1
    assert backend.tickets.counts() == (1, 1)


@pytest.mark.parametrize("block_s", [0.0, 5.0])
def test_entries_whose_reply_is_lost_are_taken_after_all(lossy, block_s):
    backend, proxy = lossy
    for sequence in range(3):
        backend.unrolls.push(UnrollHeader(0, 1, sequence, 0, 1), b"x")
    (zero,) = backend.unrolls.take(1, 0.0)
    proxy.marker = b"XREADGROUP"
    (one,) = backend.unrolls.take(1, block_s)
    (two,) = backend.unrolls.take(1, block_s)
    assert proxy.lost == 1
    assert [entry.header.sequence for entry in (zero, one, two)] == [0, 1, 2]


def test_a_lost_empty_reply_is_an_empty_reply(lossy):
    backend, proxy = lossy
    proxy.marker = b"XREADGROUP"
    assert backend.unrolls.take(1, 0.0) == []
    assert proxy.lost == 1


def test_a_fence_taken_between_read_and_write_is_noticed(redis_run, monkeypatch):
    backend, usurper = redis_run.backend, redis_run.connect()
    learner = backend.become_learner()
    backend.unrolls.push(UnrollHeader(0, 1, 0, 0, 1), b"x")
    entries = backend.unrolls.take(1, 0.0)
    from distrl.memory_backend import stream

    def usurping(keys, highest):
        usurper.become_learner()
        return []

    monkeypatch.setattr(stream, "_raised", usurping)
    with pytest.raises(FencedError):
        learner.unrolls.settle(entries, EntryOutcome.TRAINED)
    assert backend.ledger.counts().in_flight == 1


def test_endless_conflicts_are_an_error(redis_run, monkeypatch):
    backend, other = redis_run.backend, redis_run.connect()
    learner = backend.become_learner()
    from distrl.memory_backend import stream

    def touching(keys, highest):
        other.engine.call("HSET", keys.run, "note", "x")
        return []

    monkeypatch.setattr(stream, "_raised", touching)
    with pytest.raises(MemoryBackendError, match="conflicts"):
        learner.unrolls.raise_highest({(0, 1): 0})
    assert backend.unrolls.highest() == {}


LAST_ID = f"{2**64 - 1}-{2**64 - 1}"


@pytest.mark.parametrize("how", ["last id", "wrong type"])
def test_a_push_whose_entry_alone_is_refused_counts_nothing(redis_run, how):
    """Redis applies the other commands of a transaction when one fails inside EXEC."""
    backend, keys = redis_run.backend, redis_run.backend._run.keys
    backend.unrolls.push(UnrollHeader(0, 1, 0, 0, 1), b"x")
    before = backend.ledger.counts()
    with redis.Redis.from_url(redis_run.url) as admin:
        if how == "last id":
            admin.execute_command("XSETID", keys.unrolls, LAST_ID)
        else:
            admin.rename(keys.unrolls, keys.unrolls + "-kept")
            admin.set(keys.unrolls, "no stream")
        for _ in range(2):
            with pytest.raises(MemoryBackendError, match="refuses"):
                backend.unrolls.push(UnrollHeader(0, 1, 1, 0, 1), b"xyz")
        if how == "wrong type":
            admin.rename(keys.unrolls + "-kept", keys.unrolls)
    assert backend.ledger.counts() == before
    assert (before.produced, before.stream_bytes, before.imbalance) == (1, 1, 0)


def test_what_a_refused_push_counted_is_taken_back_once_over_a_lost_reply(lossy):
    backend, proxy = lossy
    with redis.Redis(unix_socket_path=proxy.upstream) as admin:
        admin.execute_command("XSETID", backend._run.keys.unrolls, LAST_ID)
    proxy.marker = b"applied"
    with pytest.raises(MemoryBackendError, match="refuses"):
        backend.unrolls.push(UnrollHeader(0, 1, 0, 0, 1), b"xyz")
    assert proxy.lost == 1
    counts = backend.ledger.counts()
    assert (counts.produced, counts.pushed_bytes, counts.stream_bytes, counts.imbalance) == (0, 0, 0, 0)


@pytest.fixture
def own_server():
    with EmbeddedRedis.start(maxmemory_bytes=2**22, max_bulk_bytes=2**21) as server:
        yield server


def one_line(caught):
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_redis_that_goes_away_is_given_up_after_its_time(own_server):
    client = connect(own_server.url, name="x", give_up_s=0.3)
    own_server.stop()
    for operation in (
        lambda: client.call("PING"),
        lambda: client.transaction([("PING",)]),
        lambda: client.call_blocking(lambda _piece_s: ("PING",), 1.0, lambda: None),
        lambda: client.keys("*"),
    ):
        started = time.monotonic()
        with pytest.raises(MemoryBackendError, match=r"unreachable for 0\.3 s") as caught:
            operation()
        assert time.monotonic() - started >= 0.3
        assert "redis.sock" in one_line(caught)
    client.close()


def test_a_redis_that_comes_back_in_time_is_not_an_error(redis_run):
    """A restart of the network path: the proxy is absent for a while."""
    proxy = LossyProxy(redis_run.url)
    client = connect(proxy.url, name="x", give_up_s=30.0)
    socket_path = Path(proxy.url.removeprefix("unix://"))
    hidden = socket_path.with_suffix(".hidden")
    proxy.marker = b"PING"
    socket_path.rename(hidden)
    timer = threading.Timer(0.2, lambda: hidden.rename(socket_path))
    timer.start()
    assert client.call("PING") is True
    timer.join()
    client.close()
    proxy.close()


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis://user@127.0.0.1:1"])
def test_an_unreachable_redis_is_named_without_its_password(url, monkeypatch):
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", "secret")
    with pytest.raises(
        MemoryBackendError, match=r"Redis at redis://127\.0\.0\.1:1.* is unreachable for 0\.1 s"
    ) as caught:
        connect(url, name="x", give_up_s=60.0, first_connect_s=0.1)
    assert "secret" not in one_line(caught)
    assert "check" in str(caught.value)


def test_a_server_that_evicts_is_refused(own_server):
    with redis.Redis.from_url(own_server.url) as admin:
        admin.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(MemoryBackendError, match=r"allkeys-lru.*noeviction") as caught:
            connect(own_server.url, name="x", give_up_s=1.0)
        one_line(caught)
        admin.config_set("maxmemory-policy", "volatile-lru")  # evicts keys with a time to live alone
        client = connect(own_server.url, name="x", give_up_s=1.0)
        assert client.keeps_expiring is False
        client.close()
        admin.config_set("maxmemory-policy", "allkeys-lru")
        admin.config_set("maxmemory", 0)  # never evicts
    client = connect(own_server.url, name="x", give_up_s=1.0)
    assert client.keeps_expiring is True
    client.close()


def test_an_old_server_is_refused(own_server, monkeypatch):
    monkeypatch.setattr(redis_connection, "_OLDEST_SERVER", (99, 0))
    with pytest.raises(MemoryBackendError, match=r"is \d+\.\d+\.\d+; 6\.2 or newer"):
        connect(own_server.url, name="x", give_up_s=1.0)


def test_a_full_server_says_what_to_do(own_server):
    client = connect(own_server.url, name="x", give_up_s=1.0)
    too_much = [("SET", f"k{key}", b"\x00" * 2**20) for key in range(10)]
    with pytest.raises(MemoryBackendError, match="raise its maxmemory") as caught:
        client.transaction(too_much)
    assert len(one_line(caught)) < 600
    assert client.call("PING") is True
    client.close()


class Refusing:
    """Refuses the first commands with one error, then takes all; those that begin a connection are never refused."""

    def __init__(self, error, times):
        self.error, self.times, self.connections = error, times, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, connection.makefile("rwb") as lines:
                while (first := lines.readline()).startswith(b"*"):
                    words = [(lines.readline(), lines.readline())[1].strip() for _ in range(int(first[1:]))]
                    refused = self.times > 0 and words[0] not in (b"CLIENT", b"INFO")
                    self.times -= refused
                    lines.write(b"-%b\r\n" % self.error if refused else b"+OK\r\n")
                    lines.flush()

    def client(self, give_up_s):
        return RedisClient(parse_address(self.url), "x", give_up_s)


PASSING = [
    b"READONLY You can't write against a read only replica.",
    b"LOADING Redis is loading the dataset in memory",
    b"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    b"CLUSTERDOWN The cluster is down",
    b"TRYAGAIN Multiple keys request during rehashing of slot",
    b"NOREPLICAS Not enough good replicas to write.",
    b"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    b"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    b"OOM command not allowed when used memory > 'maxmemory'.",
    b"EXECABORT Transaction discarded because of: READONLY You can't write against a read only replica.",
]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: error.split()[0].decode())
def test_a_refusal_that_passes_is_an_outage(error):
    """The next attempt is made on a connection of its own: the address may lead to another server by then."""
    server = Refusing(error, times=2)
    client = server.client(give_up_s=30.0)
    assert client.call("SET", "a", 1)
    assert (client.interruptions, server.connections) == (2, 3)
    client.close()
    server.listener.close()


@pytest.mark.parametrize("error", PASSING[:1] + PASSING[-2:], ids=lambda error: error.split()[0].decode())
def test_a_refusal_that_lasts_is_told_in_the_words_of_redis(error):
    server = Refusing(error, times=10**9)
    client = server.client(give_up_s=0.2)
    with pytest.raises(MemoryBackendError, match=r"has refused for 0\.2 s") as caught:
        client.call("SET", "a", 1)
    assert error.split(b": ")[-1].split(b" ", 1)[1].decode() in one_line(caught)
    client.close()
    server.listener.close()


@pytest.mark.parametrize(
    "error",
    [
        b"NOAUTH Authentication required.",
        b"WRONGPASS invalid username-password pair or user is disabled.",
        b"NOPERM this user has no permissions to run the 'set' command",
        b"ERR unknown command 'SET'",
        b"WRONGTYPE Operation against a key holding the wrong kind of value",
        b"BUSYGROUP Consumer Group name already exists",
    ],
    ids=lambda error: error.split()[0].decode(),
)
def test_a_refusal_for_good_is_final_at_once(error):
    server = Refusing(error, times=1)
    client = server.client(give_up_s=10.0**6)
    with pytest.raises(MemoryBackendError, match="refuses"):
        client.call("SET", "a", 1)
    assert client.interruptions == 0
    client.close()
    server.listener.close()


@pytest.mark.parametrize(
    ("refuse", "allow"),
    [
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", str(2**22))),
    ],
    ids=["fail-over", "full"],
)
def test_a_redis_that_refuses_writes_for_a_while_gets_each_of_them_once(own_server, refuse, allow):
    backend = backends.connect(own_server.url, "refused", QueueCaps(8, 2**20), name="x", give_up_s=60.0)
    backend.create("{}")
    learner = backend.become_learner()

    def push():
        backend.unrolls.push(UnrollHeader(0, 1, 0, 0, 1), b"x")

    def settle():
        learner.unrolls.settle(backend.unrolls.take(1, 0.0), EntryOutcome.TRAINED)

    with redis.Redis.from_url(own_server.url) as admin:
        for operation in (push, settle, lambda: learner.tickets.issue(2)):
            admin.execute_command(*refuse)
            before = backend.unrolls.interruptions
            timer = threading.Timer(0.3, lambda: admin.execute_command(*allow))
            timer.start()
            operation()
            timer.join()
            assert backend.unrolls.interruptions > before
    counts = backend.ledger.counts()
    assert (counts.produced, counts.trained, counts.stream_bytes, counts.imbalance) == (1, 1, 0, 0)
    assert backend.tickets.counts() == (2, 0)
    assert backend.engine.failovers == (3 if refuse[0] == "REPLICAOF" else 0)  # each time, another history begins
    assert backend.engine.confirm()  # no replica is there
    backend.delete()
    backend.close()


@pytest.fixture
def master(tmp_path, free_port):
    server = OwnRedis(tmp_path / "redis", free_port).start()
    with redis.Redis(port=free_port) as admin:
        admin.config_set("repl-diskless-sync-delay", 0)
        yield admin
    server.end(signal.SIGKILL)


def test_a_first_replica_is_no_fail_over_and_confirms_what_earlier_connections_have_written(master, own_server):
    port = master.connection_pool.connection_kwargs["port"]
    client = connect(f"redis://127.0.0.1:{port}/0", name="x", give_up_s=60.0)
    client.call("SET", "a", 1)
    named = client.history
    with redis.Redis.from_url(own_server.url) as replica:
        replica.execute_command("REPLICAOF", "127.0.0.1", port)
        wait_until(lambda: master.info("replication").get("slave0", {}).get("state") == "online", "the replica follows")
        pid = replica.info("server")["process_id"]
    client.close()
    assert client.confirm()
    assert client.history != named  # the master has given its data another name
    assert (client.failovers, client.goes_on_from(named)) == (0, True)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "the replica has stopped")
    try:
        client.call("SET", "a", 2)
        client.close()
        assert not client.confirm()  # nor by a connection that has written nothing
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(client.confirm, "the replica has it")
    client.close()


def test_a_wrong_password_and_missing_rights_are_refusals_not_outages(own_server, monkeypatch):
    with redis.Redis.from_url(own_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "poor", "on", ">secret", "+ping", "+info", "+client", "~distrl:*")
    login = own_server.url.replace("://", "://poor@")
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", "wrong")
    with pytest.raises(MemoryBackendError, match="refuses the login") as caught:
        connect(login, name="x", give_up_s=60.0, first_connect_s=60.0)
    assert "wrong" not in one_line(caught).replace("wrong username", "")
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", "secret")
    client = connect(login, name="x", give_up_s=1.0)
    with pytest.raises(
        MemoryBackendError, match=r"refuses HGET distrl:r:run to user poor: .*; check user and namespace"
    ) as caught:
        client.call("HGET", "distrl:r:run", "config")
    one_line(caught)
    client.close()


@pytest.mark.parametrize("command", ["hmget", "watch"])
def test_a_guard_that_is_refused_behind_a_transaction_is_a_refusal_of_the_next(own_server, command, monkeypatch):
    """A token that is read and not watched would not tell of a learner that takes over."""
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", "secret")
    with redis.Redis.from_url(own_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "eve", "on", ">secret", "+@all", "~distrl:*")
        login = own_server.url.replace("://", "://eve@")
        backend = backends.connect(login, "guarded", name="x", give_up_s=1.0)
        backend.create("{}")
        learner = backend.become_learner()
        learner.tickets.issue(1)
        admin.execute_command("ACL", "SETUSER", "eve", f"-{command}")
        learner.tickets.issue(1)  # by what was read behind the last one
        with pytest.raises(MemoryBackendError, match="the user's rules: distrl redis acl"):
            learner.tickets.issue(1)
        admin.execute_command("ACL", "SETUSER", "eve", f"+{command}")
        learner.tickets.issue(1)
        assert learner.tickets.counts() == (3, 0)
        learner.close()


@pytest.mark.parametrize("metered", [False, True], ids=["hiredis", "metered"])
def test_refusals_of_a_round_trip_are_values_among_its_replies(own_server, metered):
    """A contract with redis-py, whose parser is read directly: hiredis', and its own where bytes are metered."""
    meter = Meter(2**20, 60.0) if metered else None
    client = connect(own_server.url, name="x", give_up_s=1.0, meter=meter)
    wrong = ("RPUSH", "text", "1")
    sent = [
        ("SET", "text", "a"),
        wrong,
        ("GET", "none"),
        ("MULTI",),
        ("GET", "text"),
        wrong,
        ("EXEC",),
        ("GET", "text"),
    ]
    replies = client._round_trip(sent)
    executed = replies[6]
    assert [replies[0], replies[2:6], replies[7]] == [b"OK", [None, b"OK", b"QUEUED", b"QUEUED"], b"a"]
    assert executed[0] == b"a"
    for refusal in (replies[1], executed[1]):
        assert isinstance(refusal, redis.ResponseError)
        assert "WRONGTYPE" in str(refusal)
    aborted = client._round_trip([("MULTI",), ("GET",), ("EXEC",), ("PING",)])
    assert [type(reply) for reply in aborted] == [bytes, redis.ResponseError, redis.exceptions.ExecAbortError, bytes]
    client.close()


def test_a_user_of_one_namespace_does_everything_in_it_and_nothing_beside_it(own_server, monkeypatch):
    """The access rules of docs/architecture.md."""
    with redis.Redis.from_url(own_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "ada", "on", ">secret", "+@all", "~distrl:team-a:*")
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", "secret")
    login = own_server.url.replace("://", "://ada@")
    connected = [
        backends.connect(f"{login}?namespace=team-a", run_id, name="x", give_up_s=1.0) for run_id in ("r", "gone")
    ]
    connected.append(backends.connect(login, "r", name="x", give_up_s=1.0))
    backend, gone, beside = connected
    backend.create("{}")
    assert backend.config_json() == "{}"
    learner = backend.become_learner()
    learner.tickets.issue(1)
    assert backend.tickets.take((0, 1), 0.0)
    backend.unrolls.push(UnrollHeader(0, backend.registry.register_actor(0), 0, 0, 1), b"x")
    learner.unrolls.settle(learner.unrolls.take(1, 0.0), EntryOutcome.TRAINED)
    assert (backend.ledger.counts().trained, backend.ledger.counts().imbalance) == (1, 0)
    with pytest.raises(MemoryBackendError, match="no run gone at"):
        gone.config_json()
    with pytest.raises(MemoryBackendError, match="the user's rules: distrl redis acl"):
        beside.create("{}")
    backend.delete()
    for one in connected:
        one.close()
    with redis.Redis.from_url(own_server.url) as admin:
        assert admin.dbsize() == 0


@pytest.fixture
def round_trips(redis_run, monkeypatch):
    """The commands of every round trip of `redis_run.backend`, by their first words."""
    client, made = redis_run.backend.engine, []
    original = client._round_trip

    def counting(commands):
        made.append([command[0] for command in commands])
        return original(commands)

    monkeypatch.setattr(client, "_round_trip", counting)
    return made


def test_a_fenced_operation_after_another_takes_one_round_trip(redis_run, round_trips):
    backend = redis_run.backend
    learner = backend.become_learner()
    round_trips.clear()
    learner.tickets.issue(1)
    assert [trip[-1] for trip in round_trips] == ["HMGET", "HMGET"]  # the token first, and again with the transaction
    for sequence in range(2):
        learner.unrolls.count_lost(UnrollHeader(0, 1, sequence, 1, 1), 1, to_failover=False)
    assert round_trips[2:] == [["MULTI", "HINCRBY", "HINCRBY", "ZADD", "HSET", "EXEC", "WATCH", "HMGET"]] * 2
    backend.ledger.counts()  # no fenced one
    learner.tickets.issue(1)
    assert [trip[0] for trip in round_trips[4:]] == ["UNWATCH", "UNWATCH", "MULTI"]
    assert backend.tickets.counts() == (2, 0)


def test_a_fence_taken_since_the_last_operation_is_noticed(redis_run):
    backend, usurper = redis_run.backend, redis_run.connect()
    learner = backend.become_learner()
    learner.tickets.issue(1)
    new = usurper.become_learner()
    with pytest.raises(FencedError, match=f"token {new.fence.number}, ours {learner.fence.number}"):
        learner.tickets.issue(1)
    new.tickets.issue(1)
    with pytest.raises(FencedError):
        learner.tickets.issue(1)
    assert backend.tickets.counts() == (2, 0)


@pytest.mark.parametrize("used", [True, False])
def test_a_run_that_is_gone_is_no_other_learners(redis_run, used):
    """A fenced learner leaves the checkpoints alone; here no other learner has newer ones."""
    backend = redis_run.backend
    learner = backend.become_learner()
    if used:  # the token is watched, and read already
        learner.tickets.issue(1)
    redis_run.connect().delete()
    with pytest.raises(MemoryBackendError, match=f"issuing tickets: run {redis_run.run_id} is gone") as caught:
        learner.tickets.issue(1)
    assert not isinstance(caught.value, FencedError)
    assert redis_run.connect().engine.keys(f"{redis_run.prefix}*") == []  # nothing is begun anew


def test_a_fence_taken_before_a_refused_read_is_noticed_after_it(redis_run):
    """The refused operation had begun to watch anew: an earlier token is out of date."""
    backend, usurper = redis_run.backend, redis_run.connect()
    learner, keys = backend.become_learner(), backend._run.keys
    learner.tickets.issue(1)
    usurper.become_learner()
    with pytest.raises(MemoryBackendError, match="WRONGTYPE"):
        learner._run.fenced(lambda _replies: [], "reading", [("HGETALL", keys.tickets)])
    usurper.engine.call("HSET", keys.run, "note", "x")
    assert backend.ledger.counts().imbalance == 0  # nothing is watched
    with pytest.raises(FencedError):
        learner.tickets.issue(1)


def test_another_change_of_the_run_since_the_last_operation_is_no_fence(redis_run):
    backend, other = redis_run.backend, redis_run.connect()
    learner = backend.become_learner()
    learner.tickets.issue(1)
    other.engine.call("HSET", backend._run.keys.run, "note", "x")
    assert backend.ledger.counts().imbalance == 0  # a transaction of another kind is not refused for it
    learner.tickets.issue(1)
    other.engine.call("HSET", backend._run.keys.run, "note", "y")
    learner.tickets.issue(1)
    assert backend.tickets.counts() == (3, 0)


def test_a_broken_connection_forgets_what_was_watched(lossy):
    backend, proxy = lossy
    learner = backend.become_learner()
    learner.tickets.issue(1)
    proxy.marker = b"EXEC"
    learner.tickets.issue(1)
    proxy.marker = b"XLEN"
    backend.ledger.counts()
    learner.tickets.issue(1)
    assert (proxy.lost, backend.tickets.counts()) == (2, (3, 0))


def test_highest_sequences_of_two_connections_never_go_back(redis_run):
    """A feed drops what is stale on a connection of its own, before the learner settles what came earlier."""
    learner = redis_run.backend.become_learner()
    learner.add_lane(redis_run.connect().engine)
    learner.unrolls.raise_highest({(0, 1): 4})
    learner.receiving.unrolls.raise_highest({(0, 1): 7})
    learner.unrolls.raise_highest({(0, 1): 5})
    assert learner.unrolls.highest() == {(0, 1): 7}


def test_highest_sequences_are_read_however_redis_writes_them(redis_run):
    """From 10^17 on it writes scores with an exponent; a header's numbers are below 10^18."""
    learner = redis_run.backend.become_learner()
    learner.unrolls.raise_highest({(0, 1): 10**17, (1, 1): 2**53})
    assert redis_run.backend.unrolls.highest() == {(0, 1): 10**17, (1, 1): 2**53}
