import json
from types import SimpleNamespace

import pytest

from benchmarks import throughput
from benchmarks.measurement import FailedError, keep

WHERE = {"commit": "abc1234", "date": "2026-01-02", "machine": "2 cores (X)", "load_before": 0.1}


def sample(ratio, rate=100_000.0, verdict="learner", **more):
    told = {"env_steps_per_s": rate, "limit_steps_per_s": rate / ratio, "ratio": ratio, "verdict": verdict}
    waits = {"learner_idle_share": 0.02, "actors_blocked_share": 0.5}
    return {**WHERE, **told, **waits, "cores": 2, "seconds": 15.0, "took_s": 40.0, **more}


@pytest.fixture
def benched(monkeypatch):
    """Stands for `distrl bench`: pong-impala's second one fails; everything is of one commit."""
    calls = []

    def run(arguments):
        given = dict(zip(arguments[3::2], arguments[4::2], strict=False))
        calls.append((given["--preset"], arguments[arguments.index("--set") + 1]))
        if calls[-1] == ("pong-impala", "seed=2"):
            raise FailedError("distrl: error: no")
        return json.dumps({**sample(0.5), "configuration": None})

    monkeypatch.setattr(throughput, "run", run)
    monkeypatch.setattr(throughput, "stamp", lambda: WHERE)
    return calls


def arguments(tmp_path, **more):
    return SimpleNamespace(**{"out": tmp_path, "repetitions": 2, "sets": [], "seconds": 15.0, **more})


def test_presets_take_turns_and_what_is_there_is_not_measured_again(benched, tmp_path):
    presets, told = ["cartpole-impala", "pong-impala"], []
    samples, failures = throughput.measure_all(presets, arguments(tmp_path), told.append)
    assert benched == [(preset, f"seed={seed}") for seed in (1, 2) for preset in presets]
    assert [len(samples[preset]) for preset in presets] == [2, 1]
    assert failures == ["pong-impala 2: distrl: error: no"]
    assert told[0] == "[1/4] cartpole-impala 1 … about 3:00 to go"
    assert told[1] == "  100,000 steps/s, 0.50 of the limit, bottleneck learner"
    benched.clear()
    throughput.measure_all(presets, arguments(tmp_path), told.append)
    assert benched == [("pong-impala", "seed=2")]
    benched.clear()
    throughput.measure_all(presets[:1], arguments(tmp_path, sets=["actors.count=1"]), told.append)
    throughput.measure_all(presets[:1], arguments(tmp_path, sets=["actors.count=1"], seconds=5.0), told.append)
    assert len(benched) == 4


def test_another_commit_is_measured_again(benched, tmp_path, monkeypatch):
    throughput.measure_all(["cartpole-impala"], arguments(tmp_path, repetitions=1), print)
    monkeypatch.setattr(throughput, "stamp", lambda: {**WHERE, "commit": "def5678"})
    throughput.measure_all(["cartpole-impala"], arguments(tmp_path, repetitions=1), print)
    assert len(benched) == 2


def test_the_rest_takes_as_long_as_what_was_like_it():
    samples = {"a": [sample(0.5, took_s=10.0), sample(0.5, took_s=30.0)], "b": [sample(0.5, took_s=60.0)], "c": []}
    assert throughput.remaining_s(["a", "b", "c"], samples, 15.0) == 20.0 + 60.0 + 40.0
    assert throughput.remaining_s(["a", "a"], {"a": []}, 15.0) == 2 * (15.0 + throughput.USUAL_S)


def test_an_entry_is_of_medians_and_compared_by_the_ratio_to_the_limit():
    samples = [sample(0.6, load_before=2.0), sample(0.7, verdict="-"), sample(0.8, learner_idle_share=None)]
    found = throughput.entry("cartpole-impala", samples, ["actors.count=1"], None)
    assert found["name"] == "cartpole-impala+actors.count=1"
    assert (found["ratio"], found["ratios"], found["verdicts"]) == ([0.7, 0.6, 0.8], [0.6, 0.7, 0.8], ["-", "learner"])
    assert (found["learner_idle_share"], found["load_before"]) == ([0.02] * 3, 2.0)
    assert "to_baseline" not in found
    found = throughput.entry("x", samples, [], {"ratios": [0.35, 0.35, 0.35], "commit": "0ld"})
    assert found["to_baseline"] == pytest.approx([2.0, 0.6 / 0.35, 0.8 / 0.35])
    assert found["baseline_commit"] == "0ld"


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        ([1.2, 1.1, 1.3], "1.20 [1.10, 1.30], faster than 0ld"),
        ([0.8, 0.7, 0.9], "0.80 [0.70, 0.90], slower than 0ld"),
        ([1.1, 0.9, 1.3], "1.10 [0.90, 1.30], no different from 0ld"),
    ],
)
def test_the_table(ratio, words):
    one = throughput.entry("cartpole-impala", [sample(0.8)] * 2, [], None)
    other = {**throughput.entry("pong-impala", [sample(0.8)], [], None), "to_baseline": ratio, "baseline_commit": "0ld"}
    lines = throughput.block({"command": "c", "results": [one, other]}).splitlines()
    assert lines[-2].split(" | ") == [
        *("| `cartpole-impala`", "100,000", "125,000", "0.80 [0.80, 0.80]", "≥ 0.7, met", "2%", "50%", "learner"),
        *("2 of 15 s", "– |"),
    ]
    assert lines[-1].endswith(f"| ≥ 0.85, **missed** | 2% | 50% | learner | 1 of 15 s | {words} |")
    assert throughput.block({"command": "c", "results": []}) == "Not measured yet."


def test_a_baseline_is_a_report_of_this_benchmark(tmp_path):
    path = tmp_path / "base.json"
    keep(path, {"results": [{"name": "cartpole-impala", "ratios": [0.5]}]})
    assert throughput.read_baseline(path) == {"cartpole-impala": {"name": "cartpole-impala", "ratios": [0.5]}}
    assert throughput.read_baseline(None) == {}
    for text in ("{", "{}", '{"results": [{"name": "x"}]}', '{"results": [1]}'):
        path.write_text(text)
        with pytest.raises(SystemExit, match=r"base\.json is no report of this benchmark"):
            throughput.read_baseline(path)
