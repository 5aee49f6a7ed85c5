import pytest

from benchmarks import broadcast
from benchmarks.broadcast import Arrival, arrival, latencies
from distrl.errors import DistrlError
from distrl.memory_backend.backend import connect
from distrl.memory_backend.stream import Entry, QueueCaps
from distrl.types import UnrollHeader

WHERE = {"commit": "abc1234", "date": "2026-01-02", "machine": "2 cores (X)", "load_before": 0.1}


def test_weights_are_in_use_a_second_before_their_first_unroll_arrives():
    arrivals = [Arrival(0, 1, 10.0), Arrival(1, 1, 10.4), Arrival(0, 2, 11.5), Arrival(1, 3, 12.7), Arrival(0, 3, 13.0)]
    # Version 2 at 10.3: actor 0 acts with it from 10.5 on; actor 1 goes on to 3, from 11.7 on.
    assert latencies(arrivals, {2: 10.3}, 2) == pytest.approx([0.2, 1.4])
    assert latencies(arrivals, {2: 10.3, 3: 11.9}, 2) == pytest.approx([0.2, 1.4, 0.1, 0.0])


def test_an_entry_tells_whose_it_is_and_when_it_came():
    entry = Entry("1700000000250-3", UnrollHeader(7, 1, 0, 4, 20), b"")
    assert arrival(entry) == Arrival(7, 4, 1700000000.25)


def test_the_drain_takes_everything_and_waits_for_every_actor():
    backend = connect("local:", "r", QueueCaps(100, 2**20), name="test", give_up_s=1.0)
    backend.create("{}")
    learner = backend.become_learner()
    drain = broadcast.Drain(learner)
    drain.start()
    for actor in range(2):
        backend.unrolls.push(UnrollHeader(actor, 1, 0, 3, 20), b"x")
    drain.await_version(3, 2, 20.0)
    with pytest.raises(DistrlError, match=r"not all of 3 actors acted with version 3 within 0\.1 s"):
        drain.await_version(3, 3, 0.1)
    drain.stop()
    assert [(one.actor, one.version) for one in drain.arrivals] == [(0, 3), (1, 3)]
    assert (backend.ledger.counts().trained, backend.ledger.counts().in_flight) == (2, 0)


@pytest.mark.parametrize("actors", broadcast.ACTORS.values())
def test_an_unroll_is_a_second_and_the_stream_has_room_for_all(actors):
    config = broadcast.configured(actors)
    sleeps = config.environment.kwargs["step_s"] * config.actors.unroll_length_steps
    assert sleeps == broadcast.UNROLL_S == 1.0
    assert (config.network.wire_dtype, config.actors.environments) == ("float16", 1)
    assert QueueCaps.of(config).entries > actors


def test_the_table():
    entry = {**WHERE, "name": "16", "actors": 16, "parameters": 1706903, "blob_bytes": 3_415_000}
    entry |= {"publications": 20, "encodings": 20, "p50_s": 0.52, "p95_s": 1.3, "max_s": 1.4}
    lines = broadcast.block({"command": "c", "results": [entry]}).splitlines()
    assert lines[-1] == (
        "| 16 | 1,706,903 in 3.4 MB | 20, encoded 20 times | 0.52 s | 1.30 s | 1.40 s | ≤ 1.25, **missed** |"
    )
    assert broadcast.block({"command": "c", "results": []}) == "Not measured yet."
