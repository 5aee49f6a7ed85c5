import json

import pytest

from benchmarks import startup
from benchmarks.whole_run import WholeRun

WHERE = {"commit": "abc1234", "date": "2026-01-02", "machine": "2 cores (X)", "load_before": 0.1}


@pytest.fixture
def calls(monkeypatch):
    """Each import takes a second longer than the one before; a first update comes 1.5 s after the last one."""
    made, imports = [], iter(range(1, 100))
    monkeypatch.setattr(startup.whole_run, "import_s", lambda: made.append("import") or float(next(imports)))

    def run(folder, backend, sets, *, watches_memory=False):
        made.append((folder.name, backend, sets[-1]))
        count = int(sets[-1].removeprefix("actors.count=")) if watches_memory else 0
        actors = {f"actor {actor}": 60.5 for actor in range(count)}
        return WholeRun(made.count("import") + 1.5, 9.0, 100, "updates", {"learner": 400.0, **actors})

    monkeypatch.setattr(startup.whole_run, "run", run)
    return made


def test_frameworks_take_turns_each_after_the_import(calls, tmp_path):
    assert startup.main(["--repetitions", "2", "--out", str(tmp_path)]) == 0
    filled = [(name, name, "stop.updates=50") for name in ("tensorflow", "jax")]
    turn = ["import", ("tensorflow", "tensorflow", "stop.updates=1"), "import", ("jax", "jax", "stop.updates=1")]
    memory = [(name, name, f"actors.count={count}") for name in ("tensorflow", "jax") for count in (2, 3)]
    assert calls == [*filled, *turn, *turn, *memory]
    first, second = json.loads((tmp_path / "startup.json").read_text())["results"]
    assert (first["name"], first["import_s"], first["first_update_s"]) == ("tensorflow", [1.0, 3.0], [2.5, 4.5])
    assert (second["name"], second["import_s"], second["first_update_s"]) == ("jax", [2.0, 4.0], [3.5, 5.5])
    assert second["pss_mb"] == {"learner": 400.0, "actor 0": 60.5, "actor 1": 60.5}
    assert second["actor_more_mb"] == 60.5


def test_what_failed_is_told(monkeypatch, tmp_path, capsys):
    def fails(*given):
        raise startup.FailedError("distrl: error: no such preset")

    monkeypatch.setattr(startup.whole_run, "run", fails)
    assert startup.main(["--out", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "failed: distrl: error: no such preset\n"
    assert list(tmp_path.iterdir()) == []


def test_the_table():
    memory = {"pss_mb": {"learner": 600.0, "actor 0": 310.0}, "actor_more_mb": 119.6}
    # What is beyond the import is of each turn: 1, 2 and 3 s, where the medians lie 0.5 s apart.
    entry = {**WHERE, "name": "jax", "import_s": [4.0, 1.0, 6.0], "first_update_s": [5.0, 4.0, 8.0], **memory}
    lines = startup.block({"command": "c", "results": [entry]}).splitlines()
    assert lines[-1] == (
        "| jax | 4.0 s | 5.0 s | 2.00 [1.00, 3.00] | ≤ 2, met | 0.91 GB | ≤ 0.9, **missed** | 120 MB | ≤ 120, met | 3 |"
    )
    assert startup.block({"command": "c", "results": []}) == "Not measured yet."
