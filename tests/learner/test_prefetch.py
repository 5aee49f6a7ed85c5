"""Prefetch: exactly one made ahead, errors come over, and it ends when told to."""

import threading

import numpy as np
import pytest

from distrl.errors import FencedError
from distrl.learner.prefetch import Prefetch
from distrl.memory_backend.ledger import LedgerCounts
from tests.waiting import wait_until


def looks_twice(feed):
    """Wait until the thread has seen twice that nothing is wanted of it."""
    looks, acquire = [], feed._wanted.acquire
    feed._wanted.acquire = lambda timeout: looks.append(acquire(timeout=timeout)) or looks[-1]
    wait_until(lambda: looks.count(False) >= 2, "the thread has nothing to do")


@pytest.fixture
def prefetch(run):
    """Makes a Prefetch over the run; ends its thread afterwards."""
    stop = threading.Event()
    made = []

    def make(**options):
        made.append(Prefetch(run.feed(stop=stop.is_set, block_s=0.05, **options), stop.is_set))
        return made[-1]

    make.stop = stop
    yield make
    stop.set()
    for feed in made:
        feed.close()
        assert not feed._thread.is_alive()


def where(run):
    ledger: LedgerCounts = run.ledger
    return ledger.queued, ledger.in_flight


def test_takes_nothing_before_it_is_asked_and_then_one_parcel_ahead(run, prefetch):
    feed = prefetch(batch_size=2)
    for sequence in range(10):
        run.push(0, sequence)
    looks_twice(feed)
    assert where(run) == (10, 0)
    first = feed.collect()
    wait_until(lambda: where(run) == (6, 4))  # one handed over, one ready
    looks_twice(feed)
    assert where(run) == (6, 4)
    run.use(first)
    second = feed.collect()
    wait_until(lambda: where(run) == (4, 4))
    rewards = [made.batch.rewards[0, ::3].tolist() for made in (first, second, feed.collect())]
    assert rewards == [[0, 1], [2, 3], [4, 5]]


def test_staleness_counts_the_parcel_that_waits(run, prefetch):
    feed = prefetch(k=1, first_version=5)
    for sequence, version in enumerate((5, 5, 5, 6)):
        run.push(0, sequence, version)
    # The third is used at 7 at the earliest, when 5 is too old.
    assert [feed.collect().lags_updates for _ in range(3)] == [[0], [1], [1]]
    assert run.dropped == {"stale": 1}


def test_while_it_has_nothing_the_learner_can_do_something_else(run, prefetch):
    feed = prefetch()
    waited = []

    def push_at_last():
        waited.append(threading.current_thread())
        if len(waited) == 3:
            run.push(0, 0)
        return True

    feed.waits_on = push_at_last
    assert len(feed.collect().receipts[0].entries) == 1
    assert len(waited) >= 3
    assert set(waited) == {threading.current_thread()}


@pytest.mark.row("T15", "O05")
def test_an_error_of_the_thread_reaches_the_caller(run, prefetch):
    feed = prefetch()
    run.push(0, 0, payload=b"\xc1")  # to be rejected, which only the newest learner may
    run.backend.become_learner()
    with pytest.raises(FencedError, match="another learner runs small"):
        feed.collect()
    feed._thread.join(10.0)
    assert not feed._thread.is_alive()


def test_an_error_comes_after_the_parcels_before_it(run, prefetch):
    feed = prefetch()
    run.push(0, 0)
    run.push(0, 1, tag=np.nan)
    run.backend.become_learner()
    assert feed.collect() is not None
    with pytest.raises(FencedError):
        feed.collect()


def test_stop_ends_a_wait_for_unrolls(run, prefetch):
    feed = prefetch(batch_size=2)
    run.push(0, 0)
    results = []
    caller = threading.Thread(target=lambda: results.append(feed.collect()))
    caller.start()
    wait_until(lambda: where(run) == (0, 1))
    prefetch.stop.set()
    caller.join(10.0)
    feed.close()
    assert results == [None]
    assert where(run) == (0, 1)  # a successor finds it


def test_a_parcel_that_nobody_fetched_stays_in_flight(run, prefetch):
    feed = prefetch()
    for sequence in range(3):
        run.push(0, sequence)
    run.use(feed.collect())
    wait_until(lambda: where(run) == (1, 1))
    prefetch.stop.set()
    assert feed.collect() is None
    assert where(run) == (1, 1)
    made = run.feed(applied={(0, 1): 0}, first_version=3).collect()
    assert made.batch.rewards[0, 0] == 1


def test_stopped_before_it_was_asked(run, prefetch):
    feed = prefetch()
    prefetch.stop.set()
    feed.close()
    assert feed.collect() is None


def test_poll_gives_what_is_there_and_never_waits(run, prefetch):
    feed = prefetch()
    assert feed.poll() is None
    for sequence in range(2):
        run.push(0, sequence)
    polled = []
    wait_until(lambda: polled or polled.extend(filter(None, [feed.poll()])))
    assert polled[0].batch.rewards[0, 0] == 0
    assert feed.collect().batch.rewards[0, 0] == 1
    assert feed.poll() is None


def test_a_wait_that_is_over_returns_nothing(prefetch):
    feed = prefetch()
    feed.waits_on = lambda: False
    assert feed.collect() is None
    assert not prefetch.stop.is_set()
