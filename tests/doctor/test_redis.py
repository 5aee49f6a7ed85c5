import pytest

from distrl.doctor import redis
from distrl.doctor.redis import clock, examine_redis, latency, memory
from distrl.errors import ConfigError
from distrl.memory_backend.embedded_redis import EmbeddedRedis


class Answering:
    """A Redis whose clock is that far ahead, and that takes so long."""

    def __init__(self, monkeypatch, ahead_s=0.0, takes_s=0.0):
        self.now_s, self.ahead_s, self.takes_s = 1000.0, ahead_s, takes_s
        monkeypatch.setattr(redis.time, "time", lambda: self.now_s)
        monkeypatch.setattr(redis.time, "perf_counter", lambda: self.now_s)

    def call(self, command):
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
    assert [one.name for one in found] == ["Redis", "Redis' memory", "Redis' latency", "clock"]
    assert "error" not in [one.health for one in found]
    assert "started for this" in found[0].found
    (own,) = started
    assert not own.directory.exists()


@pytest.mark.redis
def test_a_given_one_is_asked(redis_url):
    found = list(examine_redis(redis_url))
    assert found[0].health == "ok"
    assert found[1].found.endswith(" of 0.27 GB used")


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
    assert memory(used * 10**9, limit * 10**9).health == health


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
