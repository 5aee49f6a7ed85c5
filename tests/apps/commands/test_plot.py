import importlib.util
import os
from pathlib import Path

import pytest

from distrl.apps.commands import main
from distrl.errors import how_to_install
from tests.apps.experiments.sweeps import make_sweep
from tests.run_folders import make_run

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """run(*arguments, code=0): what a command prints; stderr where it fails."""
    monkeypatch.chdir(tmp_path)

    def made(*arguments, code=0):
        assert main.main([*arguments]) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return made


@pytest.mark.row("P15")
def test_a_picture_is_named_by_the_first_run(run, tmp_path):
    make_run(tmp_path / "runs/first")
    out = run("plot", "runs/first")
    content = Path("first.png").read_bytes()
    assert content.startswith(PNG)
    assert out == f"first.png: mean_return_100 of 1 run, {len(content) / 1000:.0f} kB\n"


def test_the_ending_says_what_is_written(run, tmp_path):
    make_run(tmp_path / "a")
    run("plot", "a", "--output", "x.SVG", "--dark", "--metric", "loss", "--metric", "updates", "--over", "time")
    drawing = Path("x.SVG").read_text()
    assert drawing.startswith("<?xml")
    assert all(word in drawing for word in ("total loss", "updates of the online network", "seconds", "#0f1419"))


@pytest.mark.row("P12")
def test_a_folder_of_runs_in_groups(run, tmp_path):
    for rate in (0.1, 0.2):
        for seed in (1, 2):
            make_run(tmp_path / f"sweep/{rate}/{seed}", sets=(f"network.learning_rate={rate}", f"seed={seed}"))
    for by in ("folder", "network.learning_rate"):
        out = run("plot", "sweep", "--group-by", by, "--statistic", "iqm", "--output", "x.svg", "--force")
        assert out.startswith("x.svg: mean_return_100 of 4 runs in 2 groups, ")
        assert "0.1 · 2 runs" in Path("x.svg").read_text()
        assert "interquartile mean, quartiles" in Path("x.svg").read_text()


def test_a_name_that_is_no_utf8_is_drawn_escaped(run, tmp_path):
    make_run(tmp_path / os.fsdecode(b"a\xff"))
    make_run(tmp_path / "b")
    run("plot", ".", "--output", "both.svg")
    assert (tmp_path / "both.svg").exists()


def test_a_file_that_is_there_stays(run, tmp_path):
    make_run(tmp_path / "a")
    for command, name in (("plot", "a.png"), ("report", "a.html")):
        Path(name).write_text("mine")
        assert run(command, "a", code=2) == (
            f"distrl: error: --output {name} is there already; add --force to replace it, or choose another --output\n"
        )
        assert Path(name).read_text() == "mine"
        run(command, "a", "--force")
        assert Path(name).read_bytes() != b"mine"
        Path(name).unlink()
        os.mkfifo(name)
        assert "is no file, and one would take its place" in run(command, "a", "--force", code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--metric", "entrpy"], "no metric is named 'entrpy'; did you mean entropy?"),
        (["a", "--second", "entrpy"], "no metric is named 'entrpy'; did you mean entropy?"),
        (["a", "--metric", "entropy"], "entropy has no value yet in any of the runs"),
        (["a", "--group-by", "sed"], "unknown configuration key 'sed'; did you mean seed?"),
        (["a", "--metric", "loss", "--metric", "updates", "--second", "loss"], "--second loss goes with one --metric"),
        (["a", "--over", "step"], "--over 'step': did you mean steps?"),
        (["a", "--statistic", "medium"], "--statistic 'medium': "),
        (["a", "--output", "x.pdf"], "--output x.pdf must end with .png or .svg"),
        (["a", "--output", "no/x.png"], "no/x.png cannot be written: there is no folder no"),
        (["a", "--smooth", "0"], "Invalid value for '--smooth'"),
        (["empty"], "empty has no numbers yet; wait for its first updates"),
        (["folder"], "no run to draw"),
        (["nowhere"], "nowhere is not a folder"),
    ],
)
def test_mistakes_are_told_in_one_line_and_leave_nothing(run, tmp_path, arguments, message):
    make_run(tmp_path / "a")
    make_run(tmp_path / "empty", rows=())
    (tmp_path / "folder").mkdir()
    before = {*tmp_path.iterdir()}
    err = run("plot", *arguments, code=2)
    assert message in err
    assert len(err.splitlines()) == 1
    assert {*tmp_path.iterdir()} == before


def test_a_place_that_refuses(run, tmp_path):
    make_run(tmp_path / "a")
    (tmp_path / "taken.png").mkdir()
    err = run("plot", "a", "--output", "taken.png", "--force", code=2)
    assert err == "distrl: error: --output taken.png is a directory; name a file in it\n"
    assert {path.name for path in tmp_path.iterdir()} == {"a", "taken.png"}  # no half of a picture


def test_a_full_disk_leaves_the_old_picture(run, tmp_path, monkeypatch):
    make_run(tmp_path / "a")
    (tmp_path / "a.png").write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    err = run("plot", "a", "--force", code=2)
    assert err == "distrl: error: a.png cannot be written: No space left on device; choose another --output\n"
    assert (tmp_path / "a.png").read_text() == "old"


@pytest.mark.parametrize("command", ["plot", "report"])
def test_without_matplotlib_the_extra_is_named(run, tmp_path, monkeypatch, command):
    make_run(tmp_path / "a")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run(command, "a", code=2) == f"distrl: error: matplotlib is not installed: {how_to_install('plot')}\n"


def test_a_report_is_one_file(run, tmp_path):
    make_run(tmp_path / "runs/first", manifest={})
    out = run("report", "runs/first", "--output", "page.html")
    page = Path("page.html").read_bytes()
    assert page.startswith(b"<!DOCTYPE html>")
    assert page.count(b"<svg") == 4
    assert out == f"page.html: {len(page) / 1000:.0f} kB\n"


@pytest.mark.parametrize("name", ["nowhere", "folder", "empty"])
def test_a_report_needs_a_run_with_numbers(run, tmp_path, name):
    (tmp_path / "folder").mkdir()
    make_run(tmp_path / "empty", rows=())
    err = run("report", name, code=2)
    assert name in err
    assert len(err.splitlines()) == 1
    assert not Path(f"{name}.html").exists()


def sweep_of_two_rates(path, **described):
    vary = {"network.learning_rate": [1e-3, 1e-2]}
    return make_sweep(
        path, lambda planned: {"mean_return_100": float(planned.number)}, seeds="1..2", vary=vary, **described
    )


def test_a_report_of_a_sweep_with_its_figures(run, tmp_path):
    sweep_of_two_rates(tmp_path / "runs/rates")
    page, figures = run("report", "runs/rates", "--figures", "paper/rates").splitlines()
    assert page == f"rates.html: {Path('rates.html').stat().st_size / 1000:.0f} kB"
    names = figures.removeprefix("paper/rates: ").split(", ")
    assert {*names} == {path.name for path in Path("paper/rates").iterdir()}
    assert {"curves.svg", "profiles.pdf", "improvement.svg", "table.tex", "table.csv"} <= {*names}
    before = Path("rates.html").read_bytes()
    Path("rates.html").unlink()
    err = run("report", "runs/rates", "--figures", "paper/rates", code=2)
    assert err == (
        "distrl: error: --figures paper/rates/curves.svg is there already; "
        "add --force to replace it, or choose another --figures\n"
    )
    assert not Path("rates.html").exists()
    run("report", "runs/rates")
    assert Path("rates.html").read_bytes() == before


def test_mistakes_about_sweeps_are_told_in_one_line_and_leave_nothing(run, tmp_path):
    sweep_of_two_rates(tmp_path / "rates")
    make_sweep(tmp_path / "none", lambda planned: None, seeds="1..2")
    (tmp_path / "taken").touch()
    (tmp_path / "search").mkdir()
    (tmp_path / "search/search.yaml").touch()
    before = {*tmp_path.iterdir()}
    for arguments, message in (
        (["rates", "--normalise", "CartPole-v1=0:500"], "all runs have CartPole-v1; leave it out"),
        (
            ["rates", "--normalise", "CartPole-v1"],
            "--normalise CartPole-v1: write ENV=LOW:HIGH, with LOW less than HIGH",
        ),
        (["rates", "--normalise", "A=2:1"], "--normalise A=2:1: write ENV=LOW:HIGH"),
        (["rates", "--normalise", "A=0:inf"], "--normalise A=0:inf: write ENV=LOW:HIGH"),
        (["rates", "--normalise", "A=nan:1"], "--normalise A=nan:1: write ENV=LOW:HIGH"),
        (["rates", "--figures", "taken"], "taken cannot be made: File exists; choose another --figures"),
        (["rates/0001", "--figures", "x"], "--figures is for sweeps, and rates/0001 is none; leave it out"),
        (["rates/0001", "--normalise", "A=0:1"], "--normalise is for sweeps, and rates/0001 is none; leave it out"),
        (["search"], "search is a search, which draws its own pictures; name a sweep, or a run such as search/0001"),
        (["rates", "--output", "rates.pdf"], "--output rates.pdf must end with .html"),
        (["none"], "no run in none is done and has a return; see: distrl runs none"),
    ):
        (line,) = run("report", *arguments, code=2).splitlines()
        assert message in line
        assert {*tmp_path.iterdir()} == before
