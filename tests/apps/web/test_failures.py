import pytest

from distrl.apps.web import failures as module
from distrl.apps.web.failures import FAILURES, FORGIVE_S, REPORT_S, Failures
from tests.clocks import Clock


@pytest.fixture
def clock():
    return Clock(1000.0)


def test_failures_are_forgiven(clock):
    failures = Failures("tokens", clock)
    for _ in range(FAILURES):
        assert failures.wait_s("10.0.0.1") == 0.0
        failures.add("10.0.0.1")
        clock.now += 1.0
    assert failures.wait_s("10.0.0.1") == FORGIVE_S - FAILURES
    assert failures.wait_s("10.0.0.2") == 0.0
    clock.now += FORGIVE_S - FAILURES
    assert failures.wait_s("10.0.0.1") == 0.0


def test_a_network_of_ipv6_is_one_address(clock):
    failures = Failures("tokens", clock)
    for host in range(FAILURES):
        failures.add(f"2001:db8::{host:x}")
        failures.add(f"::ffff:10.0.0.{host}")
    assert failures.wait_s("2001:db8::ffff") > 0.0
    assert failures.wait_s("2001:db8:0:1::1") == 0.0
    assert failures.wait_s("10.0.0.1") == 0.0


def test_addresses_are_bounded(clock, monkeypatch):
    monkeypatch.setattr(module, "MOST_ADDRESSES", 10)
    failures = Failures("tokens", clock)
    for host in range(100):
        failures.add(f"10.0.0.{host}")
    assert len(failures._times) == len(failures._reported) == 10


def test_log_lines_are_bounded(clock, caplog):
    failures = Failures("tokens", clock)
    for _ in range(7):
        failures.add("10.0.0.1")
    clock.now += REPORT_S
    failures.add("10.0.0.1")
    assert [record.getMessage() for record in caplog.records] == [
        "wrong tokens from 10.0.0.1: 1",
        "wrong tokens from 10.0.0.1: 7",
    ]
