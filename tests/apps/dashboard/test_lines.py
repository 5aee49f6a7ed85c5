import csv

import numpy as np
import pytest

from distrl.apps.dashboard.lines import csv_pieces, mark_of, needed, rows_before, ruler, stretch, with_derived


@pytest.fixture
def table():
    rows = np.arange(1.0, 1001.0)
    axes = {"env_steps": 100 * rows, "updates": rows, "episodes": rows // 2, "wall_s": rows / 4}
    return axes | {"loss": rows.copy(), "sampled_steps": 8 * rows, "trained_steps": 2 * rows}


def test_a_stretch_has_finer_points_and_one_more_at_either_side(table):
    whole = stretch(table, "loss", "steps", 1, None, 20)
    part = stretch(table, "loss", "steps", 1, (10_000.0, 10_500.0), 20)
    assert len(whole.x) <= 20
    assert part.x.tolist() == [9900.0, 10000.0, 10100.0, 10200.0, 10300.0, 10400.0, 10500.0, 10600.0]
    smooth = stretch(table, "loss", "steps", 3, (10_000.0, 10_100.0), 20)
    assert smooth.y.tolist() == [98.0, 99.0, 100.0, 101.0]  # means of what lies before the stretch, too
    assert len(stretch(table, "loss", "steps", 1, (1e9, 2e9), 20).x) == 1


def test_the_ruler_has_the_same_points_on_every_axis(table):
    table["wall_s"][3] = np.nan
    found = ruler(table, "updates")
    assert set(found) == {"steps", "updates", "episodes", "time"}
    assert len(found["steps"]) == len(found["time"]) == 300
    assert [found["steps"][0], found["steps"][-1], found["time"][-1]] == [100.0, 100_000.0, 250.0]
    assert 4.0 not in found["updates"]
    assert ruler({}, "steps") == {}


def test_new_points_continue_a_line_as_if_it_had_been_drawn_at_once(table):
    table["loss"][[100, 995]] = np.nan
    early = {name: values[:990] for name, values in table.items()}
    mark = mark_of(7, early)
    rows = rows_before(mark, 7, table)
    assert rows == 990
    for window in (1, 9):
        whole = stretch(table, "loss", "steps", window, None, 4000)
        old, new = (
            stretch(early, "loss", "steps", window, None, 4000),
            stretch(table, "loss", "steps", window, None, 4000, rows),
        )
        assert [*old.x, *new.x] == whole.x.tolist()
        np.testing.assert_allclose([*old.y, *new.y], whole.y)
    assert len(new.x) == 9
    assert ruler(table, "steps", rows) == {
        "steps": [100_000.0],
        "updates": [1000.0],
        "episodes": [500.0],
        "time": [250.0],
    }
    assert ruler(table, "steps", 1000) == {"steps": [], "updates": [], "episodes": [], "time": []}


def test_new_points_of_a_stretch_are_those_that_it_did_not_have(table):
    found = {since: stretch(table, "loss", "steps", 1, (0.0, 400.0), 20, since).x.tolist() for since in (2, 4, 5, 150)}
    assert found == {2: [300.0, 400.0, 500.0], 4: [500.0], 5: [], 150: []}


@pytest.mark.parametrize("mark", ["", "7", "8.990", "7.1001", "7.-1", "7.1e2", "7.\u0669", "x.990"])
def test_marks_that_are_not_of_this_table(table, mark):
    assert rows_before(mark, 7, table) == 0


def test_a_table_whose_rows_may_change_has_no_mark(table):
    assert mark_of(0, table) == ""
    assert rows_before("0.990", 0, table) == 0
    assert mark_of(7, {}) == ""


def test_samples_per_insert_is_the_quotient_of_two_columns(table):
    assert needed(["samples_per_insert", "loss"])[-3:] == ["sampled_steps", "trained_steps", "loss"]
    assert set(with_derived(table, ["samples_per_insert"])["samples_per_insert"]) == {4.0}
    assert "samples_per_insert" not in with_derived({}, ["samples_per_insert"])


def test_csv_has_every_row_with_a_number_and_names_of_any_letters(table):
    table["my metric, [x]"] = np.full(1000, np.nan)
    table["my metric, [x]"][[2, 999]] = (0.5, 7.0)
    rows = [*csv.reader("".join(csv_pieces(table, ["my metric, [x]", "none_such"])).splitlines())]
    assert rows == [
        ["env_steps", "updates", "episodes", "wall_s", "my metric, [x]"],
        ["300", "3", "1", "0.75", "0.5"],
        ["100000", "1000", "500", "250", "7"],
    ]
    assert len("".join(csv_pieces(table, ["loss"])).splitlines()) == 1001
    assert [*csv_pieces({}, ["loss"])] == ["\n"]


def test_names_of_columns_are_no_formulas_in_spreadsheets(table):
    name = '=HYPERLINK("http://x")'
    header = next(iter(csv_pieces({**table, name: table["env_steps"]}, [name])))
    assert header.strip().split(",")[-1] == '"\'=HYPERLINK(""http://x"")"'
