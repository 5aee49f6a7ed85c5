"""engine: what both engines must do alike, and the guards that every write of a run shares."""

import pytest

from distrl.config.schedules import Progress
from distrl.errors import FencedError, MemoryBackendError
from distrl.memory_backend.keys import PROTOCOL_VERSION
from tests.faults.failover import promote, replica_of


def test_only_the_learner_may_do_what_is_fenced(backend):
    for write in (
        lambda: backend.unrolls.raise_highest({(0, 1): 0}),
        lambda: backend.weights.publish(1, b"w", Progress()),
        lambda: backend.tickets.issue(1),
        lambda: backend.ledger.recover(1),
    ):
        with pytest.raises(TypeError, match=r"only what Backend\.become_learner returns"):
            write()
    counts = backend.ledger.counts()
    assert (backend.unrolls.highest(), counts.rolled_back, backend.weights.version(), backend.tickets.counts()) == (
        {},
        0,
        0,
        (0, 0),
    )


def test_one_more_connection_of_the_learner_shares_its_fence(run):
    run.backend.add_lane(run.connect().engine)
    learner = run.backend.become_learner()
    feed = learner.receiving
    assert feed.engine is not learner.engine
    feed.tickets.issue(2)
    learner.tickets.issue(1)
    assert run.backend.tickets.counts() == (3, 0)
    successor = run.connect().become_learner()
    for late in (learner, feed):
        with pytest.raises(FencedError, match=f"token {successor.fence.number}, ours {learner.fence.number}"):
            late.tickets.issue(1)
    assert run.backend.tickets.counts() == (3, 0)


def test_a_token_that_redis_has_forgotten_is_put_back(run):
    replica = replica_of(run.backend)
    learner = run.connect().become_learner()
    promote(replica, [run.backend])
    learner.tickets.issue(1)
    assert run.backend.tickets.counts() == (1, 0)
    assert run.connect().become_learner().fence.number == learner.fence.number + 1


@pytest.mark.parametrize("first", ["older", "newer"])
def test_of_two_learners_whose_tokens_redis_has_forgotten_the_newer_one_prevails(run, first):
    replica = replica_of(run.backend)
    learners = {"older": run.connect().become_learner(), "newer": run.connect().become_learner()}
    promote(replica, [run.backend])
    learners[first].tickets.issue(1)
    learners["newer"].tickets.issue(1)
    with pytest.raises(FencedError, match="token 2, ours 1"):
        learners["older"].tickets.issue(1)


def test_of_two_learners_with_one_number_the_one_that_redis_knows_prevails(run):
    replica = replica_of(run.backend)
    older = run.connect().become_learner()
    promote(replica, [run.backend])
    newer = run.connect().become_learner()
    assert newer.fence.number == older.fence.number
    with pytest.raises(FencedError, match="token 1, ours 1"):
        older.tickets.issue(1)
    newer.tickets.issue(1)


def test_a_transaction_whose_guard_is_refused_changes_nothing(backend):
    engine, keys = backend.engine, backend._run.keys

    def refuse(*_):
        raise MemoryBackendError("no")

    guard, write = ("HGET", keys.run, "protocol"), ("HSET", keys.control, "paused", 1)
    with pytest.raises(MemoryBackendError, match="no"):
        engine.guarded(guard, refuse, [write], applied=keys.applied)
    with pytest.raises(MemoryBackendError, match="no"):
        engine.exactly_once(guard, refuse, "a test", applied=keys.applied)
    assert engine.call("HGETALL", keys.control) == {}


def test_reads_come_before_what_is_prepared_from_them(backend):
    engine, keys = backend.engine, backend._run.keys
    engine.call("HSET", keys.control, "a", 5)

    def doubled(protocol, replies):
        assert protocol == b"%d" % PROTOCOL_VERSION
        return [("HSET", keys.control, "b", 2 * int(replies[0]))]

    guard = ("HGET", keys.run, "protocol")
    engine.exactly_once(guard, doubled, "a test", applied=keys.applied, reads=[("HGET", keys.control, "a")])
    assert engine.call("HGET", keys.control, "b") == b"10"


def test_both_engines_reply_alike(backend):
    """The behaviour that the nouns rely on, command by command."""
    engine, keys = backend.engine, backend._run.keys
    conversation = [
        (("HSET", keys.control, "a", 1, "b", b"x"), 2),
        (("HMGET", keys.control, "a", "c"), [b"1", None]),
        (("HGETALL", keys.control), {b"a": b"1", b"b": b"x"}),
        (("HINCRBY", keys.control, "a", -3), -2),
        (("HEXISTS", keys.control, "b"), True),
        (("HDEL", keys.control, "b"), 1),
        (("EXISTS", keys.control), 1),
        (("RPUSH", keys.tickets, "1", "2"), 2),
        (("LMOVE", keys.tickets, keys.held((0, 1)), "LEFT", "RIGHT"), b"1"),
        (("LINDEX", keys.held((0, 1)), 0), b"1"),
        (("LINDEX", keys.tickets, 1), None),
        (("LLEN", keys.tickets), 1),
        (("LMOVE", keys.room, keys.tickets, "LEFT", "RIGHT"), None),
        (("DEL", keys.tickets, keys.room), 1),
        (("XLEN", keys.unrolls), 0),
        (("XRANGE", keys.dead, "(0", "+"), []),
        (("XPENDING", keys.unrolls, "learner"), None),
        (("ZRANGE", keys.highest, 0, -1, "WITHSCORES"), []),
        (("ZADD", keys.highest, "GT", 5, "0.1"), 1),
        (("ZADD", keys.highest, "GT", 4, "0.1", 6, "1.1"), 1),
        (("ZADD", keys.room, 0, 0, 0, 1), 2),
        (("ZADD", keys.room, 0, 0), 0),
        (("BZPOPMIN", keys.room, 0.01), (keys.room.encode(), b"0", 0.0)),
        (("BZPOPMIN", keys.room, 0.01), (keys.room.encode(), b"1", 0.0)),
        (("BZPOPMIN", keys.room, 0.01), None),
    ]
    for command, expected in conversation:
        reply = engine.call(*command)
        assert (reply["pending"] == 0) if command[0] == "XPENDING" else reply == expected, command
    assert engine.keys(f"{keys.prefix}held:*") == [keys.held((0, 1))]
