import json
from types import SimpleNamespace

import pytest

from benchmarks import endurance, speed
from benchmarks.measurement import FailedError
from benchmarks.report import markers

WHERE = {"commit": "abc1234", "date": "2026-01-02", "machine": "2 cores (X)", "load_before": 0.1}


def block(report):
    return " ".join(f"{entry['name']}={entry['figure']}" for entry in report["results"])


def entry(name, figure, **more):
    return {"name": name, **WHERE, "figure": figure, **more}


@pytest.fixture
def repository(monkeypatch, tmp_path):
    """A page with a part for "transport", and a place for reports."""
    monkeypatch.setattr(speed, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(speed, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(speed.sys, "argv", ["transport.py", "--only", "0.*", "--out", "x", "--publish"])
    first, last = markers("transport")
    (tmp_path / "page.md").write_text(f"before\n{first}\n{speed.NOTHING}\n{last}\nafter\n")
    return tmp_path


def test_what_is_published_keeps_what_was_not_measured_now(repository, capsys):
    given = SimpleNamespace(out=repository / "out", publish=True)
    speed.finish("transport", [entry("a", 1), entry("b", 2)], given, block)
    speed.finish("transport", [entry("b", 3), entry("c", 4)], given, block)
    first, last = markers("transport")
    assert (repository / "page.md").read_text() == f"before\n{first}\na=1 b=3 c=4\n{last}\nafter\n"
    report = json.loads((repository / "results" / "transport.json").read_text())
    assert report["command"] == "python -m benchmarks.transport --only '0.*'"
    assert [one["name"] for one in json.loads((repository / "out" / "transport.json").read_text())["results"]] == [
        "b",
        "c",
    ]
    assert capsys.readouterr().out.endswith("\nb=3 c=4\n")


def test_nothing_reaches_the_repository_unasked(repository):
    speed.finish("transport", [entry("a", 1)], SimpleNamespace(out=repository / "out", publish=False), block)
    assert not (repository / "results").exists()
    assert speed.NOTHING in (repository / "page.md").read_text()
    assert speed.page_text("transport", block) == speed.NOTHING


def test_names_are_chosen_by_patterns_in_their_order():
    assert speed.chosen(["a-1", "b-1", "a-2"], ["a-2", "b*"]) == ["b-1", "a-2"]
    assert speed.chosen(["a", "b"], []) == ["a", "b"]
    with pytest.raises(SystemExit, match="nothing is named c; there are a, b"):
        speed.chosen(["a", "b"], ["a", "c"])


def test_the_heading_says_where_and_whether_others_were_there():
    report = {"command": "python -m benchmarks.x", "results": [entry("a", 1), entry("b", 2, date="2026-01-03")]}
    assert speed.heading(report) == ("`python -m benchmarks.x` on 2026-01-02, 2026-01-03, commit abc1234, 2 cores (X).")
    report["results"][1]["load_before"] = None  # as of figures that were entered by hand
    assert speed.heading(report).endswith("2 cores (X).")
    report["results"][0]["load_before"] = 3.5
    assert speed.heading(report).endswith("2 cores (X), which others shared: a load of up to 3.5 before it began.")


def test_a_line_for_each_entry():
    report = {"command": "x", "results": [entry("a", 1), entry("b", 2)]}
    line = lambda one: [one["name"], str(one["figure"])]  # noqa: E731
    told = speed.listed(report, ["Name", "Figure"], line)
    assert told == f"{speed.heading(report)}\n\n| Name | Figure |\n| --- | --- |\n| a | 1 |\n| b | 2 |"
    assert speed.listed({"command": "x", "results": []}, ["Name", "Figure"], line) == speed.NOTHING


@pytest.mark.parametrize(
    ("value", "bounds", "words"),
    [
        (0.7, {"least": 0.7}, "≥ 0.7, met"),
        (0.69, {"least": 0.7}, "≥ 0.7, **missed**"),
        (1.25, {"most": 1.25}, "≤ 1.25, met"),
        (1.3, {"most": 1.25}, "≤ 1.25, **missed**"),
    ],
)
def test_goals(value, bounds, words):
    assert speed.goal(value, **bounds) == words


def test_numbers_and_tables():
    assert speed.around([1234.5, 0.125, 2.0], 1) == "1,234.5 [0.1, 2.0]"
    assert speed.table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_the_help_ends_with_the_examples(capsys):
    parser = speed.parser("First line.\n\n    an example\n\nMore.", "transport", ["0.1MB"])
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    told = capsys.readouterr().out
    assert "First line.\n" in told
    assert told.endswith("    an example\n\nMore.\n")
    assert "0.1MB" in told


def test_where_it_was_measured_is_known():
    assert speed.stamp().keys() == WHERE.keys()


@pytest.mark.parametrize(
    "name",
    [
        *("throughput", "startup", "solve", "transport", "broadcast", "scaling", "bottleneck", "compression"),
        *("accelerator", "dashboard", "peers"),
    ],
)
def test_the_page_says_what_the_committed_report_says(name):
    module = __import__("benchmarks.peers.table" if name == "peers" else f"benchmarks.{name}", fromlist=["block"])
    page = speed.PAGE.read_text("utf-8")
    assert speed.published(page, name, speed.page_text(name, module.block)) == page


def test_the_page_of_reliability_says_what_the_committed_report_says():
    page = endurance.PAGE.read_text("utf-8")
    assert speed.published(page, "endurance", speed.page_text("endurance", endurance.block)) == page


def test_one_that_fails_keeps_no_other_from_being_reported(tmp_path, capsys):
    def measure(name, out):
        if name == "a":
            raise FailedError("no luck", 1)
        return {"name": name, **speed.stamp()}

    def block(report):
        return ", ".join(entry["name"] for entry in report["results"])

    given = speed.parser("It measures.", "things", ["a", "b"]).parse_args(["--out", str(tmp_path)])
    assert speed.measure_each("things", ["a", "b"], measure, given, block, tmp_path / "page.md") == 1
    assert capsys.readouterr().out.split("\n") == ["failed: a: no luck", "", "b", ""]
    assert speed.measure_each("things", ["b"], measure, given, block, tmp_path / "page.md") == 0
