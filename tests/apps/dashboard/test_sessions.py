import pytest

from distrl.apps.dashboard import sessions as module
from distrl.apps.dashboard.sessions import IDLE_S, LONGEST_S, Sessions
from tests.clocks import Clock


@pytest.fixture
def clock():
    return Clock(1000.0)


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
