"""local: stores and their names, and threads that share a connection."""

import threading

import pytest

from distrl.errors import ConfigError, MemoryBackendError
from distrl.memory_backend.backend import connect
from distrl.memory_backend.ledger import EntryOutcome
from distrl.memory_backend.stream import QueueCaps
from distrl.types import UnrollHeader

CAPS = QueueCaps(entries=8, bytes=10**6)


def made():
    backend = connect("local:", "run", CAPS, name="test", give_up_s=1.0)
    backend.create("{}")
    return backend


def test_a_run_is_created_once_and_can_be_made_anew_after_delete():
    backend = connect("local:", "run", CAPS, name="test", give_up_s=1.0)
    with pytest.raises(MemoryBackendError, match="no run run"):
        backend.config_json()
    backend.create("one")
    with pytest.raises(MemoryBackendError, match="exists already"):
        backend.create("two")
    assert backend.config_json() == "one"
    backend.unrolls.push(UnrollHeader(0, 1, 0, 0, 1), b"x")
    backend.delete()
    backend.create("three")
    assert backend.config_json() == "three"
    assert backend.ledger.counts().produced == 0
    assert backend.unrolls.take(1, 0.0) == []
    backend.close()
    assert backend.config_json() == "three"


def test_run_ids_are_those_of_redis():
    with pytest.raises(ConfigError, match="run id"):
        connect("local:", "a:b", CAPS, name="test", give_up_s=1.0)


def test_threads_lose_and_double_nothing():
    backend, actors, each = made(), 4, 200
    learner = backend.become_learner()
    used = []

    def act(actor):
        for sequence in range(each):
            assert backend.tickets.take((actor, 1), 30.0)
            backend.unrolls.push(UnrollHeader(actor, 1, sequence, 0, 1), b"x")

    threads = [threading.Thread(target=act, args=(actor,)) for actor in range(actors)]
    for thread in threads:
        thread.start()
    learner.tickets.issue(3)
    while len(used) < actors * each:
        batch = backend.unrolls.take(3, 30.0)
        learner.unrolls.settle(batch, EntryOutcome.TRAINED)
        learner.tickets.issue(len(batch))
        used += [(entry.header.actor, entry.header.sequence) for entry in batch]
    for thread in threads:
        thread.join()
    for actor in range(actors):
        assert [sequence for by, sequence in used if by == actor] == list(range(each))
    counts = backend.ledger.counts()
    assert (counts.imbalance, counts.trained, counts.stream_bytes) == (0, actors * each, 0)
    assert backend.tickets.counts() == (3, 0)


def test_connections_of_one_name_share_a_store_and_others_do_not():
    first, second = (connect("local:shared", "run", CAPS, name="test", give_up_s=1.0) for _ in range(2))
    first.create("one")
    assert second.config_json() == "one"
    for url in ("local:other", "local:"):
        with pytest.raises(MemoryBackendError, match="no run run at local:"):
            connect(url, "run", CAPS, name="test", give_up_s=1.0).config_json()
    del first, second
    with pytest.raises(MemoryBackendError, match="no run run at local:shared"):
        connect("local:shared", "run", CAPS, name="test", give_up_s=1.0).config_json()
