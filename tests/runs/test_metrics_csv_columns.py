"""Columns read in blocks against the csv module, and thinned columns against a slow twin."""

import csv
import random
import tracemalloc

import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.runs import metrics_csv as module
from distrl.runs.last_row import read_header
from distrl.runs.metrics_csv import Column, extend_columns, read_table


def read(path, *names):
    columns = {name: Column() for name in names}
    with path.open("rb") as file:
        header = read_header(file, path)
        end = extend_columns(file, path, header, columns, header.end, path.stat().st_size)
    return {name: column.values for name, column in columns.items()}, end


def written(tmp_path, text):
    path = tmp_path / "metrics.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("block", [64, 1000, 2**21])
def test_columns_are_those_of_the_whole_table(tmp_path, monkeypatch, block):
    monkeypatch.setattr(module, "BLOCK_BYTES", block)
    draw = random.Random(7)
    cells = [
        lambda: str(draw.randrange(10**12)),
        lambda: repr(draw.uniform(-1e3, 1e3)),
        lambda: repr(10.0 ** draw.randrange(-20, 20)),
        lambda: draw.choice(["", "-0.5", "1e-05", "nan", "inf", "+3", "1."]),
    ]
    lines = ["n,x,small,odd,bottleneck", *(",".join([*(cell() for cell in cells), "actors"]) for _ in range(300))]
    path = written(tmp_path, "\n".join(lines) + "\n7,8")
    found, end = read(path, "n", "x", "small", "odd")
    whole, slow = read_table(path), [*csv.DictReader(path.read_text().splitlines()[:-1])]
    for name, values in found.items():
        np.testing.assert_array_equal(values, [float(row[name] or "nan") for row in slow])
        np.testing.assert_array_equal(values, whole[name])
    assert end == path.stat().st_size - len("7,8")


def test_quoted_names_and_cells(tmp_path):
    found, _ = read(written(tmp_path, 'a,"b,c"\n1,"2"\n3,4\n'), "b,c", "a")
    assert {name: values.tolist() for name, values in found.items()} == {"b,c": [2.0, 4.0], "a": [1.0, 3.0]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n1\n", "row '1' has 1 cell, not 2"),
        ("a,b\n1,2\n\n", "row '' has 1 cell, not 2"),
        ("a,b\n1,2,3\n4\n", "row '1,2,3' has 3 cells, not 2"),
        ('a,b\n"1",2,3\n', "row '1,2,3' has 3 cells, not 2"),
        (f"a,b\n{',' * 5000}\n", f"row '{',' * 60}' has 5001 cells, not 2"),
        ("a,b\n1,two\n", "could not convert"),
        ("a,b\n1,[2]\n", "not a table of metrics"),
        ("a,b\n1,{}\n", "not a table of metrics"),
        (f"a,b\n1,{'2' * 5000}\n", "5,000 letters"),
        (f"a,b\n1,{'2' * 3_000_000}\n", "longer than 1,048,576"),
        (f"a,b\n1,{'2' * 3_000_000}", "longer than 1,048,576"),
        ("a" * 2_000_000, "first line is longer"),
        ("a,b\n1,2\r3,4\n", "row '1,2.r3,4' has 3 cells, not 2"),
        (f'a,b\n"1",{"2" * 200_000}\n', "field larger"),
    ],
)
def test_damage_is_told_in_one_line(tmp_path, text, told):
    with pytest.raises(ConfigError, match=told) as caught:
        read(written(tmp_path, text), "b")
    assert "\n" not in str(caught.value)


def test_a_whole_number_beyond_every_float_is_infinite(tmp_path):
    found, _ = read(written(tmp_path, f"a\n1\n{'9' * 350}\n"), "a")
    assert found["a"].tolist() == [1.0, np.inf]


def test_one_long_cell_among_many_short_ones_takes_little_memory(tmp_path):
    path = written(tmp_path, "a\n" + "1\n" * 200_000 + f"{'0' * 398}2\n")
    tracemalloc.start()
    found, _ = read(path, "a")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(found["a"]), found["a"][-1]) == (200_001, 2.0)
    assert peak < 100 * 2**20


@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_a_long_column_is_thinned_and_keeps_the_extremes_of_every_stretch(pieces):
    rows = np.random.default_rng(3).normal(size=1000)
    rows[100:164] = np.nan
    column = Column(64)
    for piece in np.array_split(rows, pieces):
        column.extend(piece)
        assert column.nbytes <= 8 * (64 + 32)  # two values a stretch, and less than one stretch beside them
    values = column.values
    stretch = 32  # 1000 rows in at most 32 stretches
    whole = len(rows) // stretch * stretch
    expected = []
    for begin in range(0, whole, stretch):
        part = rows[begin : begin + stretch]
        known = np.isfinite(part)
        if not known.any():
            expected += [part[0], part[0]]
        else:
            at = sorted([int(np.nanargmin(part)), int(np.nanargmax(part))])
            expected += [*part[at]]
    np.testing.assert_array_equal(values[: len(expected)], expected)
    np.testing.assert_array_equal(values[len(expected) :], rows[whole:])


def test_columns_that_never_fall_keep_the_ends_of_every_stretch_and_all_lengths_agree():
    steps, other = Column(16), Column(16)
    for begin in range(0, 200, 10):
        steps.extend(np.arange(begin, begin + 10, dtype=float))
        other.extend(np.cos(np.arange(begin, begin + 10)))
        assert len(steps.values) == len(other.values)
        assert (np.diff(steps.values) >= 0).all()
        assert (steps.values[0], steps.values[-1]) == (0.0, begin + 9)
