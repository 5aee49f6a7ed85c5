import json

import pytest

from benchmarks import gpu
from benchmarks.measurement import FailedError
from benchmarks.speed import NOTHING, stamp

ENTRY = {
    "name": "pong-warm",
    "commit": "abc1234",
    "date": "2026-01-02",
    "machine": "16 cores (X)",
    "load_before": 0.1,
    "actors": 14,
    "sets": ["learner.device=gpu"],
    "first_update_s": 57.04,
    "env_steps_per_s": 17_600.4,
    "updates": 120,
    "learner_idle_share": 0.77,
    "actors_blocked_share": 0.0,
    "gpu_busy_share": 0.08,
    "gpu_used_mb": 3_210.4,
    "programs": 123,
    "mean_return_100": -20.0,
}


def test_the_page_s_figures():
    assert gpu.block({"command": "c", "results": []}) == NOTHING
    without = {**ENTRY, "gpu_busy_share": None, "gpu_used_mb": None, "sets": []}
    of_start = {"name", *stamp(), "actors", "sets", "first_update_s", "programs"}
    cold = {name: value for name, value in ENTRY.items() if name in of_start} | {"name": "pong-cold"}
    *_, last, of_cpu, start = gpu.block({"command": "c", "results": [ENTRY, without, cold]}).splitlines()
    assert last == "| pong-warm, learner.device=gpu | 14 | 57.0 s | 17,600 | 77% | 0% | 8% | 3,210 MB | 123 |"
    assert of_cpu == "| pong-warm | 14 | 57.0 s | 17,600 | 77% | 0% | – | – | 123 |"
    assert start == "| pong-cold, learner.device=gpu | 14 | 57.0 s | – | – | – | – | – | 123 |"


def test_a_row_that_fails_keeps_no_other_from_being_measured(tmp_path, capsys, monkeypatch):
    def measure(row, seconds, sets, out):
        if row == "cartpole-cold":
            raise FailedError("no luck", 1)
        return {**ENTRY, **stamp(), "name": row}

    monkeypatch.setattr(gpu, "measure", measure)
    assert gpu.main(["--only", "cartpole-*", "--out", str(tmp_path)]) == 1
    assert "failed: cartpole-cold: no luck" in capsys.readouterr().out
    assert [entry["name"] for entry in json.loads((tmp_path / "gpu.json").read_text())["results"]] == ["cartpole-warm"]
    assert gpu.main(["--only", "pong-warm", "--minutes", "0", "--out", str(tmp_path / "late")]) == 0
    assert "left out for want of time: pong-warm" in capsys.readouterr().out


@pytest.mark.long
def test_a_training_is_measured_cold_and_warm(tmp_path, monkeypatch):
    for name in ("JAX_COMPILATION_CACHE_DIR", *gpu.KEEPS_ALL):  # it sets them for its children
        monkeypatch.setenv(name, "")
    assert gpu.main(["--only", "cartpole-*", "--seconds", "10", "--out", str(tmp_path)]) == 0
    cold, warm = json.loads((tmp_path / "gpu.json").read_text())["results"]
    assert cold["programs"] == warm["programs"] > 10
    assert warm["env_steps_per_s"] > 0
    assert "env_steps_per_s" not in cold
