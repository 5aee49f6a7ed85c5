import pytest

from benchmarks import compression
from distrl.memory_backend.compression import Method

WHERE = {"commit": "abc1234", "date": "2026-01-02", "machine": "2 cores (X)", "load_before": 0.1}
ENTRY = {
    **WHERE,
    "name": "pong",
    "what": "frames",
    "bytes": 1_000_000,
    "steps": 100,
    "methods": {
        "zstd": {"bytes": 100_000, "compress_s": 4e-4, "decompress_s": 1e-4},
        "lz4": {"bytes": 1_000_000, "compress_s": 2e-4, "decompress_s": 0.0},
    },
}


def test_the_speed_at_which_both_ways_take_the_same_time():
    speed = compression.break_even(ENTRY, "zstd")
    found = ENTRY["methods"]["zstd"]
    compressed_s = found["compress_s"] + found["decompress_s"] + found["bytes"] / speed
    assert compressed_s == pytest.approx(ENTRY["bytes"] / speed)
    assert compression.break_even(ENTRY, "lz4") == 0.0


def test_the_table():
    weights = {**ENTRY, "name": "weights", "what": "weights", "steps": 0}
    lines = compression.block({"command": "c", "results": [ENTRY, weights]}).splitlines()[4:]
    assert lines == [
        "| frames, 1,000,000 bytes | `none` | 100.0% | 10,000.0 | – | – | 80 µs | 8 µs | – |",
        "|  | `zstd` | 10.0% | 1,000.0 | 4 µs | 1 µs | 13 µs | 5.8 µs | 14 Gbit/s |",
        "|  | `lz4` | 100.0% | 10,000.0 | 2 µs | 0 µs | 82 µs | 10 µs | never |",
        "| weights, 1,000,000 bytes | `none` | 100.0% | – | – | – | 8 ms | 0.8 ms | – |",
        "|  | `zstd` | 10.0% | – | 0.4 ms | 0.1 ms | 1.3 ms | 0.58 ms | 14 Gbit/s |",
        "|  | `lz4` | 100.0% | – | 0.2 ms | 0 ms | 8.2 ms | 1 ms | never |",
    ]
    assert compression.block({"command": "c", "results": []}) == "Not measured yet."


@pytest.mark.parametrize("method", compression.METHODS)
def test_bytes_and_times_of_a_message(method: Method):
    found = compression.figures(bytes(100_000), method, 3)
    assert 0 < found["bytes"] < 1000
    assert found["compress_s"] >= 0.0
    assert found["decompress_s"] >= 0.0


def test_the_least_of_the_repetitions_counts(monkeypatch):
    clock = iter([0.0, 5.0, 5.0, 7.0, 7.0, 10.0])
    monkeypatch.setattr(compression.time, "process_time", lambda: next(clock))
    calls = []
    assert compression.processor_seconds(lambda: calls.append(1), 3) == 2.0
    assert len(calls) == 3


def test_a_message_that_stands_for_no_unroll():
    payload, steps = compression.message(compression.Case("w", "cartpole-impala", message="weights"))
    assert len(payload) > 1000
    assert steps == 0
