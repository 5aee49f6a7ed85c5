import csv

import pytest

from distrl.errors import ConfigError
from distrl.metrics.snapshot import COLUMNS
from distrl.observers.metrics_csv import CsvSink


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def column(path, name):
    return [row[name] for row in rows(path)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.csv"


def test_header_once_and_each_row_at_once(path):
    sink = CsvSink(path)
    sink.write({"updates": 1, "env_steps": 2048, "loss": 0.1, "mean_return_100": None, "bottleneck": "actors"})
    assert column(path, "env_steps") == ["2048"]  # before the sink is closed
    sink.write({"updates": 2, "loss": 1 / 3})
    sink.close()
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)
    assert column(path, "loss") == ["0.1", "0.3333333333333333"]
    assert column(path, "mean_return_100") == ["", ""]
    assert column(path, "bottleneck") == ["actors", ""]


def test_floats_read_back_exactly(path):
    sink = CsvSink(path)
    values = [0.1, 1e-300, 123456789.123456789, 2.0]
    for updates, value in enumerate(values, 1):
        sink.write({"updates": updates, "loss": value})
    sink.close()
    assert [float(cell) for cell in column(path, "loss")] == values


def test_the_first_snapshots_own_metrics_get_columns_and_later_ones_are_refused(path):
    sink = CsvSink(path)
    sink.write({"updates": 1, "zeta": 1.0, "alpha": 2.0, "stop_reason": None, "first_update_unix_s": 1e9})
    assert path.read_text().splitlines()[0] == ",".join([*COLUMNS, "alpha", "zeta"])
    with pytest.raises(ValueError, match=r"no column of .*metrics\.csv is named beta"):
        sink.write({"updates": 2, "beta": 1.0})
    sink.close()
    assert column(path, "updates") == ["1"]


def test_a_resumed_file_gets_the_columns_that_its_algorithm_reports_by_now(path):
    earlier = CsvSink(path)
    earlier.write({"updates": 1, "zeta": 1.0})
    earlier.close()
    resumed = CsvSink(path)
    resumed.write({"updates": 2, "alpha": 3.0, "zeta": 2.0})
    with pytest.raises(ValueError, match=r"no column of .*metrics\.csv is named beta"):
        resumed.write({"updates": 3, "beta": 1.0})
    resumed.write({"updates": 3, "alpha": 5.0})
    resumed.close()
    assert path.read_text().splitlines()[0] == ",".join([*COLUMNS, "zeta", "alpha"])
    assert [column(path, name) for name in ("updates", "zeta", "alpha")] == [
        ["1", "2", "3"],
        ["1.0", "2.0", ""],
        ["", "3.0", "5.0"],
    ]


@pytest.mark.row("L16")
def test_what_every_network_has_others_of_gets_no_column(path):
    sink = CsvSink(path)
    sink.write({"updates": 1, "relu_zeros_max": 0.5, "network/relu_zeros/hidden": 0.5})
    sink.write({"updates": 2, "relu_zeros_max": 0.75, "network/relu_zeros/other": 0.75})
    sink.close()
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)
    assert column(path, "relu_zeros_max") == ["0.5", "0.75"]


def test_a_row_is_one_line(path):
    sink = CsvSink(path)
    sink.write({"updates": 1, "bottleneck": 'the "env",\nslow'})
    sink.close()
    assert len(path.read_text().splitlines()) == 2
    assert column(path, "bottleneck") == ['the "env", slow']


def test_a_resumed_run_replaces_the_rows_it_repeats(path):
    sink = CsvSink(path)
    for updates in (10, 20, 30, 40):
        sink.write({"updates": updates, "loss": float(updates)})
    sink.close()
    sink = CsvSink(path)  # resumed from a checkpoint at 25
    sink.write({"updates": 30, "loss": 0.5})
    assert column(path, "updates") == ["10", "20", "30"]
    sink.write({"updates": 40, "loss": 0.25})
    sink.close()
    assert column(path, "loss") == ["10.0", "20.0", "0.5", "0.25"]
    assert path.read_text().count("updates,") == 1


def test_a_learner_that_restarts_within_the_run_does_the_same(path):
    sink = CsvSink(path)
    for updates in (1, 2, 3, 2, 3, 3):
        sink.write({"updates": updates})
    sink.close()
    assert column(path, "updates") == ["1", "2", "3"]


@pytest.mark.parametrize("line", [b"\xff,1\n", b"many,1\n", b"\n"])
def test_a_damaged_file_is_named_with_its_line_and_left_as_it_is(path, line):
    content = b"updates,env_steps\n1,8\n" + line + b"3,24\n"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"metrics.csv is damaged in line 3: .*; move it away to go on"):
        CsvSink(path)
    assert path.read_bytes() == content


def test_a_row_torn_by_a_crash_is_cut_off(path):
    sink = CsvSink(path)
    sink.write({"updates": 1, "env_steps": 5})
    sink.close()
    with path.open("a") as file:
        file.write("2,10")
    sink = CsvSink(path)
    sink.write({"updates": 2, "env_steps": 11})
    sink.close()
    assert column(path, "env_steps") == ["5", "11"]


def test_a_file_of_an_earlier_version_gets_the_columns_that_it_lacks(path):
    path.write_text("updates,env_steps\n1,10\n2,20\n")
    sink = CsvSink(path)
    sink.write({"updates": 3, "env_steps": 30, "actors_wanted": 4})
    sink.write({"updates": 3, "env_steps": 31, "actors_wanted": 5})  # replaces the row before, as ever
    sink.close()
    assert path.read_text() == "updates,env_steps,actors_wanted\n1,10,\n2,20,\n3,31,5\n"
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_file_is_continued_under_its_own_header(path):
    path.write_text("wall_s,updates\n1.5,7\n")
    sink = CsvSink(path)
    sink.write({"updates": 8, "wall_s": 2.5})
    sink.close()
    assert path.read_text() == "wall_s,updates\n1.5,7\n2.5,8\n"
