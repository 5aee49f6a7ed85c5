import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.runs.metrics_csv import read_table
from tests.run_folders import ROWS, make_run


def written(tmp_path, text):
    path = tmp_path / "metrics.csv"
    path.write_text(text)
    return path


def test_what_was_written_is_read(tmp_path):
    table = read_table(make_run(tmp_path / "a") / "metrics.csv")
    np.testing.assert_array_equal(table["env_steps"], [1000.0, 2000.0, 3000.0])
    np.testing.assert_array_equal(table["mean_return_100"], [np.nan, 10.0, 20.0])
    assert all(column.dtype == np.float64 and len(column) == len(ROWS) for column in table.values())
    assert list(table)[:2] == ["updates", "env_steps"]
    assert "bottleneck" not in table


def test_a_row_that_is_being_written_is_left_out(tmp_path):
    table = read_table(written(tmp_path, "updates,loss\n1,0.5\n2,0.2"))
    assert {name: list(column) for name, column in table.items()} == {"updates": [1.0], "loss": [0.5]}


@pytest.mark.parametrize(("text", "columns"), [("", []), ("updates,lo", []), ("updates,loss\n", ["updates", "loss"])])
def test_before_the_first_row(tmp_path, text, columns):
    table = read_table(written(tmp_path, text))
    assert list(table) == columns
    assert [len(column) for column in table.values()] == [0] * len(columns)
    assert len(table) == len(columns)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("updates,loss\n1,2\n3\n", "row '3' has 1 cell, not 2"),
        ("updates,loss\n1,2,3\n", "row '1,2,3' has 3 cells, not 2"),
        ("updates,loss\n1,two\n", "could not convert string to float: b?'?two"),
        (f"updates,loss\n1,{'9' * 200_000}\n", "a cell of 200,000 letters is no number"),
        (b"updates\n\xff\n", "could not convert string to float"),
        (None, "cannot be read: .*No such file"),
    ],
)
def test_what_is_no_table(tmp_path, text, message):
    path = tmp_path / "metrics.csv"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=message) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)
