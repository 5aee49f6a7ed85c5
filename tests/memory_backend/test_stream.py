"""stream: admission, order, acknowledgement after use, fencing, rejection; on every backend."""

import hashlib
import threading

import pytest
import redis

from distrl.config.schedules import Progress
from distrl.errors import FencedError
from distrl.memory_backend.ledger import DROP_REASONS, EntryOutcome
from distrl.memory_backend.stream import QueueCaps, has_room
from distrl.types import UnrollHeader


def header(sequence, actor=0, incarnation=1, version=1):
    return UnrollHeader(actor, incarnation, sequence, version, 64)


def push(backend, *sequences, payload=b"x" * 10):
    return [backend.unrolls.push(header(sequence), payload) for sequence in sequences][-1]


def sequences(entries):
    return [entry.header.sequence for entry in entries]


def balanced(backend):
    counts = backend.ledger.counts()
    assert counts.imbalance == 0
    return counts


@pytest.mark.row("D60")
def test_entries_come_out_whole_and_in_order(backend):
    payload = bytes(range(256)) * 300
    backend.unrolls.push(UnrollHeader(3, 2, 7, 11, 2048), payload)
    push(backend, 0, 1)
    first, *others = backend.unrolls.take(10, 0.0)
    assert (first.header, first.payload) == (UnrollHeader(3, 2, 7, 11, 2048), payload)
    assert sequences(others) == [0, 1]
    assert backend.unrolls.take(10, 0.0) == []


def test_take_gives_at_most_what_is_asked_for(backend):
    push(backend, 0, 1, 2)
    assert sequences(backend.unrolls.take(2, 0.0)) == [0, 1]
    assert sequences(backend.unrolls.take(2, 0.0)) == [2]


def test_take_waits_for_an_entry(run):
    learner, actor = run.backend, run.connect()
    timer = threading.Timer(0.05, lambda: actor.unrolls.push(header(0), b"late"))
    timer.start()
    (entry,) = learner.unrolls.take(1, 30.0)
    timer.join()
    assert entry.payload == b"late"


def test_take_gives_up_after_its_time(backend):
    assert backend.unrolls.take(1, 0.01) == []


def test_a_push_is_held_until_it_is_acknowledged(backend):
    learner = backend.become_learner()
    assert not backend.unrolls.holds_newest_push()  # there is none
    push(backend, 0, 1)
    assert backend.unrolls.holds_newest_push()  # queued
    entries = backend.unrolls.take(8, 0.0)
    assert backend.unrolls.holds_newest_push()  # in flight
    learner.unrolls.settle(entries[:1], EntryOutcome.TRAINED)
    assert backend.unrolls.holds_newest_push()
    learner.unrolls.settle([entries[1]], EntryOutcome.SCHEMA)
    assert not backend.unrolls.holds_newest_push()


def test_admission_closes_at_the_cap_of_entries_and_opens_with_the_acknowledgement(backend):
    learner = backend.become_learner()
    assert push(backend, *range(7)).has_room
    assert not push(backend, 7).has_room
    entries = backend.unrolls.take(8, 0.0)
    assert not backend.unrolls.admission().has_room  # taken is not yet used
    learner.unrolls.settle(entries[:1], EntryOutcome.TRAINED)
    assert backend.unrolls.admission().has_room


@pytest.mark.parametrize("how", ["trained", "rejected"])
def test_an_actor_that_waits_is_woken_when_the_learner_removes_an_entry(run, how):
    learner, actor, found = run.backend, run.connect(), []
    learner = learner.become_learner()
    push(learner, *range(8))
    entries = learner.unrolls.take(8, 0.0)
    forever = threading.Thread(target=lambda: found.append(actor.unrolls.admission(10.0**5)))
    forever.start()
    if how == "trained":
        learner.unrolls.settle(entries[:1], EntryOutcome.TRAINED)
    else:
        learner.unrolls.settle([entries[0]], EntryOutcome.SCHEMA)
    forever.join(60.0)
    assert found
    assert found[0].has_room
    assert actor.unrolls.interruptions == 0  # a connection that stays silent is given up after a few seconds


def test_an_actor_that_waits_in_vain_looks_again(backend):
    push(backend, *range(8))
    assert not backend.unrolls.admission(0.05).has_room


def test_tokens_for_actors_that_wait_do_not_pile_up(run):
    backend, keys = run.backend, run.backend._run.keys
    learner = backend.become_learner()
    push(backend, *range(9))
    entries = backend.unrolls.take(9, 0.0)
    for first, last, tokens in ((0, 1, 1), (1, 4, 3), (4, 8, 4), (8, 9, 4)):
        learner.unrolls.settle(entries[first:last], EntryOutcome.TRAINED)
        assert len(tokens_in(backend, keys)) == tokens
    learner.unrolls.count_lost(header(9), 1, to_failover=False)
    assert len(tokens_in(backend, keys)) == 4
    for left in (3, 2, 1, 0, 0):
        backend.unrolls.admission(0.05)
        assert len(tokens_in(backend, keys)) == left


def tokens_in(backend, keys):
    return backend.engine.call("ZRANGE", keys.room, 0, -1, "WITHSCORES")[::2]


def test_admission_closes_at_the_cap_of_bytes(backend):
    learner = backend.become_learner()
    assert push(backend, 0, payload=b"x" * 999).has_room
    assert not push(backend, 1, payload=b"x").has_room
    entries = backend.unrolls.take(2, 0.0)
    learner.unrolls.settle(entries[1:], EntryOutcome.TRAINED)
    assert backend.unrolls.admission().has_room
    assert balanced(backend).stream_bytes == 999


@pytest.mark.parametrize(
    ("entries", "stream_bytes", "room"),
    [(0, 0, True), (1, 99, True), (1, 100, False), (2, 0, False), (0, 100, True), (1, -5, True)],
)
def test_room(entries, stream_bytes, room):
    assert has_room(QueueCaps(entries=2, bytes=100), entries, stream_bytes) is room


@pytest.mark.parametrize(("entries", "room"), [(0, True), (3, True), (4, False), (8, False)])
def test_there_is_always_room_for_a_batch_however_large_its_entries_are(entries, room):
    """Otherwise actors and learner would wait for each other."""
    assert has_room(QueueCaps(entries=8, bytes=100, batch=4), entries, 10**9) is room


def test_admission_tells_version_pause_and_stop(backend):
    learner = backend.become_learner()
    first = backend.unrolls.admission()
    assert (first.has_room, first.weights_version, first.paused, first.stop) == (True, 0, False, False)
    learner.weights.publish(5, b"w", Progress())
    backend.registry.set_control(paused=True)
    assert backend.unrolls.admission().weights_version == 5
    assert backend.unrolls.admission().paused
    backend.registry.set_control(paused=False, stop="solved")
    pushed = push(backend, 0)
    assert (pushed.weights_version, pushed.paused, pushed.stop) == (5, False, True)
    assert backend.unrolls.admission() == pushed


def test_a_successor_takes_first_what_was_not_acknowledged(run):
    first = run.backend
    push(first, 0, 1, 2, 3)
    taken = first.unrolls.take(3, 0.0)
    first.become_learner().unrolls.settle(taken[1:2], EntryOutcome.TRAINED)

    second = run.connect()
    (oldest,) = second.unrolls.unacknowledged("0", 1)
    assert oldest == taken[0]
    assert second.unrolls.unacknowledged(oldest.entry_id, 10) == [taken[2]]
    assert second.unrolls.unacknowledged(taken[2].entry_id, 10) == []
    assert sequences(second.unrolls.take(10, 0.0)) == [3]
    counts = balanced(second)
    assert (counts.queued, counts.in_flight, counts.trained) == (0, 3, 1)


def test_highest_sequences_never_go_back(backend):
    learner = backend.become_learner()
    learner.unrolls.raise_highest({(0, 1): 7, (0, 2): 0, (12, 1): 3})
    learner.unrolls.raise_highest({(0, 1): 5, (12, 1): 4})
    assert backend.unrolls.highest() == {(0, 1): 7, (0, 2): 0, (12, 1): 4}


def test_an_old_fence_changes_nothing(backend):
    old = backend.become_learner()
    new = backend.become_learner()
    assert new.fence > old.fence
    push(backend, 0)
    entries = backend.unrolls.take(1, 0.0)
    before = backend.ledger.counts()
    with pytest.raises(FencedError, match=f"token {new.fence.number}, ours {old.fence.number}"):
        old.unrolls.settle(entries, EntryOutcome.TRAINED)
    with pytest.raises(FencedError):
        old.unrolls.settle([entries[0]], EntryOutcome.DECODE)
    assert backend.ledger.counts() == before
    assert backend.unrolls.highest() == {}
    assert backend.unrolls.unacknowledged("0", 1) == entries
    new.unrolls.settle(entries, EntryOutcome.TRAINED)
    assert balanced(backend).trained == 1


BAD_NUMBERS = [b"-1", b"+1", b" 1", b"1.0", b"0x1", b"", b"9" * 19, b"9" * 5000, "٣".encode(), b"1_0", b"nan"]


@pytest.mark.parametrize("name", ["actor", "incarnation", "sequence", "version", "steps"])
def test_a_header_that_is_not_five_numbers_is_none(run, name):
    good = {b"actor": b"1", b"incarnation": b"2", b"sequence": b"3", b"version": b"4", b"steps": b"5", b"payload": b"p"}
    for bad in BAD_NUMBERS:
        run.forge({**good, name.encode(): bad})
    run.forge({key: value for key, value in good.items() if key != name.encode()})
    run.forge(good)
    *bad_ones, last = run.backend.unrolls.take(100, 0.0)
    assert [entry.header for entry in bad_ones] == [None] * (len(BAD_NUMBERS) + 1)
    assert {entry.payload for entry in bad_ones} == {b"p"}
    assert last.header == UnrollHeader(1, 2, 3, 4, 5)


def test_an_entry_without_payload_has_an_empty_one(run):
    run.forge({b"actor": b"1"})
    (entry,) = run.backend.unrolls.take(1, 0.0)
    assert (entry.header, entry.payload) == (None, b"")


def test_foreign_entries_give_back_no_bytes(run):
    backend = run.backend
    backend.registry.register("evaluator")  # no producer, among the incarnations of those who are
    learner = backend.become_learner()
    assert backend.registry.register_actor(0) == 1
    push(backend, 0, payload=b"x" * 30)
    run.forge({b"payload": b"y" * 500})
    run.forge(
        {b"actor": b"9", b"incarnation": b"1", b"sequence": b"0", b"version": b"0", b"steps": b"1", b"payload": b"z"}
    )
    push(backend, 1, payload=b"x" * 4)
    entries = backend.unrolls.take(10, 0.0)
    learner.unrolls.settle(entries[:1], EntryOutcome.TRAINED)
    learner.unrolls.settle(entries[1:3], EntryOutcome.SCHEMA, foreign=True)
    counts = balanced(backend)
    assert (counts.foreign, counts.produced, counts.stream_bytes, counts.pushed_bytes) == (2, 2, 4, 34)
    learner.unrolls.settle(entries[3:], EntryOutcome.TRAINED)
    assert balanced(backend).stream_bytes == 0


def test_an_empty_stream_has_room_whatever_a_forger_did_to_the_count(run):
    backend = run.backend
    learner = backend.become_learner()
    push(backend, 0, payload=b"x" * 2000)
    (entry,) = backend.unrolls.take(1, 0.0)
    assert not backend.unrolls.admission().has_room
    learner.unrolls.settle([entry], EntryOutcome.SCHEMA, foreign=True)  # miscounted: the bytes stay
    assert backend.ledger.counts().stream_bytes == 2000
    assert backend.unrolls.admission().has_room


@pytest.mark.row("D61", "T05")
def test_a_rejected_payload_is_kept_in_part_and_counted(run):
    backend = run.backend
    learner = backend.become_learner()
    payload = bytes(range(256)) * 300  # 76,800 bytes
    backend.unrolls.push(header(4), payload)
    run.forge({b"payload": b"junk"})
    mine, foreign = backend.unrolls.take(2, 0.0)
    learner.unrolls.settle([mine], EntryOutcome.NONFINITE)
    learner.unrolls.settle([foreign], EntryOutcome.DECODE, foreign=True)
    first, second = run.dead()
    assert first == {
        "reason": b"nonfinite",
        "sha256": hashlib.sha256(payload).hexdigest().encode(),
        "bytes": b"76800",
        "payload": payload[:65_536],
        "actor": b"0",
        "incarnation": b"1",
        "sequence": b"4",
        "version": b"1",
        "steps": b"64",
    }
    assert second["payload"] == b"junk"
    assert "actor" not in second
    counts = balanced(backend)
    assert counts.dropped == {**dict.fromkeys(DROP_REASONS, 0), "nonfinite": 1, "decode": 1}
    assert (counts.foreign, counts.in_flight, counts.stream_bytes) == (1, 0, 0)


def test_only_100_rejected_payloads_are_kept(run):
    backend = run.backend
    learner = backend.become_learner()
    push(backend, *range(103))
    for entry in backend.unrolls.take(103, 0.0):
        learner.unrolls.settle([entry], EntryOutcome.SCHEMA)
    kept = run.dead()
    assert [int(fields["sequence"]) for fields in kept] == list(range(3, 103))
    assert balanced(backend).dropped["schema"] == 103


@pytest.mark.row("D61", "T05")
def test_10000_unrolls_are_used_once_each_while_learners_come_and_go(run):
    producer, total, burst = run.connect(QueueCaps(entries=10**6, bytes=10**9)), 10_000, 1000
    used, pushed = [], 0
    while len(used) < total:
        learner, after = run.connect().become_learner(), "0"
        while left := learner.unrolls.unacknowledged(after, 1):
            learner.unrolls.settle(left, EntryOutcome.TRAINED)
            used += sequences(left)
            after = left[0].entry_id
        for _ in range(burst if pushed < total else 0):
            producer.unrolls.push(header(pushed), b"%d" % pushed)
            pushed += 1
        for _ in range(12):
            batch = learner.unrolls.take(64, 0.0)
            learner.unrolls.settle(batch, EntryOutcome.TRAINED)
            used += sequences(batch)
        learner.unrolls.take(30, 0.0)  # and dies with these in its hands
    assert used == list(range(total))
    counts = balanced(run.backend)
    assert (counts.produced, counts.trained, counts.stream_bytes) == (total, total, 0)
    assert run.backend.unrolls.highest() == {(0, 1): total - 1}


def test_a_forged_copy_of_a_true_header_is_foreign_although_the_learner_cannot_tell(run):
    backend = run.backend
    learner = backend.become_learner()
    backend.registry.register_actor(0)
    push(backend, 0, payload=b"true")
    fields = {b"actor": b"0", b"incarnation": b"1", b"sequence": b"0", b"version": b"1", b"steps": b"64"}
    run.forge({**fields, b"payload": b"forged"})
    assert balanced(backend).foreign == 1
    true, forged = backend.unrolls.take(2, 0.0)
    assert forged.header == true.header
    learner.unrolls.settle([forged], EntryOutcome.DUPLICATE)
    assert balanced(backend).foreign == 1
    learner.unrolls.settle([true], EntryOutcome.TRAINED)
    assert balanced(backend).foreign == 1
    assert backend.unrolls.admission().has_room


@pytest.mark.row("J04")
def test_three_in_the_same_three_out_once_and_a_full_stream_holds_producers_back(backend):
    """Eight fit. Who is not let in is not counted as produced: the fill of the queue is what shows it."""
    learner = backend.become_learner()
    push(backend, 0, 1, 2)
    entries = backend.unrolls.take(8, 0.0)
    assert [entry.header.sequence for entry in entries] == [0, 1, 2]
    assert backend.unrolls.take(8, 0.0) == []
    learner.unrolls.settle(entries, EntryOutcome.TRAINED)
    assert not push(backend, *range(3, 11)).has_room
    counts = backend.ledger.counts()
    assert (counts.produced, counts.trained, counts.queued, counts.in_flight) == (11, 3, 8, 0)
    assert [entry.header.sequence for entry in backend.unrolls.take(8, 0.0)] == [*range(3, 11)]


def test_suspicions_are_counted_until_they_are_absolved(run):
    learner, successor = run.backend, run.connect()
    assert [learner.unrolls.suspect("5-0"), successor.unrolls.suspect("5-0"), successor.unrolls.suspect("6-0")] == [
        1,
        2,
        1,
    ]
    successor.unrolls.absolve("5-0")
    successor.unrolls.absolve("7-0")  # it was not suspected
    assert [successor.unrolls.suspect("5-0"), successor.unrolls.suspect("6-0")] == [1, 2]


# ----------------------------------------------------------------------------- Redis alone: what it has forgotten


def forget(backend, *entry_ids):
    """As a Redis that came back without its last second: the pushes, and what was counted with them."""
    client, keys = backend.engine, backend._run.keys
    for entry_id in entry_ids:
        client.call("XDEL", keys.unrolls, entry_id)
        client.call("XACK", keys.unrolls, "learner", entry_id)
        for name, size in (("produced", 1), ("pushed_bytes", 10), ("stream_entries", 1), ("stream_bytes", 10)):
            client.call("HINCRBY", keys.ledger, name, -size)


@pytest.mark.redis
@pytest.mark.parametrize("when", ["before", "on the way"])
def test_what_redis_forgot_while_it_was_in_hand_is_counted_once_more_when_it_is_settled(redis_run, monkeypatch, when):
    backend, learner = redis_run.backend, redis_run.backend.become_learner()
    push(backend, 0, 1, 2)
    first, second, third = backend.unrolls.take(3, 0.0)

    def come_back():
        forget(backend, first.entry_id, third.entry_id)
        backend.engine.interruptions += 1

    exactly_once = backend.engine.exactly_once

    def interrupted(guard, prepare, what, **options):
        def late(token, replies):
            if backend.engine.interruptions == 0:
                come_back()
            return prepare(token, replies)

        exactly_once(guard, late, what, **options)

    if when == "before":
        come_back()
    else:
        monkeypatch.setattr(backend.engine, "exactly_once", interrupted)
    learner.unrolls.settle([first, second], EntryOutcome.TRAINED)
    counts = balanced(backend)
    assert (counts.produced, counts.trained, counts.foreign, counts.stream_bytes) == (2, 2, 0, 0)
    learner.unrolls.settle([third], EntryOutcome.DECODE)
    counts = balanced(backend)
    assert (counts.produced, counts.dropped["decode"], counts.foreign, counts.stream_bytes) == (3, 1, 0, 0)


@pytest.mark.redis
def test_what_distrl_has_not_written_into_the_highest_sequences_is_passed_over(redis_run):
    backend, keys = redis_run.backend, redis_run.backend._run.keys
    learner = backend.become_learner()
    learner.unrolls.raise_highest({(0, 1): 7})
    with redis.Redis.from_url(redis_run.url) as client:
        client.zadd(keys.highest, {"x": 1, "0": 2, "1.-1": 3, b"\xff.1": 4, "2.1": float("inf"), "3.1": -5})
        client.hset(keys.incarnations, mapping={"0": "first", "x": "1"})
        client.hset(keys.suspects, "1-1", "often")
    assert backend.unrolls.highest() == {(0, 1): 7}
    assert not backend.registry.is_registered((0, 1))
    assert backend.unrolls.suspect("1-1") == 1


def test_entries_that_no_actor_counted_are_told_apart(run):
    backend, learner = run.backend, run.backend.become_learner()
    push(backend, 0, 1)
    assert backend.unrolls.uncounted() == 0
    run.forge({b"payload": b"x"})
    assert backend.unrolls.uncounted() == 1
    entries = backend.unrolls.take(3, 0.0)
    learner.unrolls.settle(entries[:2], EntryOutcome.TRAINED)
    assert backend.unrolls.uncounted() == 1
    learner.unrolls.settle([entries[2]], EntryOutcome.SCHEMA, foreign=True)
    assert backend.unrolls.uncounted() == 0
