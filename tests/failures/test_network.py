"""A network that delays, breaks, swallows replies and spoils payloads: nothing is lost but what was spoilt."""

import random

import pytest

from tests.faults.own_redis import OwnRedis
from tests.faults.proxy import Proxy
from tests.waiting import lasts

pytestmark = [pytest.mark.slow, pytest.mark.redis]

READ_AHEAD = 2
"""Unrolls that a learner has in hand when it is stopped: one, and the next."""


@pytest.fixture
def network(tmp_path, free_port):
    server = OwnRedis(tmp_path / "redis", free_port).start()
    proxy = Proxy("127.0.0.1", free_port + 1, ("127.0.0.1", free_port))
    yield proxy
    proxy.close()
    server.end()


@pytest.mark.parametrize(
    "times",
    [
        pytest.param(3, marks=pytest.mark.long),
        pytest.param(60, marks=[pytest.mark.endurance, pytest.mark.timeout(1500)]),
    ],
)
def test_nothing_is_lost_on_a_bad_network_but_what_it_spoilt(start_run, unhurried, network, measured, times):
    large = "environment.kwargs={step_s: 0.005, features: 1024}"  # so that the middle of a push is in its payload
    run = start_run(*unhurried, "--set", f"memory.url={network.url}", "--set", large)
    run.wait_for_updates(10)
    pids, choice, spoilt = run.pids, random.Random(3), []

    def flip(name, piece):
        """One bit in the middle of a long piece, which is in an unroll's payload."""
        if not name.startswith("actor") or spoilt[-1:] == [name]:
            return piece
        spoilt.append(name)
        at = len(piece) // 2
        return piece[:at] + bytes([piece[at] ^ 0x40]) + piece[at + 1 :]

    def delay():
        network.delay_s = 0.02

    def swallow():
        network.loses_replies = True

    def spoil():
        network.spoil = flip

    faults = [delay, swallow, network.cut, spoil]
    for number in range(times * len(faults)):
        before = run.updates
        faults[number % len(faults)]()
        lasts(choice.uniform(0.1, 0.5))
        network.delay_s, network.loses_replies, network.spoil = 0.0, False, lambda _name, piece: piece
        run.wait_for_updates(before + 10)
    assert run.pids == pids  # no role was started again
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.restarts, summary.imbalance) == (0, "SIGTERM", 0, 0)
    assert (summary.lost, summary.foreign, summary.rolled_back) == (0, 0, 0)
    assert summary.in_flight <= READ_AHEAD
    refused = {reason: count for reason, count in summary.dropped.items() if count}
    assert spoilt
    assert refused.keys() <= {"duplicate", "stale", "decode", "schema", "nonfinite"}
    measured(4, faults=times * len(faults), cuts=network.cuts, spoilt=len(spoilt), produced=summary.produced, **refused)
