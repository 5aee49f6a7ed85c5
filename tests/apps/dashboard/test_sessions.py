import pytest

from distrl.apps.dashboard import sessions as module
from distrl.apps.dashboard.sessions import FAILURES, FORGIVE_S, IDLE_S, LONGEST_S, REPORT_S, Failures, Sessions


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_a_session_is_what_was_begun(clock):
    sessions = Sessions(clock)
    act, look = sessions.begin("act"), sessions.begin("look")
    assert (sessions.right(act), sessions.right(look), sessions.right(act[:-1]), sessions.right("\udcff")) == (
        "act",
        "look",
        None,
        None,
    )
    sessions.end(act)
    assert (sessions.right(act), sessions.right(look)) == (None, "look")


def test_sessions_end_when_they_are_not_used_and_in_any_case(clock):
    sessions = Sessions(clock)
    unused, used = sessions.begin("act"), sessions.begin("act")
    for _ in range(int(LONGEST_S / (IDLE_S - 1)) + 1):
        assert sessions.right(used) == "act"
        clock.now += IDLE_S - 1
    assert (sessions.right(unused), sessions.right(used)) == (None, None)


def test_sessions_are_bounded(clock, monkeypatch):
    monkeypatch.setattr(module, "MOST_SESSIONS", 3)
    sessions = Sessions(clock)
    made = [sessions.begin("act") for _ in range(5)]
    assert [sessions.right(one) for one in made] == [None, None, "act", "act", "act"]
    looking = [sessions.begin("look") for _ in range(5)]
    assert [sessions.right(one) for one in made[2:]] == ["act", "act", "act"]
    assert [sessions.right(one) for one in looking] == [None, None, "look", "look", "look"]


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
