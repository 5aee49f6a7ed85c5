"""in_memory: what only the twin has: one object for all roles, and threads."""

import threading

import pytest

from distrl.errors import ConfigError, MemoryBackendError
from distrl.memory_backend.backend import QueueCaps
from distrl.memory_backend.in_memory import InMemoryBackend
from distrl.types import UnrollHeader

CAPS = QueueCaps(entries=8, bytes=10**6)


def made():
    backend = InMemoryBackend("run", CAPS)
    backend.create("{}")
    return backend


def test_a_run_is_created_once_and_can_be_made_anew_after_delete():
    backend = InMemoryBackend("run", CAPS)
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
        InMemoryBackend("a:b", CAPS)


def test_threads_lose_and_double_nothing():
    backend, actors, each = made(), 4, 200
    fence = backend.acquire_fence()
    used = []

    def act(actor):
        for sequence in range(each):
            assert backend.tickets.take((actor, 1), 30.0)
            backend.unrolls.push(UnrollHeader(actor, 1, sequence, 0, 1), b"x")

    threads = [threading.Thread(target=act, args=(actor,)) for actor in range(actors)]
    for thread in threads:
        thread.start()
    backend.tickets.issue(3, fence)
    while len(used) < actors * each:
        batch = backend.unrolls.take(3, 30.0)
        backend.unrolls.acknowledge(batch, fence, {"trained": len(batch)}, {})
        backend.tickets.issue(len(batch), fence)
        used += [(entry.header.actor, entry.header.sequence) for entry in batch]
    for thread in threads:
        thread.join()
    for actor in range(actors):
        assert [sequence for by, sequence in used if by == actor] == list(range(each))
    counts = backend.ledger.counts()
    assert (counts.imbalance, counts.trained, counts.stream_bytes) == (0, actors * each, 0)
    assert backend.tickets.counts() == (3, 0)
