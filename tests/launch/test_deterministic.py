"""Deterministic mode's feed: the actor acts exactly when the learner wants a batch. Whole runs: tests/failures."""

from types import SimpleNamespace

import pytest

from distrl.errors import StalledError
from distrl.launch.deterministic import InlineFeed
from distrl.memory_backend.backend import QueueCaps
from distrl.memory_backend.in_memory import InMemoryBackend


def inline_feed(collect, stall_timeout_s=60.0, stop=lambda: False):
    """An InlineFeed over a scripted feed: `collect(idle)` is what the feed does with what it may ask."""
    acted = []
    actor = SimpleNamespace(step=acted.append)
    backend = InMemoryBackend("r", QueueCaps(10, 2**20))
    feed = InlineFeed(
        actor, lambda idle: SimpleNamespace(collect=lambda: collect(idle)), backend, stop, stall_timeout_s
    )
    return feed, acted


def test_the_actor_acts_whenever_the_feed_has_nothing_to_take():
    feed, acted = inline_feed(lambda idle: [idle() for _ in range(3)])
    assert feed.collect() == [False, False, False]
    assert len(acted) == 3  # two for a batch, say, and one in place of an unroll that was rejected


def test_a_feed_that_never_fills_a_batch_is_a_stall():
    feed, acted = inline_feed(lambda idle: idle(), stall_timeout_s=-1.0)
    with pytest.raises(StalledError, match="no batch for 0 s"):
        feed.collect()
    assert acted == []
