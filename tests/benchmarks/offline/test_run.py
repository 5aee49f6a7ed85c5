import json

from benchmarks.measurement import FailedError
from benchmarks.offline import run
from benchmarks.offline.cells import all_cells


def pretend(monkeypatch, broken=()):
    """Stand for measurements; return the names of the measured cells."""
    measured = []

    def measure(cell, out, entries):
        measured.append(cell.name)
        if cell.name in broken:
            raise FailedError("it broke")
        return {"name": cell.name, **cell.__dict__, "wall_s": 1.0, "env_steps": 10, "parts": [{"rows": 5}]}

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(run, "block", lambda report: f"{len(report['results'])} cells")
    return measured


def test_each_cell_is_kept_and_the_same_command_goes_on(monkeypatch, tmp_path, capsys):
    measured = pretend(monkeypatch, broken=["record-hopper-expert"])
    chosen = ["--environments", "Hopper-v5", "--out", str(tmp_path), "--only", "sac-*", "record-*"]
    assert run.main(chosen) == 1
    assert measured == [cell.name for cell in all_cells(["Hopper-v5"], [0]) if cell.kind in ("sac", "record")]
    assert "record-hopper-expert: failed: it broke" in capsys.readouterr().out
    assert json.loads((tmp_path / "results" / "sac-hopper.json").read_text())["env_steps"] == 10
    measured = pretend(monkeypatch)
    assert (run.main(chosen), measured) == (0, ["record-hopper-expert"])
    assert capsys.readouterr().out.endswith("4 cells\n")


def test_no_cell_begins_after_the_minutes(monkeypatch, tmp_path, capsys):
    measured = pretend(monkeypatch)
    assert run.main(["--out", str(tmp_path), "--minutes", "0", "--only", "sac-*"]) == 0
    assert measured == []
    assert "3 cells are missing" in capsys.readouterr().out


def test_cells_are_listed_in_their_order_and_nothing_is_measured(monkeypatch, tmp_path, capsys):
    measured = pretend(monkeypatch)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "sac-hopper.json").write_text('{"name": "sac-hopper"}')
    assert run.main(["--out", str(tmp_path), "--list", "--only", "sac-h*"]) == 0
    assert capsys.readouterr().out.splitlines() == ["done    sac-hopper", "missing sac-halfcheetah"]
    assert measured == []
