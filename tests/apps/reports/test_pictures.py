import re
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import image

from distrl.apps.reports.curves import Curve, band
from distrl.apps.reports.intervals import Interval
from distrl.apps.reports.pictures import (
    Track,
    Tracks,
    band_picture,
    interval_picture,
    picture,
    small_picture,
    tracks_picture,
)
from distrl.apps.reports.plots import DARK, LIGHT, CurveOptions, Panel, PlotGroup


def line(*values, begin=0.0, step=100_000.0):
    return Curve(begin + step * np.arange(len(values)), np.array(values, np.float64))


def alone(label, *values, **where):
    return PlotGroup(label, (line(*values, **where),), None)


def together(label, *seeds):
    curves = tuple(line(*values) for values in seeds)
    return PlotGroup(label, curves, band(curves))


def words(svg):
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def drawn(*groups, form="svg", palette=LIGHT, legend="", **options):
    return picture([Panel("mean_return_100", groups)], form, CurveOptions(**options), legend, palette)


@pytest.mark.row("P15")
def test_a_png_is_saved(tmp_path):
    (tmp_path / "a.png").write_bytes(drawn(alone("a", 1, 2), form="png"))
    pixels = image.imread(tmp_path / "a.png")
    assert pixels.shape[1] > pixels.shape[0] > 400
    assert len(np.unique(pixels.reshape(-1, pixels.shape[-1]), axis=0)) > 10  # lines, words and grid, not one colour


@pytest.mark.parametrize(("palette", "colour"), [(LIGHT, 255), (DARK, 15)])
def test_the_paper_is_light_or_dark(tmp_path, palette, colour):
    (tmp_path / "a.png").write_bytes(drawn(alone("a", 1, 2), form="png", palette=palette))
    assert round(255 * image.imread(tmp_path / "a.png")[0, 0, 0]) == colour


def test_numbers_have_separators_and_axes_have_names():
    told = words(drawn(alone("a", -1, 2000)))
    assert {"0", "20,000", "100,000", "environment steps", "mean_return_100"} <= {*told}
    assert "mean undiscounted return of the last 100 episodes" in told
    assert {"1,000", "2,000"} <= {*told}


def test_one_run_needs_no_legend_and_two_have_one():
    assert "a" not in words(drawn(alone("a", 1, 2)))
    told = words(drawn(alone("a", 1, 2), alone("b", 1, 2)))
    assert told[-2:] == ["a", "b"]
    assert not any("deviation" in word for word in told)


@pytest.mark.row("P12")
def test_every_group_has_an_entry_in_the_legend():
    groups = together("0.1", (1, 2), (3, 4)), together("0.2", (1, 2), (5, 4))
    told = words(drawn(*groups, legend="network.learning_rate"))
    assert [word for word in told if word.startswith("0.") and "runs" in word] == ["0.1 · 2 runs", "0.2 · 2 runs"]
    assert {"network.learning_rate", "mean ± one standard deviation"} <= {*told}
    assert "interquartile mean, quartiles" in words(drawn(*groups, statistic="iqm"))
    assert not any("0.2" in word for word in words(drawn(groups[0])))


@pytest.mark.row("P09")
def test_a_second_axis_has_its_own_scale_and_name():
    panel = Panel("mean_return_100", (alone("a", 100, 500),), "entropy", (alone("a", 0.2, 0.1),))
    told = words(picture([panel], "svg", CurveOptions()))
    assert {"mean_return_100, solid", "entropy (nats), dashed", "mean_return_100 and entropy"} <= {*told}
    assert {"500", "0.2"} <= {*told}


def test_panels_share_the_x_axis():
    panels = [Panel(name, (alone("a", 1, 2),)) for name in ("loss", "entropy")]
    told = words(picture(panels, "svg", CurveOptions("updates")))
    assert told.count("updates") == 1
    assert {"total loss", "mean entropy of the policy"} <= {*told}


@pytest.mark.parametrize(
    ("seconds", "label", "ticks"),
    [(100, "seconds", ["0", "20", "40"]), (1200, "minutes", ["0", "5", "10"]), (36000, "hours", ["0", "2", "4"])],
)
def test_times_are_in_units_that_suit_them(seconds, label, ticks):
    told = words(drawn(alone("a", 1, 2, step=seconds), over="time"))
    assert f"training time, {label}" in told
    assert told[: len(ticks)] == ticks


def test_labels_are_text_and_no_mathematics_and_not_endless():
    told = words(drawn(alone("$x_1$ <b>", 1, 2), alone("_hidden", 1, 2), alone("a" * 100, 1, 2)))
    assert told[-3:-1] == ["$x_1$ <b>", "_hidden"]
    assert re.fullmatch(r"a{22}…a{21}", told[-1])


def test_more_runs_than_a_legend_holds_are_counted():
    told = words(drawn(*(alone(f"run {place}", place, 2) for place in range(30))))
    assert told[-2:] == ["run 23", "and 6 more"]


def test_the_same_numbers_give_the_same_bytes_and_settings_stay():
    before = dict(mpl.rcParams)
    groups = together("a", (1, 2), (3, 4)), alone("b", 5)
    assert drawn(*groups) == drawn(*groups)
    assert drawn(*groups, form="png") == drawn(*groups, form="png")
    assert dict(mpl.rcParams) == before


def test_letters_that_the_font_lacks_are_no_error():
    assert words(drawn(alone("学习", 1, 2), alone("b", 1, 2)))[-2:] == ["学习", "b"]


def test_a_small_picture_has_no_words_but_those_at_its_axes():
    told = words(small_picture([alone("a", 0, 0), alone("b", 0, 0)], "steps", LIGHT, from_zero=True))
    steps = ["0", "20,000", "40,000", "60,000", "80,000", "100,000"]
    assert told == [*steps, "environment steps", "0", "0.02", "0.04", "0.06", "0.08", "0.1"]


def test_bands_have_a_legend_in_a_file_and_none_in_a_page():
    groups = together("first", (1, 2), (3, 4)), alone("second", 1, 2)
    told = words(band_picture(groups, "steps", "return", "svg", LIGHT, in_page=False))
    assert told[-2:] == ["first", "second"]
    assert {"steps", "return", "20,000"} <= {*told}
    assert not {"first", "second"} & {*words(band_picture(groups, "steps", "return", "svg", LIGHT, in_page=True))}


def test_intervals_are_rows_from_0_to_1():
    rows = {"first": Interval(0.5, 0.2, 0.9), "second": Interval(1.0, 1.0, 1.0)}
    told = words(interval_picture(rows, 0.5, "probability", "svg", LIGHT, in_page=False))
    assert told == ["0", "0.2", "0.4", "0.6", "0.8", "1", "probability", "first", "second"]


def test_a_pdf_has_fonts_that_journals_take():
    groups = [alone("first", 1, 2)]
    drawn = band_picture(groups, "steps", "return", "pdf", LIGHT, in_page=False)
    assert drawn.startswith(b"%PDF-")
    assert b"/Type3" not in drawn
    assert b"/CIDFontType2" in drawn
    assert drawn == band_picture(groups, "steps", "return", "pdf", LIGHT, in_page=False)


def test_a_mark_whose_label_has_no_track_is_left_out():
    points = Curve(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    drawn = [
        tracks_picture([Tracks("score", [Track("a", points, marks)])], "note")
        for marks in ((), [(0.5, 1.5, "gone")], [(0.5, 1.5, "a")])
    ]
    assert drawn[0] == drawn[1] != drawn[2]
