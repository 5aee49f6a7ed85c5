"""The conservation law after every kind of event, in any order, on every backend."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distrl.memory_backend.ledger import DROP_REASONS, EntryOutcome, LedgerCounts
from distrl.types import UnrollHeader

TERMS = {
    "produced": 1,
    "foreign": 1,
    "trained": -1,
    "stored": -1,
    "queued": -1,
    "in_flight": -1,
    "lost": -1,
    "rolled_back": 0,
}


@pytest.mark.parametrize(("term", "sign"), TERMS.items())
def test_every_term_enters_the_law_with_its_sign(term, sign):
    assert LedgerCounts(**{term: 5}).imbalance == 5 * sign


@pytest.mark.parametrize("reason", DROP_REASONS)
def test_every_drop_reason_enters_the_law(reason):
    assert LedgerCounts(produced=7, dropped={**LedgerCounts().dropped, reason: 7}).imbalance == 0


def test_bytes_do_not_enter_the_law():
    assert LedgerCounts(stream_bytes=3, pushed_bytes=4).imbalance == 0


event = st.one_of(
    st.tuples(st.just("push"), st.integers(0, 40)),
    st.tuples(st.just("push again"), st.none()),
    st.tuples(st.just("skip"), st.integers(1, 3)),
    st.tuples(st.just("forge"), st.integers(0, 40)),
    st.tuples(st.just("take"), st.integers(1, 4)),
    st.tuples(st.just("train"), st.integers(1, 4)),
    st.tuples(st.just("drop"), st.sampled_from([*EntryOutcome])),
    st.tuples(st.just("restart"), st.none()),
)


class Model:
    """A learner and an actor that behave, and what the ledger must then say."""

    def __init__(self, run):
        self.run = run
        self.backend = run.backend
        self.backend.delete()
        self.backend.create("{}")
        self.learner = self.backend.become_learner()
        self.producer = (0, self.backend.registry.register_actor(0))
        self.sequence = 0
        self.highest = -1
        self.hands = []  # in flight
        self.sizes = []  # of all entries in the stream; None for a foreign one
        self.expected = Counter()
        self.pushed_bytes = 0

    def push(self, size):
        self.backend.unrolls.push(UnrollHeader(*self.producer, self.sequence, 0, 1), b"x" * size)
        self.sequence += 1
        self.pushed_bytes += size
        self.sizes.append(size)
        self.expected["produced"] += 1

    def push_again(self, _):
        """Leave the copies of a retried push."""
        if self.sequence:
            self.sequence -= 1
            self.push(5)

    def skip(self, count):
        """Leave the state after a Redis failure."""
        self.sequence += count

    def forge(self, size):
        self.run.forge({b"payload": b"y" * size})
        self.sizes.append(None)

    def take(self, count):
        self.hands += self.backend.unrolls.take(count, 0.0)

    def train(self, count):
        """Counts gaps, duplicates and foreign entries as the learner does, and settles new unrolls together."""
        entries, self.hands = self.hands[:count], self.hands[count:]
        new = []
        for entry in entries:
            header = entry.header
            if header is None:
                self._settle([entry], EntryOutcome.SCHEMA, foreign=True)
            elif header.sequence <= self.highest:
                self._settle([entry], EntryOutcome.COPY)
            else:
                gap, self.highest = header.sequence - self.highest - 1, header.sequence
                self.learner.unrolls.count_lost(header, gap, to_failover=False)
                self.expected.update({"lost": gap, "produced": gap})
                new.append(entry)
        self._settle(new, EntryOutcome.TRAINED)

    def drop(self, outcome):
        if self.hands:
            entry = self.hands.pop(0)
            foreign = entry.header is None
            if not foreign and outcome is not EntryOutcome.COPY:
                self.highest = max(self.highest, entry.header.sequence)
            self._settle([entry], outcome, foreign=foreign)

    def restart(self, _):
        """A new learner finds exactly what the old one had in its hands."""
        self.learner = self.backend.become_learner()
        assert self.backend.unrolls.unacknowledged("0", 1000) == self.hands

    def _settle(self, entries, outcome, *, foreign=False):
        self.learner.unrolls.settle(entries, outcome, foreign=foreign)
        self.expected.update({outcome.field: len(entries), "foreign": len(entries) * foreign})
        del self.sizes[: len(entries)]

    def check(self):
        counts = self.backend.ledger.counts()
        assert counts.imbalance == 0
        assert counts.foreign == self.expected["foreign"] + self.sizes.count(None)
        for name in ("produced", "trained", "stored", "lost", "rolled_back"):
            assert getattr(counts, name) == self.expected[name]
        assert counts.dropped == {reason: self.expected[f"dropped.{reason}"] for reason in DROP_REASONS}
        assert (counts.in_flight, counts.queued) == (len(self.hands), len(self.sizes) - len(self.hands))
        assert counts.stream_bytes == sum(size for size in self.sizes if size is not None)
        assert counts.pushed_bytes == self.pushed_bytes
        assert self.backend.unrolls.highest() == ({self.producer: self.highest} if self.highest >= 0 else {})


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(event, max_size=30))
def test_the_law_holds_after_every_event(run, events):
    model = Model(run)
    for verb, argument in events:
        getattr(model, verb.replace(" ", "_"))(argument)
        model.check()
    # Whatever happened, a learner that takes and uses everything leaves an empty stream.
    while model.backend.ledger.counts().queued:
        model.take(4)
    model.train(len(model.hands))
    model.check()
    assert model.backend.ledger.counts().stream_bytes == 0
