"""A Redis that goes and comes back, and a network that fails: roles wait, go on, and everything is accounted for."""

import signal

import pytest

from tests.faults.own_redis import OwnRedis
from tests.waiting import lasts

pytestmark = [pytest.mark.slow, pytest.mark.redis]

READ_AHEAD = 2
"""Unrolls that a learner has in hand when it is stopped: one, and the next."""

MINUTES = [pytest.mark.endurance, pytest.mark.timeout(1500)]


@pytest.fixture
def own_redis(tmp_path, free_port):
    servers = []

    def make(appendfsync):
        servers.append(OwnRedis(tmp_path / "redis", free_port, appendfsync))
        return servers[-1].start()

    yield make
    for server in servers:
        server.end(signal.SIGKILL)


@pytest.mark.parametrize(
    ("appendfsync", "how", "times"),
    [
        pytest.param("everysec", signal.SIGTERM, 1, marks=pytest.mark.long),
        ("everysec", "power", 1),
        pytest.param("everysec", signal.SIGTERM, 10, marks=MINUTES),
        pytest.param("always", signal.SIGKILL, 10, marks=MINUTES),
        pytest.param("everysec", signal.SIGKILL, 10, marks=MINUTES),
        pytest.param("everysec", "power", 10, marks=MINUTES),
    ],
)
def test_a_redis_that_comes_back_is_trained_on(start_run, unhurried, own_redis, measured, appendfsync, how, times):
    server = own_redis(appendfsync)
    run = start_run(*unhurried, "--set", f"memory.url={server.url}")
    run.wait_for_updates(20)
    pids, back_s = run.pids, []
    for _ in range(times):
        server.lose_power(1.0) if how == "power" else server.end(how)
        lasts(1.5)
        server.start()
        before = run.updates
        back_s.append(run.timed_until(lambda before=before: run.updates > before + 20, "it learns again"))
    assert run.pids == pids  # no role was started again
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.restarts, summary.imbalance) == (0, "SIGTERM", 0, 0)
    # Of the second before each power cut, at the rate of two actors that sleep 5 ms in each of eight steps.
    assert summary.lost <= (50 * times if how == "power" else 0)
    assert (summary.foreign, summary.rolled_back) == (0, 0)
    assert summary.in_flight <= READ_AHEAD
    assert sum(summary.dropped.values()) == summary.dropped["duplicate"] + summary.dropped["stale"]
    measured(
        4,
        appendfsync=appendfsync,
        by=getattr(how, "name", how),
        restarts=times,
        slowest_back_s=max(back_s),
        produced=summary.produced,
        lost=summary.lost,
        duplicates=summary.dropped["duplicate"],
    )
