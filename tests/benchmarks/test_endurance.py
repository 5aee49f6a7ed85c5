"""The table of endurance measurements; and every named file has such tests."""

import json
import sys

import pytest

from benchmarks import endurance, provenance

WHERE = {"commit": "abc1234", "date": "2026-01-02", "machine": "2 cores (X)", "load_before": 0.1}


def test_a_line_for_each_by_the_number_of_the_fault():
    results = [
        {"name": "b", **WHERE, "row": 19, "found": {"minutes": 60.0, "learner_mb_per_h": -0.256, "killed": 59}},
        {"name": "a", **WHERE, "row": 4, "found": {"by": "SIGKILL", "slowest_back_s": 1.86, "produced": 4233}},
        {"name": "c", **WHERE, "row": 9, "found": {"median_us": 98.7, "peak_mb": 11.2, "cpu_share": 0.0123}},
    ]
    told = endurance.block({"command": "python -m benchmarks.endurance", "results": results})
    assert told.splitlines()[2:] == [
        "| Fault | Measured |",
        "| --- | --- |",
        f"| {endurance.FAULTS[4]} | by SIGKILL; slowest back 1.9 s; produced 4,233 |",
        f"| {endurance.FAULTS[9]} | median 99 µs; peak 11 MB; cpu 1.2% |",
        f"| {endurance.FAULTS[19]} | minutes 60; learner -0.26 MB/h; killed 59 |",
    ]


@pytest.mark.parametrize("path", endurance.TESTS.values())
def test_every_file_has_tests_of_endurance(path):
    assert "pytest.mark.endurance" in (provenance.ROOT / path).read_text("utf-8")


def test_what_is_run_again_and_fails_is_shown_no_longer(tmp_path, monkeypatch):
    monkeypatch.setattr(endurance, "RESULTS", tmp_path)
    entries = [{"name": name, "file": endurance.TESTS[name]} for name in ("network", "redis", "scaling")]
    (tmp_path / "endurance.json").write_text(json.dumps({"command": "c", "results": entries}))
    endurance.forget(["redis", "no-actors"])
    report = json.loads((tmp_path / "endurance.json").read_text())
    assert report == {"command": "c", "results": [entries[0], entries[2]]}


@pytest.mark.parametrize("code", [0, 1])
def test_what_tests_have_measured_is_taken_over_and_what_was_there_is_not(tmp_path, monkeypatch, code):
    """A test that fails has told nothing."""
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "01-old.json").write_text("{}")
    script = (
        f"import json, os, sys; json.dump({{'row': 4, 'test': 't', 'found': {{'lost': 0}}}}, "
        f"open(os.environ['{endurance.DIRECTORY_VARIABLE}'] + '/04-t.json', 'w')); sys.exit({code})"
    )
    run = endurance.subprocess.run
    monkeypatch.setattr(
        endurance.subprocess, "run", lambda command, **options: run([sys.executable, "-c", script], **options)
    )
    (entry,), passed = endurance.measure(["network"], tmp_path)
    assert (entry["name"], entry["row"], entry["found"], passed) == ("t", 4, {"lost": 0}, code == 0)
    assert json.loads((tmp_path / "measured" / "04-t.json").read_text())["row"] == 4
