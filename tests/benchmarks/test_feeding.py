import numpy as np
import pytest

from benchmarks import feeding
from distrl.memory_backend.joining import stack
from tests.benchmarks.test_transport import WHERE


def test_feeds_take_turns_and_the_median_counts(monkeypatch):
    took = {"slow": iter([0.4, 0.1, 0.4]), "fast": iter([0.1, 0.1, 9.0])}
    clock, calls = [0.0], []

    def feed(name):
        def collect():
            calls.append(name)
            if len(calls) > 6:  # the first three of each warm up
                clock[0] += next(took[name])

        return collect

    monkeypatch.setattr(feeding.time, "perf_counter", lambda: clock[0])
    assert feeding.frames_per_s([feed("slow"), feed("fast")], 100, 0.9) == [pytest.approx(250.0), pytest.approx(1000.0)]
    assert calls[6:] == ["slow", "fast"] * 3


def test_a_case_is_measured_on_batches_of_the_run(monkeypatch):
    monkeypatch.setattr(feeding, "T", 2)
    monkeypatch.setattr(feeding, "B", 3)
    entry = feeding.measure("pong-singles", 2, [1, 2], 0.01)
    assert (entry["frames"], entry["threads"], entry["batch_bytes"]) == (12, [1, 2], 6 * 6 * 84 * 84)
    assert np.isfinite(entry["frames_per_s"]).all()


def test_the_feed_decodes_and_joins(monkeypatch):
    monkeypatch.setattr(feeding, "T", 2)
    monkeypatch.setattr(feeding, "B", 3)
    spec = feeding.EnvSpec("x", {"observation": feeding.PICTURE}, {"action": feeding.DiscreteSpec(6)})
    schema = feeding.UnrollSchema.of(spec, 2, 3, {})
    unrolls = [feeding.an_unroll(schema, number) for number in range(2)]
    fed, joined = feeding.feed(unrolls, schema, schema.frames, 2, "zstd")(), stack(unrolls, schema.frames)
    np.testing.assert_array_equal(fed.observations["observation"], joined.observations["observation"])
    assert fed.observations["observation"].std() > 0.0


def test_the_table():
    entry = {**WHERE, "name": "pong", "frames": 640, "batch_bytes": 1.9e7}
    report = {"command": "c", "results": [entry | {"threads": [1, 2], "frames_per_s": [1e5, 2e5]}]}
    assert feeding.block(report).splitlines()[-1] == "| pong | 640 (19 MB) | 1: 100,000, 2: 200,000 |"
