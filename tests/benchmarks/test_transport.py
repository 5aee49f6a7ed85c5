import numpy as np
import pytest

from benchmarks import transport
from distrl.memory_backend.codec import encode_unroll
from distrl.memory_backend.embedded_redis import EmbeddedRedis
from tests.waiting import lasts

WHERE = {"commit": "abc1234", "date": "2026-01-02", "machine": "2 cores (X)", "load_before": 0.1}


def test_the_ratio_is_of_rounds_that_followed_each_other():
    ours = [(2.0, 1.0), (4.0, 1.0), (10.0, 2.0)]
    bare = [(1.0, 1.0), (4.0, 1.5), (20.0, 1.0)]
    found = transport.figures(ours, bare)
    assert found["ratio"] == [1.0, 0.5, 2.0]
    assert found["cpu_ratio"] == [1.0, 0.5, 1.5]
    assert (found["ours_s"], found["bare_s"]) == (4.0, 4.0)


@pytest.mark.parametrize(("name", "megabytes"), [("0.1MB", 0.1), ("0.3MB", 0.3), ("1MB", 1.0)])
def test_unrolls_are_as_large_as_their_names_say(name, megabytes):
    payload = encode_unroll(transport.an_unroll(transport.CASES[name].features, (0, 1)))
    assert len(payload) / 1e6 == pytest.approx(megabytes, rel=0.02)


@pytest.mark.redis
@pytest.mark.parametrize("name", ["0.1MB", "0.1MB-batch"])
def test_both_sides_move_the_same_bytes(name):
    with EmbeddedRedis.start(maxmemory_bytes=2**28, max_bulk_bytes=2**26) as server:
        case = transport.CASES[name]
        ours = transport.Ours(case, server.url, "r")
        bare = transport.Bare(ours.payload, case.at_once, server.url)
        for _ in range(3):
            ours.round()
            bare.round()
            assert bare.writer.xlen(transport.STREAM) == case.at_once
            bare.clear()
        counts = ours.learner.ledger.counts()
        assert (counts.trained, counts.imbalance, counts.stream_bytes) == (3 * case.at_once, 0, 0)
        assert counts.pushed_bytes == 3 * case.at_once * len(ours.payload)
        assert (bare.writer.xlen(transport.STREAM), ours.learner.unrolls.take(1, 0.0)) == (0, [])
        ours.close()
        bare.close()


def test_time_is_of_the_clock_and_of_both_processes():
    server = iter([10.0, 13.0])
    wall, cpu = transport.seconds_of(lambda: lasts(0.01), lambda: next(server))
    assert wall >= 0.01  # sleep never returns early
    assert 3.0 <= cpu < 3.5


def test_the_processor_time_of_a_process(tmp_path, monkeypatch):
    (tmp_path / "schedstat").write_text("1500000000 5 7\n")
    monkeypatch.setattr(transport, "Path", lambda path: tmp_path / path.rsplit("/", 1)[1])
    assert transport.processor_clock(1)() == 1.5


def test_the_table():
    entry = {**WHERE, "payload_bytes": 98867, "rounds": 1000, "cpu_ratio": [0.8, 0.7, 0.9]}
    entries = [
        {**entry, "name": "0.1MB", "at_once": 1, "ratio": [0.72, 0.71, 0.73]},
        {**entry, "name": "0.1MB-batch", "at_once": 8, "ratio": [0.65, 0.6, 0.7]},
    ]
    lines = transport.block({"command": "c", "results": entries}).splitlines()
    assert lines[-2:] == [
        "| 98,867 bytes | 0.72 [0.71, 0.73] | 0.80 [0.70, 0.90] | 1,000 | ≥ 0.7, met |",
        "| 98,867 bytes, 8 at once | 0.65 [0.60, 0.70] | 0.80 [0.70, 0.90] | 1,000 | ≥ 0.7, **missed** |",
    ]
    assert transport.block({"command": "c", "results": []}) == "Not measured yet."


def test_an_unroll_can_be_trained_on():
    unroll = transport.an_unroll(8, (0, 1))
    assert unroll.header.env_steps == np.count_nonzero(unroll.valid) == transport.T * transport.B
