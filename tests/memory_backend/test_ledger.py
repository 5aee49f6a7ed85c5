"""ledger: what is counted where."""

import pytest
import redis

from distrl.errors import FencedError, MemoryBackendError
from distrl.memory_backend.ledger import EntryOutcome, LedgerCounts, ledger_counts
from distrl.types import UnrollHeader
from tests.faults.failover import promote, replica_of
from tests.forging import add_to_ledger


def test_a_new_run_has_counted_nothing(backend):
    assert backend.ledger.counts() == LedgerCounts()


def test_queued_in_flight_and_trained_follow_an_unroll(backend):
    learner = backend.become_learner()
    seen = []

    def note():
        counts = backend.ledger.counts()
        seen.append((counts.produced, counts.queued, counts.in_flight, counts.trained, counts.stream_bytes))
        assert counts.imbalance == 0

    backend.unrolls.push(UnrollHeader(0, 1, 0, 0, 1), b"xyz")
    note()
    entries = backend.unrolls.take(1, 0.0)
    note()
    learner.unrolls.settle(entries, EntryOutcome.TRAINED)
    note()
    assert seen == [(1, 1, 0, 0, 3), (1, 0, 1, 0, 3), (1, 0, 0, 1, 0)]
    assert backend.ledger.counts().pushed_bytes == 3


def test_a_gap_is_counted_as_produced_and_lost(backend):
    learner = backend.become_learner()
    backend.unrolls.push(UnrollHeader(0, 1, 4, 0, 1), b"x")
    entries = backend.unrolls.take(1, 0.0)
    learner.unrolls.count_lost(entries[0].header, 4, to_failover=False)
    assert backend.unrolls.highest() == {(0, 1): 3}
    learner.unrolls.settle(entries, EntryOutcome.TRAINED)
    counts = backend.ledger.counts()
    assert (counts.produced, counts.trained, counts.lost, counts.imbalance) == (5, 1, 4, 0)


def test_what_was_rolled_back_is_counted_apart(backend):
    old, learner = backend.become_learner(), backend.become_learner()
    add_to_ledger(backend, {"produced": 9, "trained": 9})
    learner.ledger.recover(6)
    learner.ledger.recover(6)
    learner.ledger.recover(4)
    with pytest.raises(FencedError):
        old.ledger.recover(1)
    assert backend.ledger.counts() == LedgerCounts(produced=9, trained=9, rolled_back=5)


def test_acknowledgements_that_redis_has_forgotten_count_again(backend):
    learner = backend.become_learner()
    add_to_ledger(backend, {"produced": 9, "trained": 9})
    learner.ledger.recover(6)
    learner.ledger.recover(11)
    learner.ledger.recover(11)
    assert backend.ledger.counts() == LedgerCounts(produced=14, trained=14, rolled_back=3)
    assert backend.ledger.counts().imbalance == 0


def test_a_fail_over_is_counted_once_however_often_a_learner_recovers_and_is_replaced(backend):
    learner = backend.become_learner()
    assert learner.ledger.recover(0) == 0
    learner.engine.failovers += 2
    assert [learner.ledger.recover(0), learner.ledger.recover(0), learner.ledger.failovers] == [2, 0, 2]
    successor = backend.become_learner()
    assert [successor.ledger.recover(0), successor.ledger.recover(0), successor.ledger.failovers] == [0, 0, 2]
    assert backend.ledger.counts().failovers == 2


def test_a_fail_over_that_no_learner_has_survived_is_counted_by_the_next_one(backend):
    backend.become_learner().ledger.recover(0)
    promote(replica_of(backend), [backend])
    learner = backend.become_learner()
    assert [learner.ledger.recover(0), learner.ledger.recover(0), learner.ledger.failovers] == [1, 0, 1]
    assert backend.become_learner().ledger.recover(0) == 0
    assert backend.ledger.counts().failovers == 1


def test_a_fail_over_that_takes_away_the_count_of_another_one_counts_both(backend):
    learner = backend.become_learner()
    learner.ledger.recover(0)
    replica = replica_of(backend)
    promote(replica, [learner])
    assert learner.ledger.recover(0) == 1
    promote(replica, [learner])
    assert learner.ledger.recover(0) == 1
    assert backend.ledger.counts().failovers == learner.ledger.failovers == 2


def test_unrolls_of_a_replay_memory_are_rolled_back_and_forgotten_as_stored(backend):
    learner = backend.become_learner()
    add_to_ledger(backend, {"produced": 9, "stored": 9})
    learner.ledger.recover(4, EntryOutcome.STORED)
    assert backend.ledger.counts() == LedgerCounts(produced=9, stored=9, rolled_back=5)
    learner.ledger.recover(7, EntryOutcome.STORED)
    assert backend.ledger.counts() == LedgerCounts(produced=12, stored=12, rolled_back=5)
    assert backend.ledger.counts().imbalance == 0


def test_fields_find_their_place():
    fields = {"produced": 9, "foreign": 1, "trained": 2, "lost": 3, "rolled_back": 4, "dropped.stale": 5}
    fields |= {"dropped.poison": 6, "stream_entries": 12, "stream_bytes": 7, "pushed_bytes": 8, "stored": 1}
    counts = ledger_counts(fields, entries=12, in_flight=2)
    dropped = {"stale": 5, "duplicate": 0, "decode": 0, "schema": 0, "nonfinite": 0, "poison": 6}
    assert counts == LedgerCounts(9, 1, 2, 10, 2, dropped, 3, 4, 7, 8, stored=1)
    assert (counts.used, counts.imbalance) == (3, 9 + 1 - 2 - 1 - 10 - 2 - 11 - 3)


@pytest.mark.parametrize(("pushed", "foreign", "imbalance"), [(3, 2, 0), (5, 0, 0), (6, 0, 1)])
def test_entries_beyond_the_pushed_are_foreign_and_missing_ones_unbalance(pushed, foreign, imbalance):
    counts = ledger_counts({"produced": pushed, "stream_entries": pushed}, entries=5, in_flight=0)
    assert (counts.queued, counts.foreign, counts.imbalance) == (5, foreign, imbalance)


@pytest.mark.redis
@pytest.mark.parametrize("name", ["produced", "stream_bytes", "dropped.stale", "rolled_back"])
@pytest.mark.parametrize("value", ["abc", "1.5", b"\xff", "1" + 30 * "0", ""])
def test_a_count_that_is_no_number_is_named(redis_run, name, value):
    backend = redis_run.backend
    with redis.Redis.from_url(redis_run.url) as client:
        client.hset(f"{redis_run.prefix}ledger", name, value)
        client.hset(f"{redis_run.prefix}ledger", b"\xff", "x")  # no count at all
    with pytest.raises(MemoryBackendError, match=f"{name} in the ledger of {redis_run.run_id} is b'.*, which"):
        backend.ledger.counts()
