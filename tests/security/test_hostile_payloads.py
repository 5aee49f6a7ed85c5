"""Whatever bytes arrive as an unroll or a gradient: none runs code, none ends the learner, and each is counted once."""

import hashlib
import json
import tracemalloc
import uuid
from collections import Counter

import msgpack
import numpy as np
import pytest

from distrl import wire
from distrl.errors import DecodeError, RejectedError
from distrl.learner.batches import StreamBatches
from distrl.learner.intake import Intake
from distrl.learner.publisher import StalenessBound, Tickets
from distrl.memory_backend.backend import connect
from distrl.memory_backend.codec import decode_weights
from distrl.memory_backend.inbox import Inbox
from distrl.memory_backend.keys import RunKeys, entry_fields
from distrl.memory_backend.stream import DEAD_ENTRIES, DEAD_PAYLOAD_BYTES, QueueCaps
from distrl.types import UnrollHeader
from tests.forging import forge

CAPS = QueueCaps(10_000, 2**30)
MB = 2**20
MOST_GROWTH_MB = 64
"""While one payload, of 2 MB at most, is decoded, and kept after all of them; 65,536 elements are about 8 MB."""
MOST_TRACED_MB = 16
"""Allocated at once for one payload, beyond eight times its bytes."""


@pytest.mark.slow
@pytest.mark.row("D61")
@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.endurance)])
@pytest.mark.timeout(3_000)
def test_no_payload_runs_code_ends_the_decoder_or_takes_memory(watched, generator, measured, count):
    told = watched("decode_hostile.py", count, 0)
    assert (told["noticed"], told["sprung"]) == ([], None)
    assert told["crashes"] == []
    assert told["passed"] == []  # what is handed on is an unroll or a gradient in every respect
    outcomes = {family: Counter(counts) for family, counts in told["outcomes"].items()}
    assert outcomes.keys() == generator.FAMILIES.keys()
    assert sum(counts.total() for counts in outcomes.values()) == count
    assert outcomes.pop(generator.GENUINE).keys() == {"valid"}
    assert sum(outcomes.values(), Counter()).keys() == {"valid", "decode", "schema", "nonfinite"}
    for family in ("pickle", "object dtype", "structured dtype", "zero itemsize", "shape overflow", "negative shape"):
        assert not outcomes[family]["valid"], family
    assert told["traced"] > len(generator.FAMILIES)
    assert told["most_traced_mb"] <= MOST_TRACED_MB
    assert max(told["peak_growth_mb"], told["kept_mb"]) <= MOST_GROWTH_MB
    slowest = max(told["slowest_ms"], key=told["slowest_ms"].get)
    print(f"slowest: {slowest}, {told['slowest_ms'][slowest]:.1f} ms; median {told['median_us']:.0f} µs")
    if count >= 100_000:
        measured(
            row=9,
            payloads=count,
            families=len(told["outcomes"]),
            slowest_ms=told["slowest_ms"][slowest],
            median_us=told["median_us"],
            longer_than_50ms=told["over_50_ms"],
            peak_growth_mb=told["peak_growth_mb"],
            kept_mb=told["kept_mb"],
            process_growth_mb=told["process_growth_mb"],
            executions=len(told["noticed"]),
        )


def test_the_hook_notices_what_the_librarys_own_decoder_runs(watched):
    """The pickles are real, and a watch that notices nothing would notice nothing of ours either."""
    told = watched("decode_hostile.py", "--unpickle", 0)
    assert told["sprung"] == "1"
    noticed = {event.split()[0] for event in told["noticed"]}
    assert {"pickle.find_class", "exec", "os.putenv"} <= noticed


def test_what_is_too_long_is_refused_before_anything_is_read_of_it(generator):
    target = generator.targets()["unroll"]

    class Endless(bytes):
        """Has a length, and nothing that could be read."""

        def __len__(self):
            return 512 * MB

    with pytest.raises(DecodeError, match=f"{512 * MB} bytes exceed the limit of {wire.MAX_BYTES} bytes"):
        target.decode(Endless())


@pytest.mark.endurance
@pytest.mark.parametrize(("size", "most_mb"), [(512 * MB, 1), (wire.MAX_BYTES, 300)])
def test_the_longest_payloads_take_no_more_than_one_copy(watched, size, most_mb):
    told = watched("decode_hostile.py", "--one-of", size)
    assert told["outcome"] == ("decode" if size > wire.MAX_BYTES else "schema")
    assert told["peak_growth_mb"] <= most_mb


@pytest.mark.parametrize(
    "payload",
    [
        (b"\xdd\x00\x01\x00\x00") * 1000,
        (b"\xdd\x00\x00\xff\xff" + b"\x01" * 2000) * 1000,
        (b"\xdf\x00\x00\xff\xff" + b"\xa0\x01" * 2000 + b"\xa0") * 500,
        msgpack.packb({b"nd": True, b"type": bytes(2 * MB), b"kind": b"", b"shape": [1], b"data": b""}),
        msgpack.packb({b"nd": True, b"type": "<f4", b"kind": bytes(2 * MB), b"shape": [1], b"data": b""}),
        msgpack.packb({b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [bytes(2 * MB)], b"data": b""}),
        msgpack.packb({b"nd": True, bytes(2 * MB): 1}),
        msgpack.packb({bytes(2 * MB): 1}),
    ],
    ids=["heads", "lists", "maps", "dtype", "kind", "shape", "array's key", "key"],
)
def test_few_bytes_do_not_become_many(payload):
    """Containers that never end were counted when they ended, and long values were written out for a message."""
    tracemalloc.start()
    with pytest.raises(DecodeError):
        wire.unpack(payload)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    containers = 12 * MB if payload[0] >= 0xDC else MB
    assert peak < 3 * len(payload) + containers


def test_long_containers_that_are_not_nested_are_still_decoded():
    flat = [float(number) for number in range(21_168)]
    assert wire.unpack(msgpack.packb({"observation": flat, "more": [[flat[:600]]]})) == {
        "observation": tuple(flat),
        "more": ((tuple(flat[:600]),),),
    }
    deep = msgpack.packb([0] * 600)
    for _ in range(15):
        deep = b"\x92\xc6\x00\x00\x00\x03\xdd\xff\xff" + deep  # bytes that look like heads
    assert wire.unpack(deep)
    with pytest.raises(DecodeError, match="nested too deeply"):
        wire.unpack(b"\x91" + deep)
    arrays = [msgpack.unpackb(wire.pack(value)) for value in (np.zeros((2, 3)), np.float32(1))]
    long = msgpack.packb({"a": {"b": [arrays] * 200}, "text": "x" * 300, "numbers": [1.5, -200, 2**40] * 300})
    assert len(wire.unpack(long)["a"]["b"]) == 200


def test_what_is_remembered_of_payloads_is_small(generator):
    """Schemas live as long as the learner: what was decoded once, and refused, must not stay."""
    target = generator.targets()["unroll"]
    tracemalloc.start()
    for count in range(13_000, 12_984, -1):  # each of another length
        with pytest.raises(RejectedError):
            target.decode(b"\xdc" + count.to_bytes(2, "big") + b"\x81\xa0\x80" * count)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 8 * MB


def test_keys_of_payloads_are_not_remembered(generator):
    """Foreign trees are encoded once more, to see whether others like them may come, and their keys with them."""
    target = generator.targets()["unroll"]
    tracemalloc.start()
    for number in range(20):
        with pytest.raises(RejectedError):
            target.decode(msgpack.packb({f"{number:1000000}": 1}))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 8 * MB


@pytest.mark.parametrize("dtype", [np.arange(3), np.zeros((2, 2)), {"a": 1}, b"float16", 1.5, None])
def test_weights_with_a_dtype_that_is_no_text_are_a_decode_error(dtype):
    """An array compared with text is an array, whose truth is a ValueError: actors would have died of it."""
    with pytest.raises(DecodeError):
        decode_weights(wire.pack({"version": 1, "arrays": {"a": np.zeros(3)}, "halves": {"a": dtype}}))


# ------------------------------------------------------------------------------------------------- what is counted


class Learner:
    """A feed on a backend, and what its ledger says."""

    def __init__(self, backend, schema):
        self.backend = backend
        self.learner = backend.become_learner()
        self.actor = (0, backend.registry.register_actor(0))
        tickets = Tickets(self.learner, StalenessBound(None))
        intake = Intake(
            Inbox(self.learner, 1, 0.0),
            self.learner,
            schema,
            tickets,
            staleness=StalenessBound(None),
            applied={},
            version=1,
        )
        self.feed = StreamBatches(intake, 1, lambda: True)

    def use_all(self):
        """Trains on whatever there is; how many unrolls that were."""
        used = 0
        while (made := self.feed.collect()) is not None:
            (receipt,) = made.receipts
            receipt.settle()
            used += len(receipt.entries)
        return used

    def counts(self):
        counts = self.backend.ledger.counts()
        assert (counts.imbalance, counts.queued, counts.in_flight, counts.stream_bytes) == (0, 0, 0, 0)
        fates = {f"dropped.{reason}": count for reason, count in counts.dropped.items()}
        return Counter({"trained": counts.trained, "lost": counts.lost, **fates}), counts.foreign


def test_every_payload_is_counted_once_with_its_reason(generator):
    """Half of them by an actor of the run, half by strangers; each one alone, so that its counter can be seen."""
    targets, learners = generator.targets(), {}
    for name, target in targets.items():
        backend = connect("local:", f"hostile-{len(learners)}", CAPS, name="test", give_up_s=1.0)
        backend.create("{}")
        learners[name] = Learner(backend, target.schema)
    sequences, fates = Counter(), Counter()
    counted = {name: learner.counts() for name, learner in learners.items()}
    for index, hostile in enumerate(generator.payloads(40 * len(generator.FAMILIES), 7)):
        target, learner = targets[hostile.target], learners[hostile.target]
        foreign = index // len(generator.FAMILIES) % 2 == 1
        if foreign:
            header = UnrollHeader(99, 1, index, 1, target.header.env_steps)
            forge(learner.backend, entry_fields(header, hostile.payload))
        else:
            header = UnrollHeader(*learner.actor, sequences[hostile.target], 1, target.header.env_steps)
            learner.backend.unrolls.push(header, hostile.payload)
            sequences[hostile.target] += 1
        before, strangers = counted[hostile.target]
        used = learner.use_all()
        after, strangers_after = counted[hostile.target] = learner.counts()
        (fate,) = (after - before).elements()  # exactly one counter, by one
        assert (used, strangers_after - strangers) == (int(fate == "trained"), int(foreign)), hostile.family
        assert not (foreign and used)
        fates[hostile.family == generator.GENUINE, foreign, fate] += 1
    assert {fate for _, _, fate in fates} == {"trained", "dropped.decode", "dropped.schema", "dropped.nonfinite"}
    assert {(foreign, fate) for genuine, foreign, fate in fates if genuine} == {
        (False, "trained"),
        (True, "dropped.schema"),  # whole, and of no actor of the run
    }


@pytest.mark.redis
@pytest.mark.row("D61")
def test_strangers_in_a_real_stream_are_counted_kept_and_do_not_stop_the_next_unroll(generator, redis_url):
    target = generator.targets()["unroll"]
    run_id = f"hostile-{uuid.uuid4().hex[:8]}"
    backend = connect(redis_url, run_id, CAPS, name="test 0", give_up_s=5.0)
    try:
        backend.create(json.dumps({}))
        learner = Learner(backend, target.schema)
        keys, client = RunKeys(run_id), backend.engine
        pushed = []
        for index, hostile in enumerate(generator.payloads(DEAD_ENTRIES + 20, 3)):
            fields = entry_fields(UnrollHeader(99, 1, index, 1, target.header.env_steps), hostile.payload)
            if index % 10 == 0:
                del fields[b"steps"]  # not even a header
            client.call("XADD", keys.unrolls, "*", *(part for field in fields.items() for part in field))
            pushed.append(hostile.payload)
        header = UnrollHeader(*learner.actor, 0, 1, target.header.env_steps)
        backend.unrolls.push(header, target.genuine[0])
        assert backend.ledger.counts().imbalance == 0  # before they are judged
        assert learner.use_all() == 1
        fates, foreign = learner.counts()
        assert (foreign, fates["trained"], fates.total() - 1) == (len(pushed), 1, len(pushed))
        dead = [fields for _, fields in client.call("XRANGE", keys.dead, "-", "+")]
        assert [entry[b"sha256"].decode() for entry in dead] == [
            hashlib.sha256(payload).hexdigest() for payload in pushed[-DEAD_ENTRIES:]
        ]
        assert [entry[b"payload"] for entry in dead] == [
            payload[:DEAD_PAYLOAD_BYTES] for payload in pushed[-DEAD_ENTRIES:]
        ]
        assert client.call("XLEN", keys.unrolls) == 0
    finally:
        backend.delete()
        backend.close()
