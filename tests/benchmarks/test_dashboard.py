import json

import pytest

from benchmarks import dashboard
from distrl.apps.dashboard.index import Index

WHERE = {"commit": "abc1234", "date": "2026-01-02", "machine": "2 cores (X)", "load_before": 0.1}


def test_a_real_dashboard_answers_over_the_list_and_the_query(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(dashboard, "POLL_S", 0.02)
    assert dashboard.main(["--only", "list", "--runs", "20", "--out", str(tmp_path)]) == 0
    (entry,) = json.loads((tmp_path / "dashboard.json").read_text())["results"]
    measured = [(one["what"], len(one["values"]), one["most"]) for one in entry["figures"]]
    assert measured == [
        ("20 runs: first list after the start, without an index", 1, None),
        ("the same: first index with all settings", 1, None),
        ("poll of the list without changes", 15, None),
        ("list, first 100 runs of 20", 15, 0.3),
        ("`algo:impala lr>=3e-4 state:ended` by return of 4", 15, 0.1),
    ]
    assert capsys.readouterr().out.startswith("list …\n  20 runs: first list after the start, without an index: ")


def test_runs_have_the_files_of_finished_runs(tmp_path):
    dashboard.make_runs(tmp_path, 3, 5, [("cartpole-impala", 1e-3), ("cartpole-ppo", 1e-4)])
    index = Index(tmp_path)
    entries = index.entries()
    assert [(one.name, one.state, one.algorithm, one.seed) for one in entries] == [
        ("run-00002", "ended", "impala", 1),
        ("run-00001", "ended", "ppo", 0),
        ("run-00000", "ended", "impala", 0),
    ]
    assert [one.numbers["mean_return_100"] for one in entries] == [10.0, 5.0, 0.0]
    settings = index.configuration(entries[0])
    assert (settings["seed"].value, settings["network.learning_rate"].value) == (1, 1e-3)
    assert entries[0].problem is None
    index.close()


def test_the_table_has_a_line_for_each_figure():
    one = {"what": "a query", "values": [0.01, 0.2, 0.04], "unit": "s", "bytes": 1234, "most": 0.1}
    share = {"what": "a share", "values": [2.5], "unit": "%", "bytes": None, "most": 2.0}
    ratio = {"what": "a ratio", "values": [1.0, 1.0, 1.0], "unit": "ratio", "bytes": None, "most": None}
    entries = [{**WHERE, "name": "list", "figures": [one, share]}, {**WHERE, "name": "browser", "figures": [ratio]}]
    assert dashboard.block({"command": "c", "results": entries}).splitlines()[-3:] == [
        "| a query | 0.040 s | 0.200 s | ≤ 0.1, met | 1,234 bytes | 3 |",
        "| a share | 2.5 % | – | ≤ 2, **missed** | – | 1 |",
        "| a ratio | 1.000 [1.000, 1.000] | 1.000 | – | – | 3 |",
    ]
    assert dashboard.block({"command": "c", "results": []}) == "Not measured yet."


def test_without_a_browser_its_part_is_skipped_with_the_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(dashboard.shutil, "which", lambda name: None)
    monkeypatch.setattr(dashboard, "PARTS", {name: lambda out, given: [] for name in dashboard.PARTS})
    assert dashboard.main(["--browser", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert "chromium on PATH" in told[0]
    assert told[0].startswith("frames and browser are skipped: there is no ")
    assert told[1:4] == ["list …", "compare …", "actors …"]


def test_a_dashboard_that_does_not_start_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(dashboard.sys, "executable", "true")
    with pytest.raises(dashboard.FailedError, match="has not started"), dashboard.serving(tmp_path):
        pass
