from benchmarks import equivalence
from benchmarks.measurement import keep
from benchmarks.report import report_tree


def test_variants_differ_in_nothing_but_who_acts_where():
    by_name = {row.name: row for row in equivalence.rows()}
    assert by_name["cartpole-impala-ray-4"].sets == (
        *("stop.mean_return=null", "actors.count=4", "launch.launcher=ray"),
    )
    assert {row.env_steps for row in by_name.values() if row.preset == "cartpole-impala"} == {500_000}


def test_what_lies_apart_is_said(row, result, tmp_path):
    rows = [row("a", None), row("b", None), row("c", None)]
    rows = [type(rows[0])(**{**vars(one), "preset": "cartpole-impala"}) for one in rows]
    scores = {"a": (100, 200), "b": (150, 250), "c": (240, 300)}
    results = [result(name, seed, score) for name, pair in scores.items() for seed, score in enumerate(pair)]
    keep(tmp_path / "report.json", report_tree(rows, results, {}, "c", [0, 1]))
    assert equivalence.verdict(tmp_path / "report.json") == "**Apart by greedy episodes: `a` and `c`.**"
    keep(tmp_path / "report.json", report_tree(rows[:2], results[:4], {}, "c", [0, 1]))
    assert equivalence.verdict(tmp_path / "report.json") == "By greedy episodes all intervals of a preset overlap."
    keep(tmp_path / "report.json", report_tree(rows[:2], results[:3], {}, "c", [0, 1]))
    assert equivalence.verdict(tmp_path / "report.json") == "**Incomplete: `b`.**"
    keep(tmp_path / "report.json", report_tree(rows[:1], results[:1], {}, "c", [0]))
    assert equivalence.verdict(tmp_path / "report.json") == "**Incomplete: there is nothing to compare.**"
    failed = [*results[:3], result("b", 1, None)]
    keep(tmp_path / "report.json", report_tree(rows[:2], failed, {}, "c", [0, 1]))
    assert "| **failed** (mean_return) |" in equivalence.block(tmp_path / "report.json")


def test_the_page_is_what_the_committed_report_says(page_agrees):
    assert page_agrees("equivalence", equivalence.block)
