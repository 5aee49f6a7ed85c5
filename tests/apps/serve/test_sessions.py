"""Sessions by a clock, with versions that are none."""

from types import SimpleNamespace

import pytest

from distrl.apps.serve.messages import RefusedError, request_of
from distrl.apps.serve.sessions import EPISODE_IDLE_S, ClientSessions
from distrl.apps.serve.versions import PolicyTrack, PolicyVersions, Version
from tests.clocks import Clock

POLICY = SimpleNamespace(
    takes=lambda state: state == "fits",
    spec=SimpleNamespace(unlike=lambda other: ""),
    exported=SimpleNamespace(weights_version=0),
)


@pytest.fixture
def versions():
    made = object.__new__(PolicyVersions)
    made.tracks = [PolicyTrack("main", SimpleNamespace(name="run"), 1.0, [Version(1, "main", POLICY)])]
    made.spec, made.changes = POLICY.spec, 0
    return made


def add(versions, number):
    policy = SimpleNamespace(**vars(POLICY) | {"exported": SimpleNamespace(weights_version=number)})
    return versions.add(versions.tracks[0], policy)


def made(versions, **others):
    return ClientSessions(versions, 3, 10.0, clock=Clock(), **others)


def acted(sessions, session, *, begins=False, state=None):
    version = sessions.take(session, asked(begins=begins))
    session.is_busy, session.state, session.steps = False, state, session.steps + 1
    return version.number


def asked(**fields):
    return request_of({"observation": 0, "session": "a", **fields})


def test_a_session_changes_with_its_next_episode(versions):
    sessions = made(versions)
    session = sessions.begin()
    assert acted(sessions, session) == 1
    add(versions, 2)
    assert [acted(sessions, session), acted(sessions, session, begins=True)] == [1, 2]


@pytest.mark.parametrize(("state", "kept"), [("fits", "fits"), ("of another network", None)])
def test_or_at_once(versions, state, kept):
    sessions = made(versions, change="now")
    session = sessions.begin()
    assert acted(sessions, session, state=state) == 1
    add(versions, 2)
    assert sessions.take(session, asked()).number == 2
    assert session.state == kept


def test_versions_in_memory_are_bounded(versions):
    """A session whose version is no longer kept changes at once, whether it acts or not."""
    sessions = made(versions)
    session = sessions.begin()
    acted(sessions, session)
    for number in range(2, 10):
        add(versions, number)
        sessions.leave_old()
    assert [version.number for version in versions.tracks[0].versions] == [6, 7, 8, 9]
    assert session.version.number >= 6
    assert acted(sessions, session) >= 6


def test_sessions_are_bounded_and_idle_ones_end(versions):
    sessions = made(versions)
    first, second, _ = (sessions.begin(name=name) for name in "abc")
    with pytest.raises(RefusedError, match="there are 3 sessions, the most") as refused:
        sessions.begin()
    assert refused.value.status == 503
    sessions._clock.now = 9.0
    acted(sessions, first)
    sessions._clock.now = 10.0
    sessions.begin(name="d")
    assert [sessions.find(None, name) is not None for name in "abcd"] == [True, False, False, True]
    assert sessions.expired == 2
    sessions.end(second)  # again


def test_one_request_of_a_session_at_a_time(versions):
    sessions = made(versions)
    session = sessions.begin()
    sessions.take(session, asked())
    with pytest.raises(RefusedError, match="previous request is under way"):
        sessions.take(session, asked())
    sessions._clock.now = 100.0
    sessions.expire()
    assert len(sessions) == 1  # not while it is busy


def test_an_episode_that_is_learned_from_cannot_become_greedy(versions):
    sessions = made(versions, learning=SimpleNamespace(begin=lambda: SimpleNamespace(answerer="the desk")))
    session = sessions.begin()
    assert sessions.take(session, asked()) == "the desk"
    session.is_busy = False
    with pytest.raises(RefusedError, match="this episode is learned from, with explored actions"):
        sessions.take(session, asked(greedy=True))
    assert not session.is_busy


def test_steps_that_nothing_could_take_are_counted_and_an_idle_episode_gives_its_place(versions):
    free, dropped = [], []
    free.append(SimpleNamespace(answerer="the desk", abandon=lambda: free.append(seat)))
    (seat,) = free
    learning = SimpleNamespace(begin=lambda: free.pop() if free else None, drop=dropped.append)
    sessions = ClientSessions(versions, 3, 1000.0, learning=learning, clock=Clock())

    def acts(session, **fields):
        sessions.take(session, asked(**fields))
        session.is_busy, session.steps = False, session.steps + 1

    idle, other = sessions.begin(name="idle"), sessions.begin(name="other")
    acts(idle)
    acts(other)
    acts(other, reward=1.0)
    assert (idle.learns_in, other.learns_in, dropped) == (seat, None, [1])
    acts(other, begins=True, greedy=True)
    acts(other, reward=1.0)
    assert dropped == [1]  # of such an episode nothing was to be learned
    sessions._clock.now = EPISODE_IDLE_S
    acts(other, begins=True)
    assert (idle.learns_in, free) == (None, [seat])
    acts(other, begins=True)
    assert other.learns_in is seat
    with pytest.raises(RefusedError, match="no action of this session waits for a result"):
        acts(idle, reward=1.0)
