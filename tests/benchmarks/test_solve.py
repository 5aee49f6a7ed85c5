import json

import pytest

from benchmarks import solve
from benchmarks.whole_run import WholeRun


@pytest.fixture
def calls(monkeypatch):
    """Trainings that take 7 s and as many tenths as their seed is, JAX's half of it; seed 9 spends its budget."""
    made = []
    monkeypatch.setattr(solve.whole_run, "import_s", lambda: 4.0)

    def run(folder, backend, sets):
        made.append((folder.name, backend, sets))
        seed = int(sets[0].removeprefix("seed=")) if len(sets) == 2 else 0
        exit_s = (7.0 + seed / 10.0) / (2.0 if backend == "jax" else 1.0)
        return WholeRun(3.0, exit_s, 200_000, "env_steps" if seed == 9 else "mean_return", {})

    monkeypatch.setattr(solve.whole_run, "run", run)
    return made


def test_every_seed_of_every_framework(calls, tmp_path, capsys):
    assert solve.main(["--seeds", "1", "3", "--out", str(tmp_path)]) == 0
    assert calls[1:4] == [
        ("jax", "jax", ["stop.updates=50"]),
        ("tensorflow-1", "tensorflow", ["seed=1", "stop.mean_return=475"]),
        ("jax-1", "jax", ["seed=1", "stop.mean_return=475"]),
    ]
    assert len(calls) == 6
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "| tensorflow | 1, 3 | 7.1 s / 7.3 s | 7.2 s | 4.0 s | +3.2 s | beyond ≤ 4, met | 200,000 |",
        "| jax | 1, 3 | 3.5 s / 3.6 s | 3.6 s | 4.0 s | -0.4 s | in all ≤ 7, met | 200,000 |",
    ]
    runs = json.loads((tmp_path / "solve.json").read_text())["results"][0]["runs"]
    assert [(run["seed"], run["exit_s"], run["import_s"], run["first_update_s"]) for run in runs] == [
        (1, 7.1, 4.0, 3.0),
        (3, 7.3, 4.0, 3.0),
    ]


def test_a_seed_that_did_not_solve_it_is_shown(calls, tmp_path, capsys):
    assert solve.main(["--only", "jax", "--seeds", "9", "1", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "jax seed 9: 4.0 s (**not solved**), import tensorflow 4.0 s, 200,000 steps"
    assert "| 4.0 s (**not solved**) / 3.5 s | 3.8 s | 4.0 s | -0.2 s | every seed, **missed** |" in told[-1]
    assert solve.block({"command": "c", "results": []}) == "Not measured yet."


def test_what_failed_is_told(monkeypatch, tmp_path, capsys):
    def fails(*given):
        raise solve.FailedError("distrl: error: no such preset")

    monkeypatch.setattr(solve.whole_run, "run", fails)
    assert solve.main(["--out", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "failed: distrl: error: no such preset\n"
    assert list(tmp_path.iterdir()) == []
