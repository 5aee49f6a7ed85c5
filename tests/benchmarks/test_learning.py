from benchmarks import equivalence, learning, publishing, staleness
from benchmarks.measurement import keep
from benchmarks.report import report_tree
from benchmarks.table import ROWS


def test_the_page_is_what_the_committed_report_says(page_agrees):
    assert page_agrees("learning", learning.block)
    pictures = {line.split("(images/")[1][:-1] for line in (learning.CURVES, learning.SCORES)}
    shown = {name for name in pictures if f"(images/{name})" in publishing.PAGE.read_text("utf-8")}
    assert shown == {name for name in pictures if (publishing.IMAGES / name).exists()}


def test_what_was_measured_is_reported_in_the_output_folder(row, result, monkeypatch, tmp_path):
    rows = [row("cartpole-impala", algorithm="IMPALA")]
    results = [result("cartpole-impala", seed, 480.0 + seed) for seed in (1, 2, 3)]
    monkeypatch.setattr(publishing, "measure_all", lambda *given: (results, ["x seed 1: no"]))
    keep(tmp_path / "results/random/CartPole-v1.json", {"task": "CartPole-v1", "mean_return": 21.5})
    keep(tmp_path / "results/random/Other.json", {"task": "Other", "mean_return": 1.0})
    given = publishing.parser("", "learning").parse_args(["--out", str(tmp_path)])
    assert publishing.measure_and_report("learning", rows, given, learning.block, learning.draw) == 1
    text = (tmp_path / "learning.md").read_text("utf-8")
    assert "| 482 | 21.5 | reached |" in text
    assert text.startswith("`make learning` on 2026-01-02, commit abc1234: 3 runs on 2 cores (X);")
    assert publishing.random_returns(tmp_path, rows) == {"CartPole-v1": 21.5}
    assert {path.suffix for path in tmp_path.glob("learning*")} == {".json", ".md", ".svg"}
    assert (
        "trainings and evaluations took 0.05 hours together. Episodes that judge are of seed 1001, 1002, 1003." in text
    )


def test_presets_without_a_result_are_named(row, result):
    some = {row.name: [result(row.name, 1, 1.0)] for row in ROWS[2:]}
    assert learning.unmeasured(some) == [f"Not measured yet, under any seed: `{ROWS[0].name}`, `{ROWS[1].name}`."]
    assert learning.unmeasured(some | {row.name: some[ROWS[2].name] for row in ROWS[:2]}) == []


def test_without_results_the_page_says_so(row, tmp_path):
    keep(tmp_path / "report.json", report_tree([row()], [], {}, "c", [1]))
    for block in (learning.block, equivalence.block, staleness.block):
        assert block(tmp_path / "report.json") == "Not measured yet."
