"""The stream's protocol as a machine of states: pushes, copies, gaps, rubbish, checkpoints, deaths, fail-overs.

Hypothesis walks through it at random, on Redis and on the in-memory twin side by side. After every step both must say
the same, every unroll must be accounted for, and none may be trained on twice.
"""

import copy
import random
import uuid
from collections import Counter, deque

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from distrl.config.schedules import Progress
from distrl.errors import FencedError
from distrl.learner.batches import StreamBatches
from distrl.learner.intake import Intake
from distrl.learner.origin import FORGOTTEN_VERSIONS
from distrl.learner.publisher import StalenessBound, Tickets
from distrl.memory_backend.backend import connect
from distrl.memory_backend.codec import encode_unroll
from distrl.memory_backend.inbox import Inbox
from distrl.memory_backend.keys import entry_fields
from distrl.memory_backend.stream import QueueCaps
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, Unroll, UnrollHeader
from distrl.unroll_schema import UnrollSchema
from tests.faults.failover import promote, replica_of
from tests.forging import forge

CAPS = QueueCaps(entries=4, bytes=10_000)
SPEC = EnvSpec("Toy", {"observation": ArraySpec((1,), "float32")}, {"action": DiscreteSpec(2)})
SCHEMA = UnrollSchema.of(SPEC, 1, 1, {})
ACTORS = st.integers(0, 2)
CONTENTS = ("good", "not bytes of an unroll", "not finite")


def payload(content):
    if content == CONTENTS[1]:
        return b"\xc1"
    unroll = Unroll(
        header=UnrollHeader(0, 1, 0, 0, 1),
        observations={"observation": np.zeros((2, 1, 1), np.float32)},
        actions={"action": np.zeros((1, 1), np.int32)},
        rewards=np.full((1, 1), np.nan if content == CONTENTS[2] else 1.0, np.float32),
        terminated=np.zeros((1, 1), np.bool_),
        truncated=np.zeros((1, 1), np.bool_),
        valid=np.ones((1, 1), np.bool_),
        behaviour_log_probabilities=np.zeros((1, 1), np.float32),
        recurrent_state={},
        episode_returns=np.zeros(0, np.float32),
        episode_lengths_steps=np.zeros(0, np.int32),
    )
    return encode_unroll(unroll)


FORGED = (
    {b"nothing": b""},
    {b"actor": b"0", b"incarnation": b"-1", b"payload": b"x"},
    entry_fields(UnrollHeader(0, 10_000, 0, 1, 1), payload("good")),
)
"""Entries that no actor of the run has pushed."""
PAYLOADS = {content: payload(content) for content in CONTENTS}


class Weights:
    """The content of a learner's checkpoint.

    Attributes:
        applied: Producer -> highest sequence in the weights.
        used: (actor, incarnation, sequence) of every unroll in the weights.
    """

    def __init__(self):
        self.applied = {}
        self.used = []


class Side:
    """One of the two backends, with a learner of its own."""

    def __init__(self, backend):
        self.backend = backend
        self.weights, self.saved = Weights(), Weights()
        self.start()

    def start(self):
        """A learner takes over from the newest checkpoint, as `preparation.prepare` does."""
        self.weights = copy.deepcopy(self.saved)
        self.learner = self.backend.become_learner()
        passed_over = FORGOTTEN_VERSIONS if self.learner.ledger.recover(len(self.weights.used)) else 0
        self.version = self.backend.weights.version() + 1 + passed_over
        self.learner.weights.publish(self.version, b"", Progress())
        self.batches = []
        tickets = Tickets(self.learner, StalenessBound(None))
        self.intake = Intake(
            Inbox(self.learner, 1, 0.0),
            self.learner,
            SCHEMA,
            tickets,
            staleness=StalenessBound(None),
            applied=self.weights.applied,
            version=self.version,
        )
        self.feed = StreamBatches(self.intake, 1, lambda: True)

    def forge(self, fields):
        """Puts an entry into the stream past every rule."""
        forge(self.backend, fields)

    def fail_over(self, replica):
        """A replica is promoted, and the learner sees to it, as `Recovery` and `Intake` do."""
        promote(replica, [self.backend])
        if self.learner.weights.version() < self.version:
            self.learner.weights.publish(self.version, b"", Progress())
        self.learner.ledger.recover(len(self.weights.used))
        self.learner.unrolls.raise_highest(self.weights.applied)
        self.intake._keep_registered()

    def die_in_fail_over(self, replica):
        """A replica is promoted, and a learner takes over that knows nothing of that, as nothing of its process did."""
        promote(replica, [self.backend])
        self.start()

    def collect(self):
        """Return the parts of a batch that must be the same on both sides; None without a batch."""
        made = self.feed.collect()
        if made is None:
            return None
        self.batches.append(made)
        (receipt,) = made.receipts
        return receipt.highest, made.lags_updates, receipt.env_steps

    def update(self):
        """Trains on the oldest made, publishes, acknowledges."""
        (receipt,) = self.batches.pop(0).receipts
        self.weights.applied.update(receipt.highest)
        self.weights.used += [(*producer, sequence) for producer, sequence in receipt.highest.items()]
        self.version += 1
        self.learner.weights.publish(self.version, b"", Progress())
        receipt.settle()


class Protocol(RuleBasedStateMachine):
    """Both sides, and what actors know."""

    def __init__(self, url):
        super().__init__()
        run_id = f"protocol-{uuid.uuid4().hex[:8]}"
        self.redis = connect(url, run_id, CAPS, name="test", give_up_s=5.0)
        self.sides = []
        for backend in (connect("local:", run_id, CAPS, name="test", give_up_s=1.0), self.redis):
            backend.create("{}")
            self.sides.append(Side(backend))
        self.next_sequence = {}  # (actor, incarnation) -> sequence
        self.newest = {}  # actor -> incarnation
        self.last_push = {}  # actor -> header and content
        self.good, self.copies, self.bad, self.forged, self.gaps = set(), 0, 0, 0, Counter()
        self.ever_used = set()
        self.pushed = []  # headers of pushes, without copies
        self.replicas = deque(maxlen=9)  # of each side after each step, with numbers of pushes, forged entries, actors
        self.failovers, self.may_be_lost = 0, set()

    def both(self, call):
        """The one answer of both sides."""
        twin, real = (call(side) for side in self.sides)
        assert twin == real
        return twin

    @initialize()
    def actors_are_there(self):
        for actor in range(3):
            self._start(actor)

    @rule(actor=ACTORS)
    def an_actor_starts(self, actor):
        self._start(actor)

    def _start(self, actor):
        incarnation = self.both(lambda side: side.backend.registry.register_actor(actor))
        self.newest[actor] = incarnation
        self.next_sequence[actor, incarnation] = 0

    @rule(actors=st.lists(ACTORS, min_size=1, max_size=4), content=st.sampled_from(CONTENTS))
    def actors_push_unrolls(self, actors, content):
        for actor in actors:
            self._push(actor, content)

    def _push(self, actor, content):
        admission = self.both(lambda side: side.backend.unrolls.admission())
        if not admission.has_room:
            return
        producer = (actor, self.newest[actor])
        # The learner trusts an actor that Redis has forgotten only while all entries are actors'.
        if self._is_forgotten(actor) and self.both(lambda side: side.backend.unrolls.uncounted()):
            return
        sequence = self.next_sequence[producer]
        self.next_sequence[producer] += 1
        header = UnrollHeader(*producer, sequence, admission.weights_version, 1)
        self.last_push[actor] = (header, content)
        self.pushed.append((*producer, sequence))
        self.both(lambda side: side.backend.unrolls.push(header, PAYLOADS[content]))
        if content == "good":
            self.good.add((*producer, sequence))
        else:
            self.bad += 1

    @rule(actor=ACTORS)
    def it_pushes_the_same_once_more_for_want_of_a_reply(self, actor):
        if actor in self.last_push:
            header, content = self.last_push[actor]
            self.copies += 1
            self.both(lambda side: side.backend.unrolls.push(header, PAYLOADS[content]))

    @rule(actor=ACTORS)
    def redis_loses_its_next_unroll(self, actor):
        producer = (actor, self.newest[actor])
        self.next_sequence[producer] += 1
        self.gaps[producer] += 1

    @rule(fields=st.sampled_from(FORGED))
    def somebody_else_writes_into_the_stream(self, fields):
        if any(map(self._is_forgotten, self.newest)):
            return
        self.forged += 1
        for side in self.sides:
            side.forge(fields)

    @rule(batches=st.integers(1, 3))
    def the_learner_takes_batches(self, batches):
        for _ in range(batches):
            self.both(Side.collect)

    @precondition(lambda self: self.sides[0].batches)
    @rule()
    def it_trains_on_a_batch(self):
        self._train()

    def _train(self):
        self.both(Side.update)
        self.ever_used.update(self.sides[0].weights.used)

    @rule()
    def it_saves_a_checkpoint(self):
        for side in self.sides:
            side.saved = copy.deepcopy(side.weights)

    @rule()
    def it_dies_and_another_one_takes_over(self):
        for side in self.sides:
            learner = side.learner
            side.start()
            with pytest.raises(FencedError):
                learner.unrolls.raise_highest({(0, 1): 0})
            with pytest.raises(FencedError):
                learner.weights.publish(side.version + 1, b"", Progress())

    def _is_forgotten(self, actor):
        return not self.both(lambda side: side.backend.registry.is_registered((actor, self.newest[actor])))

    @rule(behind=st.integers(1, 8), dies=st.booleans())
    def a_replica_that_is_behind_is_promoted(self, behind, dies):
        if behind >= len(self.replicas):
            return
        replicas, pushed, self.forged, newest = self.replicas[-1 - behind]
        dies = dies and newest == self.newest  # registrations are confirmed by a replica; the learner knows them, too
        self.replicas.clear()
        self.failovers += 1
        self.may_be_lost.update(self.pushed[pushed:])
        for side, replica in zip(self.sides, replicas, strict=True):
            (side.die_in_fail_over if dies else side.fail_over)(replica)
        assert self.both(lambda side: side.learner.ledger.failovers) == self.failovers

    @invariant()
    def replicas_follow(self):
        replicas = [replica_of(side.backend) for side in self.sides]
        self.replicas.append((replicas, len(self.pushed), self.forged, dict(self.newest)))

    @invariant()
    def both_say_the_same_and_all_is_accounted_for(self):
        counts = self.both(lambda side: side.backend.ledger.counts())
        assert counts.imbalance == 0
        self.both(lambda side: side.backend.unrolls.highest())
        used = self.both(lambda side: side.weights.used)
        assert len(set(used)) == len(used)
        assert counts.trained - counts.rolled_back == len(used)
        assert set(used) <= self.good
        assert counts.lost_to_failover <= (counts.lost if self.failovers else 0)

    def teardown(self):
        """Whatever has happened, a learner that goes on uses every good unroll that is left, and empties the stream."""
        for side in self.sides:
            side.start()
        while self.both(Side.collect) is not None:
            self._train()
        counts = self.both(lambda side: side.backend.ledger.counts())
        assert (counts.queued, counts.in_flight, counts.stream_bytes, counts.imbalance) == (0, 0, 0, 0)
        assert self.good - self.may_be_lost <= self.ever_used <= self.good
        assert counts.foreign == self.forged
        refused = sum(counts.dropped.values()) - counts.dropped["duplicate"]  # a copy may be refused once more
        assert refused <= self.bad + self.copies + self.forged
        if not self.failovers:  # else one that was refused may come again, as a duplicate, or not at all
            assert refused >= self.bad + self.forged
        assert counts.lost <= sum(self.gaps.values()) + len(self.may_be_lost)
        assert self.both(lambda side: side.backend.unrolls.admission()).has_room
        self.redis.delete()
        self.redis.close()


@pytest.mark.redis
def test_every_unroll_is_used_once_and_accounted_for_whatever_happens(redis_url):
    run_state_machine_as_test(
        lambda: Protocol(redis_url), settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )


STEPS = {  # name of a rule -> how often it comes, and its arguments
    "actors_push_unrolls": (
        6,
        lambda dice: {"actors": dice.choices(range(3), k=dice.randint(1, 3)), "content": "good"},
    ),
    "the_learner_takes_batches": (5, lambda dice: {"batches": dice.randint(1, 2)}),
    "it_trains_on_a_batch": (5, lambda dice: {}),
    "a_replica_that_is_behind_is_promoted": (
        2,
        lambda dice: {"behind": dice.randint(1, 6), "dies": dice.random() < 0.3},
    ),
    "an_actor_starts": (1, lambda dice: {"actor": dice.randrange(3)}),
    "it_pushes_the_same_once_more_for_want_of_a_reply": (1, lambda dice: {"actor": dice.randrange(3)}),
    "somebody_else_writes_into_the_stream": (1, lambda dice: {"fields": dice.choice(FORGED)}),
    "it_saves_a_checkpoint": (1, lambda dice: {}),
    "it_dies_and_another_one_takes_over": (1, lambda dice: {}),
}


@pytest.mark.redis
@pytest.mark.parametrize("seed", range(20))
def test_long_walks_over_fail_overs_use_no_unroll_twice(redis_url, seed):
    dice, machine = random.Random(seed), Protocol(redis_url)
    machine.actors_are_there()
    for _ in range(60):
        (name,) = dice.choices(list(STEPS), [often for often, _ in STEPS.values()])
        if name != "it_trains_on_a_batch" or machine.sides[0].batches:
            getattr(machine, name)(**STEPS[name][1](dice))
        machine.both_say_the_same_and_all_is_accounted_for()
        machine.replicas_follow()
    machine.teardown()
