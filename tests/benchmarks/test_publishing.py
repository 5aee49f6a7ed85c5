import pytest

from benchmarks import publishing
from benchmarks.measurement import keep
from benchmarks.report import markers, read_report, report_tree


@pytest.mark.parametrize(
    ("name", "only", "seeds", "command"),
    [
        ("learning", [], [1, 2, 3], "make learning"),
        ("learning", [], [1, 2], 'make learning ARGS="--seeds 1 2"'),
        ("learning", ["cartpole-*", "x"], [1, 2, 3], """make learning ARGS="--only 'cartpole-*' x\""""),
        ("staleness", [], [1, 2, 3], "python -m benchmarks.staleness"),
        ("staleness", ["lag-0"], [4], "python -m benchmarks.staleness --only lag-0 --seeds 4"),
    ],
)
def test_the_command_that_measures_the_same_again(name, only, seeds, command):
    assert publishing.command_line(name, only, seeds) == command


def test_publishing_puts_the_report_and_its_block_into_the_repository(monkeypatch, row, result, tmp_path):
    monkeypatch.setattr(publishing, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(publishing, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(publishing, "ROOT", tmp_path)
    monkeypatch.setattr(publishing, "measure_all", lambda *given: ([result("a", 1, 3.0)], []))
    first, last = markers("staleness")
    (tmp_path / "page.md").write_text(f"before\n{first}\n{last}\nafter\n")
    given = publishing.parser("", "staleness").parse_args(["--out", str(tmp_path / "out"), "--publish"])
    keep(tmp_path / "out/x.json", {})
    scored = lambda report: str(dict(publishing.scores(report)))  # noqa: E731 (a block)
    assert publishing.measure_and_report("staleness", [row("a")], given, scored) == 0
    assert (tmp_path / "page.md").read_text() == f"before\n{first}\n{{'a': [3.0]}}\n{last}\nafter\n"
    assert publishing.measure_and_report("staleness", [row("a")], given, scored) == 0
    committed, reported = (tmp_path / folder / "staleness.json" for folder in ("results", "out"))
    assert committed.read_text() == reported.read_text()


def test_what_was_not_measured_now_stays(monkeypatch, row, result, tmp_path):
    monkeypatch.setattr(publishing, "RESULTS", tmp_path)
    rows, seeds = [row("a"), row("b"), row("c")], [1, 2, 3]
    old = [result(name, seed, 1.0) for name in "ab" for seed in seeds]
    publishing.publish("learning", rows, report_tree(rows[:2], old, {"X": 1.0, "Y": 1.0}, "old", seeds))
    new = [result("b", 1, 2.0, configuration="c1"), result("c", 1, 3.0)]
    publishing.publish("learning", rows, report_tree(rows[1:], new, {"Y": 2.0}, "new", [1]))
    tree, found_rows, by_row = read_report(tmp_path / "learning.json")
    assert (found_rows, tree["seeds"], tree["random"]) == (rows, seeds, {"X": 1.0, "Y": 2.0})
    assert tree["command"] == "make learning"
    # Other seeds of row b were of another configuration.
    assert by_row == {"a": old[:3], "b": new[:1], "c": new[1:]}
    more = [result("c", 4, 5.0)]
    publishing.publish("learning", rows, report_tree(rows[2:], more, {}, "newer", [4]))
    tree, _, by_row = read_report(tmp_path / "learning.json")
    assert (by_row["c"], tree["command"]) == (new[1:] + more, 'make learning ARGS="--seeds 1 2 3 4"')


def test_the_command_names_the_rows_where_there_are_not_all(monkeypatch, row, result, tmp_path):
    monkeypatch.setattr(publishing, "RESULTS", tmp_path)
    rows = [row("a"), row("b"), row("c")]
    for one in rows[:2]:
        publishing.publish("learning", rows, report_tree([one], [result(one.name, 1, 1.0)], {}, "only", [1, 2, 3]))
    assert read_report(tmp_path / "learning.json")[0]["command"] == 'make learning ARGS="--only a b"'
