import json
import zlib

import pytest
from redis import Redis

from benchmarks.publishing import RESULTS
from distrl.apps.doctor import redis
from distrl.apps.doctor.redis import (
    STEP_BYTES,
    bytes_per_s,
    clock,
    encryption,
    examine_redis,
    latency,
    memory,
    persistence,
    replication,
    server,
    throughput,
)
from distrl.errors import ConfigError
from distrl.memory_backend.embedded_redis import EmbeddedRedis
from distrl.memory_backend.redis_address import RedisAddress, parse_address


class Answering:
    """A Redis whose clock is that far ahead, and that takes so long."""

    def __init__(self, monkeypatch, ahead_s=0.0, takes_s=0.0):
        self.now_s, self.ahead_s, self.takes_s = 1000.0, ahead_s, takes_s
        monkeypatch.setattr(redis.time, "time", lambda: self.now_s)
        monkeypatch.setattr(redis.time, "perf_counter", lambda: self.now_s)

    def call(self, command, *_values):
        self.now_s += self.takes_s
        told_s = self.now_s + self.ahead_s
        return (int(told_s), int(1e6 * (told_s % 1.0))) if command == "TIME" else b"PONG"


@pytest.mark.redis
def test_one_of_its_own_is_started_and_gone_afterwards(monkeypatch, redis_url):
    started = []
    start = EmbeddedRedis.start

    def noted(**options):
        started.append(start(**options))
        return started[-1]

    monkeypatch.setattr(EmbeddedRedis, "start", noted)
    found = list(examine_redis(None))
    assert [one.name for one in found] == [
        "Redis",
        "Redis' memory",
        "Redis' latency",
        "Redis' throughput",
        "clock",
    ]
    assert "error" not in [one.health for one in found]
    assert "started for this" in found[0].found
    (own,) = started
    assert not own.directory.exists()


@pytest.mark.redis
def test_a_given_one_is_asked(redis_url):
    found = list(examine_redis(redis_url))
    told = {one.name: one for one in found}
    assert [one.health for one in found] == ["ok"] * 8
    assert told["Redis"].found.endswith(", master")
    assert told["Redis' memory"].found.endswith(" of 0.27 GB used, eviction: noeviction")
    assert told["Redis' TLS"].found == "not encrypted, and does not leave this machine"
    assert told["Redis' persistence"].found.startswith("no append-only file")
    assert told["Redis' replicas"].found == "none"
    assert "compression" not in told  # there is no network to relieve


@pytest.mark.redis
def test_one_on_another_machine_is_asked_how_much_compression_would_save(redis_url, monkeypatch):
    monkeypatch.setattr(RedisAddress, "is_here", False)
    told = {one.name: one for one in examine_redis(redis_url)}
    assert "compression" in told
    assert told["Redis' TLS"].health == "warning"


@pytest.mark.redis
def test_one_that_does_not_allow_info_is_examined_as_far_as_it_allows(redis_url):
    with Redis.from_url(redis_url) as admin:
        admin.execute_command("ACL", "SETUSER", "limited", "on", "nopass", "+@all", "-info", "-config")
    found = list(examine_redis(redis_url.replace("unix://", "unix://limited@")))
    assert found[0].health == "warning"
    assert found[0].found.endswith("and does not allow INFO")
    assert [one.name for one in found[1:]] == ["Redis' TLS", "Redis' latency", "Redis' throughput", "clock"]
    assert [one.health for one in found[1:]] == ["ok"] * 4


def test_a_store_in_a_process_is_no_redis():
    assert list(examine_redis("local:runs")) == [
        ("error", "Redis", "local:runs is no Redis", "name one: redis://, rediss:// or unix://")
    ]


def test_none_at_all_is_an_error_with_what_to_do(monkeypatch, tmp_path):
    (found,) = examine_redis(f"unix://{tmp_path}/nowhere.sock")
    assert found.health == "error"
    assert "unreachable" in found.found

    def missing():
        raise ConfigError("no redis-server found; install one")

    monkeypatch.setattr(redis, "find_server", missing)
    assert list(examine_redis(None)) == [("error", "Redis", "no redis-server found; install one", "")]


@pytest.mark.parametrize(("used", "limit", "health"), [(9, 0, "ok"), (7, 10, "ok"), (9, 10, "warning")])
def test_memory(used, limit, health):
    assert memory(used * 10**9, limit * 10**9, "noeviction").health == health


MASTER = {"redis_version": "7.0.15", "redis_mode": "standalone", "role": "master"}


@pytest.mark.row("S13")
@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({}, "Redis 7.0.15 at redis://h:1, master"),
        (
            {"server_name": "valkey", "valkey_version": "9.1.2", "redis_version": "7.2.4"},
            "Valkey 9.1.2 at redis://h:1, master",
        ),
        ({"redis_mode": "cluster"}, "Redis 7.0.15 at redis://h:1, a Cluster"),
    ],
)
def test_the_kind_of_server(told, found):
    assert server({**MASTER, **told}, "redis://h:1", "") == ("ok", "Redis", found, "")


@pytest.mark.parametrize(
    ("url", "health"),
    [
        ("rediss://h:1", "ok"),
        ("rediss+sentinel://h:1/m", "ok"),
        ("redis://h:1", "warning"),
        ("redis://127.0.0.1:1", "ok"),
        ("unix:///redis.sock", "ok"),
        ("redis+sentinel://localhost:1/m", "warning"),  # a Sentinel here, and perhaps a master elsewhere
        ("redis+cluster://localhost:1,h:1", "warning"),
    ],
)
def test_encryption(url, health):
    assert encryption(parse_address(url)).health == health


@pytest.mark.row("S13")
@pytest.mark.parametrize(
    ("told", "health", "found"),
    [
        ({"aof_enabled": 1, "aof_last_write_status": "ok"}, "ok", "append-only file: a run survives"),
        ({"aof_enabled": 0, "rdb_last_bgsave_status": "ok"}, "ok", "no append-only file"),
        (
            {"rdb_last_bgsave_status": "err", "aof_last_write_status": "err"},
            "error",
            "the last snapshot and the append-only file could not be written",
        ),
    ],
)
def test_persistence(told, health, found):
    assert persistence(told).health == health
    assert persistence(told).found.startswith(found)


ONE = {"connected_slaves": 1, "repl_backlog_size": 2**28, "slave0": {"state": "online", "lag": 1}}


@pytest.mark.row("S13")
@pytest.mark.parametrize(
    ("told", "buffer_bytes", "advised"),
    [
        ({}, 0, []),
        ({}, None, []),
        ({"repl_backlog_size": 2**20}, 2**28, ["repl-backlog-size 256mb"]),
        ({}, 2**27, ["client-output-buffer-limit replica 256mb 0 0"]),
        ({"slave0": {"state": "wait_bgsave", "lag": 60}}, 0, ["wait until it is online", "what the replicas lack"]),
        ({"connected_slaves": 2}, 0, []),  # the second one's connection has just broken
    ],
)
def test_replicas(told, buffer_bytes, advised):
    found = replication({**ONE, **told}, buffer_bytes)
    assert found.health == ("warning" if advised else "ok")
    assert all(text in found.advice for text in advised)
    assert len(list(filter(None, found.advice.split("; ")))) == len(advised)


def test_replicas_that_are_counted_and_not_listed_are_none():
    assert replication({"connected_slaves": 1}, 0).found == "none"


@pytest.mark.parametrize(
    ("reply", "limit"),
    [
        ([b"client-output-buffer-limit", b"normal 0 0 0 slave 268435456 67108864 60 pubsub 1 2 3"], 268435456),
        ([], None),  # a managed service that hides the setting
        ([b"client-output-buffer-limit", b"normal 0 0 0"], None),
    ],
)
def test_the_limit_of_the_replicas_buffers(reply, limit):
    class Told:
        def call(self, *command):
            assert command == ("CONFIG", "GET", "client-output-buffer-limit")
            return reply

    assert redis._replica_buffer(Told()) == limit


@pytest.mark.redis
def test_a_server_tells_the_limit(redis_url):
    client = redis.connect_engine(redis_url, name="test", give_up_s=1.0)
    try:
        assert redis._replica_buffer(client) == 2**28
    finally:
        client.close()


@pytest.mark.row("S13")
def test_throughput_there_and_back(monkeypatch):
    found = throughput(bytes_per_s(Answering(monkeypatch, takes_s=0.001)))
    assert found[:3] == (
        "ok",
        "Redis' throughput",
        "100 MB/s by 0.1 MB, 1,000 MB/s by 1 MB, there and back: one connection feeds 30,000,000 steps/s of CartPole, "
        "120,000 steps/s of Atari frames",
    )


def test_the_values_are_text_which_redis_py_reads_fast_and_no_tunnel_compresses():
    class Kept:
        def call(self, _command, value):
            self.values = {*getattr(self, "values", ()), value}

    kept = Kept()
    bytes_per_s(kept)
    assert sorted(map(len, kept.values)) == [100_000, 1_000_000]
    assert all(value.isascii() and len(zlib.compress(value)) > 0.7 * len(value) for value in kept.values)


@pytest.mark.parametrize(("entry", "name"), [("cartpole", "CartPole"), ("pong", "Atari frames")])
def test_the_bytes_of_a_step_are_of_the_committed_report(entry, name):
    report = json.loads((RESULTS / "compression.json").read_text("utf-8"))
    (found,) = (one for one in report["results"] if one["name"] == entry)
    assert pytest.approx(found["bytes"] / found["steps"], rel=0.01) == STEP_BYTES[name]


def test_a_slow_network_is_measured_by_fewer_calls(monkeypatch):
    slow = Answering(monkeypatch, takes_s=2.0)
    assert bytes_per_s(slow) == (50_000.0, 500_000.0)
    assert slow.now_s == 1000.0 + 2 * 2 * 2.0  # two calls of each size
    assert latency(slow).found.startswith("2000.00 ms, ")
    assert slow.now_s == 1000.0 + 3 * 2 * 2.0


@pytest.mark.parametrize(("takes_s", "health"), [(0.001, "ok"), (0.02, "warning")])
def test_latency(monkeypatch, takes_s, health):
    found = latency(Answering(monkeypatch, takes_s=takes_s))
    assert found[:3] == (
        health,
        "Redis' latency",
        f"{1e3 * takes_s:.2f} ms, 99th percentile {1e3 * takes_s:.2f} ms",
    )


@pytest.mark.parametrize(
    ("ahead_s", "health", "told"),
    [
        (0.25, "ok", "Redis' is 0.2 s ahead of this machine's"),
        (-3600.0, "warning", "Redis' is 3600.0 s behind this machine's"),
    ],
)
def test_clocks(monkeypatch, ahead_s, health, told):
    assert clock(Answering(monkeypatch, ahead_s=ahead_s))[:3] == (health, "clock", told)
