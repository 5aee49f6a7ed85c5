"""Feed: every entry is judged once, what is not trained on has a reason, and the ledger balances after every event."""

import dataclasses
import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl import wire
from distrl.errors import NonFiniteError
from distrl.learner import intake as intake_module
from distrl.learner.batches import REFUSED_GRADIENTS
from distrl.learner.intake import LARGEST_GAP
from distrl.learner.rounds import Rounds
from distrl.learner.state import LearnerState
from distrl.memory_backend.codec import encode_unroll
from distrl.memory_backend.gradient_codec import GradientSchema, encode_contribution
from distrl.memory_backend.joining import stack
from distrl.memory_backend.keys import HIGHEST_NUMBER, entry_fields
from distrl.types import EPISODE_METRICS, Contribution, Differentiated, UnrollHeader
from distrl.unroll_schema import episode_forms
from tests.faults.failover import promote, replica_of
from tests.forging import rejected

STEPS = 5  # valid steps of one unroll
SOURCE = (0, 1)  # actor 0, incarnation 1


def tags(made):
    """Which unrolls a batch is made of, by their rewards."""
    return made.batch.rewards[0, ::3].tolist()


# ---------------------------------------------------------------------------------------------------- what is taken


@pytest.mark.row("A19")
def test_unrolls_become_a_batch_in_order_of_arrival(run):
    run.push(1, 0, version=3, tag=10, episode_returns=(1.5,))
    run.push(0, 0, version=5, tag=20)
    run.push(1, 1, version=4, tag=30, episode_returns=(2.5, -1.0))
    feed = run.feed(batch_size=3, first_version=6)
    made = feed.collect()
    assert made.batch.rewards.shape == (2, 9)
    assert made.batch.observations["observation"].shape == (3, 9, 1)
    assert made.batch.rewards[1].tolist() == [10] * 3 + [20] * 3 + [30] * 3
    assert made.batch.observations["observation"][2, :, 0].tolist() == [1] * 3 + [0] * 3 + [1] * 3
    assert made.batch.valid[1].tolist() == [True, True, False] * 3
    assert made.lags_updates == [3, 1, 2]
    assert made.receipts[0].highest == {(1, 1): 1, (0, 1): 0}
    assert (made.receipts[0].env_steps, made.receipts[0].trained_steps) == (3 * STEPS, 3 * STEPS)
    receipt = made.receipts[0]
    assert (receipt.episode_returns, receipt.episode_lengths_steps) == ([1.5, 2.5, -1.0], [7, 7, 7])
    assert (receipt.episode_discounted_returns, receipt.episode_successes) == ([0.75, 1.25, -0.5], [0, 0, 1])
    assert (run.ledger.in_flight, run.ledger.trained) == (3, 0)
    run.use(made)
    assert (run.ledger.in_flight, run.ledger.trained, run.backend.unrolls.highest()) == (0, 3, made.receipts[0].highest)


@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_dropped_takes_no_place_in_the_batch(run, threads):
    feed = run.feed(batch_size=2, k=1, first_version=3, threads=threads)
    run.push(0, 0, version=3, tag=10)
    run.push(0, 1, version=1, tag=20)  # too stale
    run.push(1, 0, version=3, tag=np.nan)
    run.push(1, 1, version=3, tag=30)
    run.push(2, 0, version=3, tag=40)
    made = feed.collect()
    assert tags(made) == [10, 30]
    assert made.receipts[0].highest == {(0, 1): 0, (1, 1): 1}
    run.use(made)
    assert feed.collect() is None  # the third unroll alone is no batch
    run.push(2, 1, version=4, tag=50)
    assert tags(run.feed(batch_size=2, k=1, first_version=4, threads=threads).collect()) == [40, 50]
    assert run.dropped == {"stale": 1, "nonfinite": 1}


@pytest.mark.row("G26")
def test_five_unrolls_in_batches_of_two_are_two_updates_and_one_is_left(run):
    for sequence in range(5):
        run.push(0, sequence, version=1)
    feed = run.feed(batch_size=2, first_version=2)
    for _ in range(2):
        made = feed.collect()
        assert made.batch.observations["observation"].shape[0] == made.batch.rewards.shape[0] + 1  # to bootstrap from
        run.use(made)
    assert (run.ledger.trained, run.ledger.queued + run.ledger.in_flight) == (4, 1)


def test_actions_and_state_are_stacked_by_name_along_the_environments(unroll):
    unrolls = []
    for number in (1, 2):
        actions = {
            "gear": np.full((2, 3), number, np.int32),
            "force": np.full((2, 3, 2), 10.5 * number, np.float32),
        }
        state = {"h": np.full((1, 3, 4), number, np.float32)}
        unrolls.append(dataclasses.replace(unroll(0, 0), actions=actions, recurrent_state=state))
    batch = stack(unrolls, {})
    expected = np.int32([[1, 1, 1, 2, 2, 2]] * 2)
    np.testing.assert_array_equal(batch.actions["gear"], expected, strict=True)
    force = np.repeat(np.float32(10.5 * expected)[..., None], 2, axis=-1)
    np.testing.assert_array_equal(batch.actions["force"], force, strict=True)
    np.testing.assert_array_equal(batch.recurrent_state["h"][:, 0], [1, 1, 1, 2, 2, 2])
    assert batch.recurrent_state["h"].shape == (6, 4)


def test_the_nth_parcel_is_used_n_updates_later(run):
    feed = run.feed(first_version=4)
    for sequence, version in enumerate((4, 4, 5)):
        run.push(0, sequence, version)
    assert [feed.collect().lags_updates for _ in range(3)] == [[0], [1], [1]]


def test_what_was_used_is_dropped_when_redis_forgot_its_acknowledgement(run):
    run.push(0, 0, tag=1)
    run.push(0, 1, tag=2)
    feed = run.feed()
    made = feed.collect()
    disk = run.remember()
    run.use(made)
    run.come_back(disk)
    assert (run.ledger.trained, run.ledger.in_flight) == (0, 1)
    assert tags(feed.collect()) == [2]
    assert feed.collect() is None
    # In the weights already, and otherwise in flight for ever: such entries would close the stream in the end.
    assert (run.dropped, run.ledger.in_flight, run.ledger.queued) == ({"duplicate": 1}, 1, 0)


def test_what_is_being_used_is_used_once_when_redis_forgot_that_it_was_taken(run):
    for sequence in range(4):
        run.push(0, sequence, tag=sequence + 1)
    feed = run.feed(batch_size=2)
    disk = run.remember()
    first = feed.collect()
    run.come_back(disk)  # the learner has it; all four are queued once more
    second = feed.collect()
    assert (tags(first), tags(second)) == ([1, 2], [3, 4])
    assert (run.dropped, run.ledger.in_flight) == ({}, 4)
    run.use(first)
    run.use(second)
    assert (run.ledger.trained, run.ledger.in_flight, run.dropped) == (4, 0, {})


def test_a_connection_that_breaks_while_it_waits_is_noticed_before_anything_is_judged(run, monkeypatch):
    for sequence in range(4):
        run.push(0, sequence, tag=sequence + 1)
    feed = run.feed(batch_size=2)
    disk = run.remember()
    first = feed.collect()
    take = run.learner.unrolls.take

    def interrupted(count, block_s):
        if run.backend.unrolls.interruptions == 0:
            run.come_back(disk)
        return take(count, block_s)

    monkeypatch.setattr(run.learner.unrolls, "take", interrupted)
    assert tags(feed.collect()) == [3, 4]
    run.use(first)
    assert (run.ledger.trained, run.ledger.in_flight, run.dropped) == (2, 2, {})


def test_what_is_acknowledged_while_the_feed_looks_what_was_forgotten_is_acknowledged_once(run, monkeypatch):
    """Nothing was forgotten: the connection alone broke."""
    run.push(0, 0, tag=1)
    feed = run.feed()
    first, settled = feed.collect(), []
    run.backend.engine.interruptions += 1
    unacknowledged = run.learner.unrolls.unacknowledged

    def overtaken(after, count):
        found = unacknowledged(after, count)
        if not settled:
            run.use(first)
            settled.append(True)
        return found

    monkeypatch.setattr(run.learner.unrolls, "unacknowledged", overtaken)
    assert feed.collect() is None
    assert settled
    assert (run.ledger.trained, run.ledger.in_flight, run.dropped) == (1, 0, {})


def test_half_a_batch_is_not_taken_twice_when_redis_forgot_that_it_was_taken(run):
    run.push(0, 0, tag=1)
    disk = run.remember()

    def once_more():
        """While the feed waits for the second one."""
        if run.backend.unrolls.interruptions == 0:
            run.come_back(disk)
            run.push(0, 1, tag=2)
        return False

    made = run.feed(batch_size=2, stop=once_more).collect()
    assert (tags(made), run.dropped, run.ledger.in_flight) == ([1, 2], {}, 2)


def test_a_stop_leaves_a_part_of_a_batch_in_flight(run):
    asked = []
    feed = run.feed(batch_size=2, stop=lambda: bool(asked.append(1)) or len(asked) == 3)
    run.push(0, 0)
    assert feed.collect() is None
    assert len(asked) == 3  # it went on waiting twice
    assert (run.ledger.in_flight, run.ledger.queued) == (1, 0)


# ------------------------------------------------------------------------------------------------ what is not trained


def array_field(dtype, data):
    """An array as msgpack-numpy writes it."""
    return {b"nd": True, b"type": dtype, b"kind": b"O" if dtype == "|O" else b"", b"shape": [1], b"data": data}


PICKLED = wire.msgpack.packb({"rewards": array_field("|O", b"cos\nsystem\n(S'true'\ntR.")})


@pytest.mark.parametrize(
    ("header", "payload", "reason"),
    [
        (UnrollHeader(9, 1, 0, 1, STEPS), None, "schema"),  # no such actor
        (UnrollHeader(0, 2, 0, 1, STEPS), None, "schema"),  # no such incarnation
        (UnrollHeader(9, 1, 0, 1, STEPS), b"\xc1", "decode"),
        (UnrollHeader(9, 1, 0, 1, STEPS), PICKLED, "decode"),
        (UnrollHeader(9, 1, 0, 99, STEPS), None, "schema"),
    ],
)
def test_entries_of_no_actor_of_the_run_are_foreign(run, unroll, header, payload, reason):
    content = encode_unroll(unroll(0, 0)) if payload is None else payload
    fields = {b"actor": header.actor, b"incarnation": header.incarnation, b"sequence": header.sequence}
    fields |= {b"version": header.weights_version, b"steps": header.env_steps}
    run.forge({name: b"%d" % value for name, value in fields.items()} | {b"payload": content})
    run.push(0, 0)
    feed = run.feed(k=0)
    assert tags(feed.collect()) == [0]
    assert (run.ledger.produced, run.ledger.foreign, run.dropped) == (1, 1, {reason: 1})
    assert run.dead == [reason]
    assert run.backend.tickets.counts() == (0, 0)  # it had used none up


@pytest.mark.parametrize(
    "fields", [{}, {b"payload": b"x"}, {b"actor": b"0", b"incarnation": b"1", b"sequence": b"-1"}, {b"actor": b"x"}]
)
def test_entries_without_a_header_are_foreign(run, fields):
    run.forge(fields)
    run.push(0, 0)
    assert tags(run.feed().collect()) == [0]
    assert (run.ledger.foreign, run.dropped, run.dead) == (1, {"schema": 1}, ["schema"])


@pytest.mark.row("D61")
def test_a_copy_is_dropped_as_a_duplicate(run):
    for sequence in (0, 0, 1, 0):
        run.push(0, sequence, tag=sequence + 10)
    feed = run.feed(batch_size=2, k=5)
    made = feed.collect()
    assert tags(made) == [10, 11]
    run.use(made)
    assert feed.collect() is None
    assert (run.ledger.produced, run.ledger.trained, run.dropped) == (4, 2, {"duplicate": 2})
    assert run.dead == []
    assert run.backend.tickets.counts() == (0, 0)


def test_what_the_restored_weights_contain_is_a_duplicate(run):
    run.push(0, 4)
    run.push(0, 5)
    run.push(0, 0, incarnation=1, tag=9, change={"header": UnrollHeader(1, 1, 0, 1, STEPS)})
    feed = run.feed(batch_size=2, applied={SOURCE: 4, (1, 2): 7})
    assert tags(feed.collect()) == [5, 9]
    assert run.dropped == {"duplicate": 1}


@pytest.mark.parametrize(
    ("k", "lags", "taken", "stale"),
    [
        (None, (0, 3, 50), 3, 0),
        (0, (0, 1, 2, 0), 2, 2),
        (1, (0, 1, 2, 1), 3, 1),
        (2, (3, 2, 1, 0), 3, 1),
    ],
)
@pytest.mark.row("D67")
def test_the_too_stale_is_dropped_counted_and_its_ticket_replaced(run, k, lags, taken, stale):
    for sequence, lag in enumerate(lags):
        run.push(0, sequence, version=100 - lag)
    # A made of all that fit; the last of `lags` fits, so that nothing stale comes after it.
    feed = run.feed(batch_size=taken, k=k, first_version=100)
    made = feed.collect()
    expected = [lag for lag in lags if k is None or lag <= k]
    assert made.lags_updates == expected
    assert (made.receipts[0].env_steps, made.receipts[0].trained_steps) == (len(lags) * STEPS, taken * STEPS)
    assert run.dropped == ({"stale": stale} if stale else {})
    assert run.backend.tickets.counts() == (stale, 0)
    assert run.dead == []


@pytest.mark.parametrize(
    ("reason", "change", "payload"),
    [
        ("decode", None, b"\xc1"),
        ("decode", None, PICKLED),
        ("schema", {"actions": {"action": np.full((2, 3), 2, np.int32)}}, None),
        ("schema", {"rewards": np.zeros((2, 3), np.float64)}, None),
        ("schema", {"header": UnrollHeader(0, 1, 1, 1, STEPS + 1)}, None),  # more steps than are valid
        ("schema", {"header": UnrollHeader(0, 1, 1, 4, STEPS)}, None),  # weights of the future
        ("nonfinite", {"rewards": np.full((2, 3), np.nan, np.float32)}, None),
        ("nonfinite", {"episode_returns": np.array([np.inf], np.float32)}, None),
    ],
)
@pytest.mark.parametrize("k", [None, 5])
def test_what_cannot_be_trained_on_is_rejected_with_its_reason(run, unroll, reason, change, payload, k):
    change = dict(change) if change else None
    if change and "episode_returns" in change:
        change["episode_lengths_steps"] = np.array([1], np.int32)
        change["episode_discounted_returns"] = np.array([1], np.float32)
        change["episode_successes"] = np.array([1], np.int8)
    run.push(0, 0)
    run.push(0, 1, change=change, payload=payload)
    run.push(0, 2)
    feed = run.feed(batch_size=2, k=k, first_version=3)
    made = feed.collect()
    assert tags(made) == [0, 2]
    assert made.receipts[0].env_steps == 2 * STEPS  # the number of steps of the other one is not known
    assert (run.dropped, run.ledger.foreign, run.ledger.lost) == ({reason: 1}, 0, 0)
    assert run.backend.tickets.counts() == (0 if k is None else 1, 0)
    (dead,) = rejected(run.backend)
    assert (dead["reason"], dead["actor"], dead["sequence"]) == (reason.encode(), b"0", b"1")
    if payload is not None:
        assert (dead["payload"], dead["sha256"]) == (payload, hashlib.sha256(payload).hexdigest().encode())


# ----------------------------------------------------------------------------------------------------------- gaps


def test_a_gap_in_the_sequences_is_counted_as_lost(run):
    feed = run.feed(batch_size=2)
    for actor, sequence in ((0, 0), (1, 2), (0, 1), (1, 5)):
        run.push(actor, sequence)
    run.use(feed.collect())
    assert (run.ledger.lost, run.ledger.produced) == (2, 6)
    run.use(feed.collect())
    assert (run.ledger.lost, run.ledger.produced, run.ledger.trained) == (4, 8, 4)


def test_unrolls_refused_once_more_after_a_fail_over_are_no_gap_to_a_successor(run):
    for sequence in range(3):
        run.push(0, sequence, payload=b"\xc1")
    disk, feed = run.remember(), run.feed()
    assert feed.collect() is None
    run.come_back(disk)
    assert feed.collect() is None
    run.push(0, 2, payload=b"\xc1")  # once more, for want of a reply
    assert run.feed().collect() is None
    assert (run.ledger.lost, run.dropped) == (0, {"duplicate": 3, "decode": 1})


def test_a_copy_does_not_settle_the_unroll_that_is_still_in_progress(run):
    run.push(0, 0)
    feed = run.feed()
    made = feed.collect()
    run.push(0, 0)
    assert feed.collect() is None
    assert (run.dropped, run.backend.unrolls.highest()) == ({"duplicate": 1}, {})
    run.use(made)
    assert run.backend.unrolls.highest() == {SOURCE: 0}


def test_a_gap_after_a_fail_over_that_no_learner_has_survived_is_lost_to_it(run):
    run.feed()
    run.learner.ledger.recover(0)
    run.push(0, 0)
    promote(replica_of(run.backend), [run.backend])
    run.backend.engine.failovers = 0  # of the connections of a new process
    feed = run.feed()
    run.learner.ledger.recover(0)
    run.push(0, 3)
    run.use(feed.collect())
    run.use(feed.collect())
    assert (run.ledger.lost, run.ledger.lost_to_failover, run.ledger.failovers) == (2, 2, 1)


@pytest.mark.parametrize("sequence", [LARGEST_GAP + 2, 10**9, 10**17, HIGHEST_NUMBER])
def test_a_forged_sequence_is_foreign_and_does_not_silence_its_actor(run, sequence):
    feed = run.feed(batch_size=1)
    run.push(0, 0)
    run.use(feed.collect())
    run.forge(entry_fields(UnrollHeader(*SOURCE, sequence, 1, 1), b"x"))
    for following in (1, 2):
        run.push(0, following)
    for following in (1, 2):
        made = feed.collect()
        assert made.receipts[0].highest == {SOURCE: following}
        run.use(made)
    assert (run.ledger.trained, run.ledger.foreign, run.ledger.lost, run.dropped) == (3, 1, 0, {"schema": 1})


def test_a_gap_of_any_size_is_believed_of_actors_whose_entries_are_all_counted(run):
    """A Redis that comes back with an old snapshot may have lost hours."""
    feed = run.feed(batch_size=1)
    run.push(0, 10 * LARGEST_GAP)
    run.use(feed.collect())
    assert (run.ledger.trained, run.ledger.foreign, run.ledger.lost) == (1, 0, 10 * LARGEST_GAP)


@pytest.mark.parametrize("fate", ["kept", "stale", "nonfinite", "duplicate"])
def test_a_crash_counts_a_gap_neither_twice_nor_never(run, fate):
    run.push(0, 0)
    run.use(run.feed().collect())
    run.push(0, 3, version=2)  # 1 and 2 are lost
    if fate == "duplicate":
        run.push(0, 3, version=2)
    if fate == "stale":  # the unroll after the gap stays in flight, the next one is acknowledged
        run.push(0, 4, version=1)
    if fate == "nonfinite":
        run.push(0, 4, version=2, tag=np.nan)
    assert run.feed(batch_size=2, k=0, applied={SOURCE: 0}, first_version=2).collect() is None
    assert (run.ledger.lost, run.ledger.in_flight) == (2, 1)
    run.push(0, 5 if fate in ("stale", "nonfinite") else 4, version=3)
    made = run.feed(batch_size=2, k=1, applied={SOURCE: 0}, first_version=3).collect()
    assert len(made.receipts[0].entries) == 2
    run.use(made)
    assert (run.ledger.lost, run.ledger.trained, run.ledger.in_flight) == (2, 3, 0)


@pytest.mark.parametrize("reason", ["stale", "decode", "schema", "nonfinite", "duplicate"])
def test_an_unroll_dropped_just_before_a_crash_is_no_gap_after_it(run, reason):
    run.push(0, 0, version=9)
    if reason == "decode":
        run.push(0, 1, version=9, payload=b"\xc1")
    else:
        faults = {
            "stale": {"version": 1},
            "schema": {"version": 9, "change": {"actions": {"action": np.full((2, 3), 7, np.int32)}}},
            "nonfinite": {"version": 9, "tag": np.inf},
            "duplicate": {"version": 9},
        }
        run.push(0, 0 if reason == "duplicate" else 1, **faults[reason])
    feed = run.feed(k=2, first_version=9)
    run.use(feed.collect())
    assert feed.collect() is None
    assert run.dropped == {reason: 1}
    run.push(0, 1 if reason == "duplicate" else 2, version=10)
    restarted = run.feed(k=2, applied={SOURCE: 0}, first_version=10)
    assert restarted.collect() is not None
    assert run.ledger.lost == 0


# --------------------------------------------------------------------------------------------------------- restarts


@pytest.mark.row("D61")
def test_a_restarted_learner_takes_the_unacknowledged_first_one_by_one_and_in_order(run, monkeypatch):
    for sequence in range(3):
        run.push(0, sequence)
        run.push(1, sequence, tag=sequence + 10)
    first = run.feed(batch_size=5)
    assert tags(first.collect()) == [0, 10, 1, 11, 2]
    asked = []
    restarted = run.feed(batch_size=3, first_version=2)
    stream = run.learner.unrolls
    original = stream.unacknowledged
    monkeypatch.setattr(stream, "unacknowledged", lambda *call: asked.append(call) or original(*call))
    made = restarted.collect()
    assert tags(made) == [0, 10, 1]
    assert [count for _, count in asked] == [1, 1, 1]
    run.use(made)
    run.push(2, 0, tag=20)
    made = restarted.collect()
    assert tags(made) == [11, 2, 12]
    run.use(made)
    assert (run.ledger.in_flight, run.ledger.trained) == (1, 6)  # the new one came along and waits for its batch
    assert tags(run.feed(first_version=3).collect()) == [20]


def test_weights_that_were_rolled_back_lost_no_unrolls(run):
    feed = run.feed()
    for sequence in range(5):
        run.push(0, sequence)
        run.use(feed.collect())
    run.push(0, 5)
    # The checkpoint holds 0 and 1; 2 to 4 were trained on and are gone.
    made = run.feed(applied={SOURCE: 1}, first_version=6).collect()
    run.use(made)
    assert (run.ledger.lost, run.ledger.trained, made.receipts[0].highest) == (0, 6, {SOURCE: 5})


def test_a_fenced_learner_judges_nothing(run):
    run.push(0, 0, payload=b"\xc1")
    old = run.feed()
    run.feed()
    with pytest.raises(Exception, match="another learner runs small"):
        old.collect()
    assert (run.ledger.in_flight, run.dropped) == (1, {})


# ------------------------------------------------------------------------------------------------- tickets that vanish


def test_tickets_that_redis_lost_are_issued_again_when_nothing_moves_any_more(run):
    asked = []
    feed = run.feed(batch_size=3, k=0, stop=lambda: bool(asked.append(run.backend.tickets.counts())) or len(asked) == 4)
    run.publish(1)
    run.push(0, 0)
    assert feed.collect() is None
    # The first idle moment may be the one between publishing and issuing; the third follows the second issue's.
    assert asked == [(0, 0), (0, 0), (2, 0), (2, 0)]


@pytest.mark.parametrize(
    ("published", "free", "held"),
    [(1, 0, 0), (2, 1, 0), (2, 0, 1)],
    ids=["the batch's own are still to come", "one is free", "one is held"],
)
def test_tickets_are_not_issued_again_while_something_can_still_move(run, published, free, held):
    asked = []
    feed = run.feed(k=0, first_version=2, stop=lambda: bool(asked.append(1)) or len(asked) == 5)
    run.publish(published)
    run.learner.tickets.issue(free + held)
    for _ in range(held):
        run.backend.tickets.take(SOURCE, 0.0)
    assert feed.collect() is None
    assert run.backend.tickets.counts() == (free, held)


def test_without_bounded_staleness_there_are_no_tickets(run):
    asked = []
    feed = run.feed(stop=lambda: bool(asked.append(1)) or len(asked) == 5)
    run.publish(1)
    assert feed.collect() is None
    assert run.backend.tickets.counts() == (0, 0)


# --------------------------------------------------------------------------------------------- any sequence of events


class SlowModel:
    """A model of intake and learner on plain lists. `stream` holds the unacknowledged entries, in order."""

    def __init__(self, k, batch_size):
        self.k, self.batch_size = k, batch_size
        self.stream = []
        self.ledger = Counter()
        self.accounted = {}  # producer -> highest sequence that was ever settled
        self.version = 1
        self.applied, self.trained = {}, 0
        self.checkpoint = ({}, 0)
        self.taken = {}

    def learn(self):
        """The sequences of the batch that should come; None if there are too few."""
        batch, left = [], []
        for place, entry in enumerate(self.stream):
            if len(batch) == self.batch_size:
                left += self.stream[place:]
                break
            producer, sequence, version, kind = entry
            fate = self._fate(producer, sequence, version, kind)
            if fate != "duplicate" and kind != "foreign":
                gap = sequence - 1 - max(self.taken.get(producer, -1), self.accounted.get(producer, -1))
                if gap > 0:
                    self.ledger["lost"] += gap
                    self._settle(producer, sequence - 1)
                self.taken[producer] = sequence
            if fate == "keep":
                batch.append(entry)
            else:
                self.ledger[fate] += 1
                if kind != "foreign" and fate != "duplicate":
                    self._settle(producer, sequence)
        if len(batch) < self.batch_size:
            self.stream = batch
            return None
        self.stream = left
        for producer, sequence, _, _ in batch:
            self._settle(producer, sequence)
            self.applied[producer] = sequence
        self.trained += len(batch)
        self.ledger["trained"] += len(batch)
        self.version += 1
        return [entry[:2] for entry in batch]

    def _fate(self, producer, sequence, version, kind):
        if kind == "foreign":
            return "schema"
        if sequence <= self.taken.get(producer, -1):
            return "duplicate"
        if self.k is not None and self.version - version > self.k:
            return "stale"
        return "keep" if kind == "good" else kind

    def _settle(self, producer, sequence):
        self.accounted[producer] = max(sequence, self.accounted.get(producer, -1))

    def restart(self):
        """From the checkpoint; versions never go back."""
        self.applied, self.trained = dict(self.checkpoint[0]), self.checkpoint[1]
        self.taken = dict(self.applied)
        self.version += 1


EVENTS = st.one_of(
    st.tuples(
        st.just("push"),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from(["good", "good", "good", "decode", "schema", "nonfinite"]),
    ),
    st.tuples(st.just("copy")),
    st.tuples(st.just("lose"), st.integers(0, 2)),
    st.tuples(st.just("foreign")),
    st.tuples(st.just("learn")),
    st.tuples(st.just("learn")),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("crash"), st.integers(0, 3)),
)


class Both:
    """Feeds every event to the real thing and to the slow model."""

    def __init__(self, run, k, batch_size):
        self.run = run
        self.model = SlowModel(k, batch_size)
        self.sequences = Counter()
        self.last = None
        self.pushed = 0
        self.restart()

    def restart(self):
        model = self.model
        self.feed = self.run.feed(
            batch_size=model.batch_size, k=model.k, applied=model.applied, first_version=model.version
        )

    def push(self, actor, lag, kind):
        version = max(self.model.version - lag, 1)
        self._push(actor, self.sequences[actor], version, kind)
        self.sequences[actor] += 1

    def _push(self, actor, sequence, version, kind):
        change = {"schema": {"actions": {"action": np.full((2, 3), 9, np.int32)}}}.get(kind)
        payload = b"\xc1" if kind == "decode" else None
        tag = np.nan if kind == "nonfinite" else sequence
        self.run.push(actor, sequence, version, change=change, payload=payload, tag=tag)
        self.model.stream.append(((actor, 1), sequence, version, kind))
        self.last = (actor, sequence, version, kind)
        self.pushed += 1

    def copy(self):
        if self.last is not None:
            self._push(*self.last)

    def lose(self, actor):
        """Redis forgets an unroll and that it was ever produced."""
        self.sequences[actor] += 1
        self.last = None  # a copy of an older unroll cannot follow

    def foreign(self):
        self.run.forge({})
        self.model.stream.append((None, 0, 0, "foreign"))
        self.model.ledger["foreign"] += 1

    def learn(self):
        made, expected = self.feed.collect(), self.model.learn()
        if expected is None:
            assert made is None
            self.crash(taken=0)  # it was asked to stop
            return
        found = [entry.header for entry in made.receipts[0].entries]
        assert [(header.producer, header.sequence) for header in found] == expected
        self.run.use(made)

    def checkpoint(self):
        self.model.checkpoint = (dict(self.model.applied), self.model.trained)

    def crash(self, taken):
        """With so many entries more taken and not acknowledged."""
        self.run.backend.unrolls.take(taken, 0.0)
        self.model.restart()
        self.restart()

    def check(self):
        ledger, model = self.run.ledger, self.model.ledger
        reasons = ("stale", "duplicate", "decode", "schema", "nonfinite")
        assert {reason: ledger.dropped[reason] for reason in reasons} == {reason: model[reason] for reason in reasons}
        assert (ledger.trained, ledger.lost, ledger.foreign) == (model["trained"], model["lost"], model["foreign"])
        assert ledger.produced == self.pushed + model["lost"]
        assert ledger.queued + ledger.in_flight == len(self.model.stream)


@settings(max_examples=300)
@given(st.sampled_from([None, 0, 1]), st.integers(1, 3), st.lists(EVENTS, max_size=40))
def test_the_conservation_law_holds_after_every_event(new_run, k, batch_size, events):
    both = Both(new_run(), k, batch_size)
    for name, *arguments in events:
        getattr(both, name)(*arguments)
        both.check()


# ------------------------------------------------------------------------------------------------- gradients, rounds


SHAPES = {"main/kernel": (2,)}


def push_gradient(run, actor, sequence, version=1, value=0.0, incarnation=1, steps=STEPS, ended=()):
    gradient = np.full(2, value, np.float32)
    contribution = Contribution(
        header=UnrollHeader(actor, incarnation, sequence, version, steps),
        differentiated=Differentiated({"main/kernel": gradient}, {}, {"loss": 1.0}, {}),
        episode_returns=np.array(ended, np.float32),
        episode_lengths_steps=np.array([3] * len(ended), np.int32),
        episode_discounted_returns=0.5 * np.array(ended, np.float32),
        episode_successes=np.array([-1] * len(ended), np.int8),
    )
    run.backend.unrolls.push(contribution.header, encode_contribution(contribution))


def gradient_feed(run, rounds=None, **options):
    """A feed of gradients; `rounds` is the number of workers that wait for each other."""
    waiting = None if rounds is None else Rounds(rounds, run.backend.registry.control, 0.05)
    return run.feed(rounds=waiting, schema=GradientSchema.of(6, SHAPES, {}, {}), **options)


def values(made):
    return [float(given.differentiated.gradients["main/kernel"][0]) for given in made.batch]


def test_gradients_come_as_they_come_and_their_lag_is_that_of_unrolls(run):
    push_gradient(run, 1, 0, version=3, value=1.0, ended=(2.5,))
    push_gradient(run, 0, 0, version=5, value=2.0)
    push_gradient(run, 1, 1, version=4, value=3.0)
    feed = gradient_feed(run, batch_size=2, first_version=6)
    made = feed.collect()
    assert values(made) == [1.0, 2.0]
    assert (made.lags_updates, made.missing) == ([3, 1], [])
    assert (made.receipts[0].env_steps, made.receipts[0].trained_steps) == (2 * STEPS, 2 * STEPS)
    receipt = made.receipts[0]
    assert (receipt.episode_returns, receipt.episode_lengths_steps) == ([2.5], [3])
    assert (receipt.episode_discounted_returns, receipt.episode_successes) == ([1.25], [-1])
    run.use(made)
    assert (run.ledger.trained, run.backend.unrolls.highest()) == (2, {(1, 1): 0, (0, 1): 0})


def test_metrics_of_episodes_reach_the_learner_s_state(run):
    rows = np.array([[1.5, np.nan], [2.5, 4.0]], np.float32)
    run.schema = dataclasses.replace(run.schema, episodes=episode_forms(2))
    for sequence, (returns, metrics) in enumerate([((), rows[:0]), ((1.0, 2.0), rows)]):
        run.push(1, sequence, version=5, episode_returns=returns, change={"extras": {EPISODE_METRICS: metrics}})
    (receipt,) = run.feed(batch_size=2, first_version=6).collect().receipts
    np.testing.assert_array_equal(receipt.episode_metrics, rows)
    state = LearnerState(run_id="small", episodes=5)
    state.begin_metrics({"x": "mean", "y": "mean"})
    receipt.count(state)
    assert (state.episodes, state.recent_metrics) == (7, {"x": [1.5, 2.5], "y": [None, 4.0]})


def test_too_old_gradients_cost_a_ticket_as_unrolls_do(run):
    push_gradient(run, 0, 0, version=1, value=1.0)
    push_gradient(run, 0, 1, version=3, value=2.0)
    made = gradient_feed(run, k=1, first_version=3).collect()
    assert (values(made), run.dropped, run.backend.tickets.counts()) == ([2.0], {"stale": 1}, (1, 0))


@pytest.mark.parametrize(
    ("value", "steps", "reason"), [(np.nan, STEPS, "nonfinite"), (np.inf, STEPS, "nonfinite"), (1.0, 7, "schema")]
)
def test_gradients_that_cannot_be_applied_have_their_reason(run, value, steps, reason):
    push_gradient(run, 0, 0, value=value, steps=steps)
    push_gradient(run, 1, 0, value=2.0)
    assert values(gradient_feed(run).collect()) == [2.0]
    assert (run.dropped, run.dead) == ({reason: 1}, [reason])


def test_an_unroll_is_no_gradient(run):
    run.push(0, 0)
    push_gradient(run, 1, 0, value=2.0)
    assert values(gradient_feed(run).collect()) == [2.0]
    assert run.dropped == {"schema": 1}


@pytest.mark.row("A02")
def test_a_round_has_one_gradient_of_everybody(run):
    for actor, value in ((2, 1.0), (0, 2.0), (1, 3.0)):
        push_gradient(run, actor, 0, value=value)
    feed = gradient_feed(run, rounds=3, stop=lambda: True)
    made = feed.collect()
    assert (values(made), made.lags_updates, made.missing) == ([1.0, 2.0, 3.0], [0, 0, 0], [])
    run.use(made)
    # The next round is of the next version: what is older comes too late, without a ticket in its place.
    push_gradient(run, 0, 1, version=1, value=4.0)
    for actor in (0, 1, 2):
        push_gradient(run, actor, 1 + (actor == 0), version=2, value=5.0 + actor)
    made = feed.collect()
    assert (values(made), run.dropped) == ([5.0, 6.0, 7.0], {"stale": 1})
    assert made.receipts[0].env_steps == 4 * STEPS  # also those of the late one were made
    assert run.backend.tickets.counts() == (0, 0)
    run.use(made)
    assert (run.ledger.trained, run.ledger.in_flight) == (6, 0)


def test_a_round_takes_one_gradient_of_an_actor_that_was_started_again(run):
    push_gradient(run, 0, 0, value=1.0)
    assert run.backend.registry.register_actor(0) == 2
    push_gradient(run, 0, 0, value=9.0, incarnation=2)
    push_gradient(run, 1, 0, value=2.0)
    made = gradient_feed(run, rounds=2).collect()
    assert (values(made), run.dropped, run.dead) == ([1.0, 2.0], {"duplicate": 1}, [])
    run.use(made)
    assert run.backend.unrolls.highest() == {(0, 1): 0, (0, 2): 0, (1, 1): 0}  # the dropped one is no gap later


@pytest.mark.row("B11")
def test_a_round_goes_on_without_whom_it_has_waited_for_long_enough(run):
    push_gradient(run, 0, 0, value=1.0)
    push_gradient(run, 2, 0, value=2.0)
    feed = gradient_feed(run, rounds=3, stop=lambda: False, block_s=0.01)
    made = feed.collect()
    assert (values(made), made.missing) == ([1.0, 2.0], [1])


def test_a_round_that_redis_lost_whole_is_made_of_the_gradients_that_follow(run):
    """The first push of every actor was lost with all counts; the actors noticed and sent another one."""
    for actor in (0, 1, 2):
        push_gradient(run, actor, 1, value=1.0 + actor)
    feed = gradient_feed(run, rounds=3)
    made = feed.collect()
    assert (values(made), made.lags_updates, made.missing) == ([1.0, 2.0, 3.0], [0, 0, 0], [])
    run.use(made)
    assert (run.ledger.produced, run.ledger.lost, run.ledger.trained, run.dropped) == (6, 3, 3, {})


def test_a_round_is_not_kept_waiting_by_a_gradient_that_was_refused(run):
    push_gradient(run, 0, 0, value=np.nan)
    push_gradient(run, 1, 0, value=2.0)
    made = gradient_feed(run, rounds=2).collect()
    assert (values(made), made.missing, run.dropped) == ([2.0], [0], {"nonfinite": 1})


def test_a_round_without_any_usable_gradient_ends_the_training(run):
    for actor in (0, 1):
        push_gradient(run, actor, 0, value=np.nan)
    with pytest.raises(NonFiniteError, match="no gradient of version 1 could be used: nonfinite"):
        gradient_feed(run, rounds=2).collect()
    assert run.dropped == {"nonfinite": 2}


def test_one_gradient_after_the_other_that_is_not_finite_ends_the_training(run):
    for sequence in range(REFUSED_GRADIENTS):
        push_gradient(run, sequence % 2, sequence // 2, value=np.inf)
    with pytest.raises(NonFiniteError, match=r"^16 gradients one after the other are not finite \(version 1\)$"):
        gradient_feed(run).collect()
    assert run.dropped == {"nonfinite": REFUSED_GRADIENTS}


def test_a_usable_gradient_in_between_lets_it_go_on(run):
    for sequence in range(2 * REFUSED_GRADIENTS):
        push_gradient(run, 0, sequence, value=1.0 if sequence % 8 == 7 else np.nan)
    feed = gradient_feed(run)
    assert [values(feed.collect()) for _ in range(4)] == [[1.0]] * 4


# --------------------------------------------------------------------------------------------- into a replay memory


def test_unrolls_for_a_replay_memory_come_one_by_one_as_they_travelled(run):
    """And as old as they are against the newest version: taking them in makes no new one."""
    newest = [3]
    feed = run.feed(newest_version=lambda: newest[0])
    run.push(0, 0, version=2, tag=10, episode_returns=(1.5,))
    run.push(0, 1, version=2, tag=20)
    first = feed.collect()
    assert [unroll.rewards[0, 0] for unroll in first.unrolls] == [10]
    assert (first.receipt.env_steps, first.receipt.episode_returns) == (STEPS, [1.5])
    newest[0] = 7
    run.push(0, 2, version=7)
    second = feed.collect()
    assert [unroll.rewards[0, 0] for unroll in second.unrolls] == [20]
    assert second.receipt.highest == {(0, 1): 1}
    assert [unroll.header.weights_version for unroll in feed.collect().unrolls] == [7]  # not one of the future
    assert run.ledger.in_flight == 3


# ------------------------------------------------------------------------------------------------ what kills learners


class Death(BaseException):
    """Stands for the end of the learner's process: nothing below it runs."""


@pytest.fixture
def deadly(monkeypatch):
    """Decoding the payloads in it kills the learner."""
    payloads, decode = set(), intake_module.decode_unroll

    def die_of(header, payload, schema, layouts):
        if payload in payloads:
            raise Death
        return decode(header, payload, schema, layouts)

    monkeypatch.setattr(intake_module, "decode_unroll", die_of)
    return payloads


def test_an_unroll_that_three_learners_died_of_is_dropped_and_the_stream_goes_on(run, unroll, deadly):
    deadly.add(encode_unroll(unroll(0, 1, tag=1)))
    for sequence in range(3):
        run.push(0, sequence)
    first = run.feed()
    run.use(first.collect())
    for feed in (first, run.feed(applied={SOURCE: 0}), run.feed(applied={SOURCE: 0})):
        assert run.dropped == {}
        with pytest.raises(Death):
            feed.collect()
    feed = run.feed(applied={SOURCE: 0})
    made = feed.collect()
    assert tags(made) == [2]
    assert (run.dropped, run.dead) == ({"poison": 1}, ["poison"])
    run.use(made)
    assert feed.collect() is None
    assert run.ledger.lost == 0
    assert not run.backend.engine.call("HGETALL", run.backend._run.keys.suspects)


def test_a_forged_one_is_foreign_as_well(run, unroll, deadly):
    deadly.add(encode_unroll(unroll(0, 0)))
    run.forge(entry_fields(UnrollHeader(9, 1, 0, 1, STEPS), next(iter(deadly))))
    for _ in range(3):
        with pytest.raises(Death):
            run.feed().collect()
    assert run.feed().collect() is None
    assert (run.ledger.foreign, run.dropped, run.ledger.in_flight) == (1, {"poison": 1}, 0)


def test_learners_that_die_of_something_else_leave_no_suspicion(run):
    """However often they are killed with it in their hands: it had been decoded."""
    run.push(0, 0)
    for _ in range(10):
        assert tags(run.feed().collect()) == [0]
        assert not run.backend.engine.call("HGETALL", run.backend._run.keys.suspects)
    assert run.dropped == {}


def test_an_entry_whose_settlement_only_the_old_master_has_is_dropped_as_a_duplicate(run):
    """The connection that takes entries finds the new master first, and the one that settles them later."""
    run.push(0, 0)
    feed = run.feed()
    made = feed.collect()
    replica = replica_of(run.backend)
    run.backend.engine.interruptions += 1
    assert feed.collect() is None  # the entry is in progress
    run.use(made)
    promote(replica, [run.backend])
    run.backend.engine.interruptions -= 1  # the intake does not notice
    assert run.ledger.in_flight == 1
    assert feed.collect() is None
    assert (run.ledger.in_flight, run.dropped) == (0, {"duplicate": 1})


def test_an_actor_that_redis_has_forgotten_is_registered_at_its_first_unroll(run):
    feed = run.feed()
    run.push(7, 0)
    (receipt,) = feed.collect().receipts
    receipt.settle()
    assert run.ledger.trained == 1
    assert run.backend.registry.register_actor(7) == 2


def test_no_other_process_gets_the_incarnation_of_an_actor_that_redis_has_forgotten(run):
    replica = replica_of(run.backend)
    feed = run.feed()
    assert run.backend.registry.register_actor(0) == 2
    run.push(0, 0, incarnation=2)
    feed.collect()
    promote(replica, [run.backend])
    feed.collect()
    assert run.backend.registry.register_actor(0) == 3
