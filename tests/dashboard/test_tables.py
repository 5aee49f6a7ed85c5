import numpy as np
import pytest

from distrl.dashboard import tables
from distrl.dashboard.tables import Tables
from distrl.errors import ConfigError
from distrl.metrics.sinks import CsvSink
from distrl.metrics.snapshot import COLUMNS


@pytest.fixture
def counted(monkeypatch):
    """How often the whole of a file is read."""
    reads = []
    real = tables.read_table
    monkeypatch.setattr(tables, "read_table", lambda path: reads.append(path) or real(path))
    return reads


@pytest.fixture
def sink_in():
    """Makes sinks, and closes them."""
    sinks = []

    def make(folder):
        sinks.append(CsvSink(folder / "metrics.csv"))
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


def rows(sink, *updates):
    for update in updates:
        sink.write({"updates": update, "env_steps": 10 * update, "bottleneck": f"b{update}"})


def test_a_table_grows_without_being_read_again(tmp_path, counted, sink_in):
    kept, sink = Tables(), sink_in(tmp_path)
    rows(sink, 1, 2)
    assert kept.table(tmp_path)["env_steps"].tolist() == [10.0, 20.0]
    rows(sink, 3, 4, 5)
    table = kept.table(tmp_path)
    assert table["env_steps"].tolist() == [10.0, 20.0, 30.0, 40.0, 50.0]
    assert list(table.texts["bottleneck"]) == ["b1", "b2", "b3", "b4", "b5"]
    assert np.isnan(table["loss"]).tolist() == [True] * 5
    assert kept.table(tmp_path) is table
    assert len(counted) == 1


def test_a_row_that_is_being_written_waits(tmp_path, counted, sink_in):
    kept, sink = Tables(), sink_in(tmp_path)
    rows(sink, 1)
    kept.table(tmp_path)
    path = tmp_path / "metrics.csv"
    whole = path.read_bytes()
    row = whole.splitlines(keepends=True)[1].replace(b"1,10", b"2,20", 1)
    path.write_bytes(whole + row[:3])
    assert kept.table(tmp_path)["updates"].tolist() == [1.0]
    path.write_bytes(whole + row)
    assert kept.table(tmp_path)["updates"].tolist() == [1.0, 2.0]


def test_rows_that_are_taken_back_on_resuming(tmp_path, counted, sink_in):
    kept, sink = Tables(), sink_in(tmp_path)
    rows(sink, 1, 2, 3)
    kept.table(tmp_path)
    rows(sink, 2, 3, 4, 5)  # replaces
    assert kept.table(tmp_path)["updates"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    sink.write({"updates": 5, "env_steps": 999})
    assert kept.table(tmp_path)["env_steps"].tolist() == [10.0, 20.0, 30.0, 40.0, 999.0]


def test_the_newest_row(tmp_path, sink_in):
    kept, sink = Tables(), sink_in(tmp_path)
    assert kept.last(tmp_path) == {}
    rows(sink, 1, 2)
    assert kept.last(tmp_path) == {"updates": 2.0, "env_steps": 20.0, "bottleneck": "b2"}


def test_no_table_and_a_damaged_one(tmp_path):
    assert len(Tables().table(tmp_path)) == 0
    (tmp_path / "metrics.csv").write_text("a,b\n1\n")
    with pytest.raises(ConfigError, match="not a table of metrics"):
        Tables().table(tmp_path)


def test_damage_behind_what_was_read_is_told(tmp_path):
    kept = Tables()
    path = tmp_path / "metrics.csv"
    path.write_text("updates,env_steps\n1,2\n")
    kept.table(tmp_path)
    path.write_text("updates,env_steps\n1,2\n3\n")
    with pytest.raises(ConfigError, match="line 3 has not 2 cells"):
        kept.table(tmp_path)


def test_what_was_not_asked_for_lately_goes_first(tmp_path, monkeypatch, counted, sink_in):
    one = 8 * 3 * len(COLUMNS)  # bytes of three rows
    monkeypatch.setattr(tables, "MOST_BYTES", int(2.5 * one))
    kept = Tables()
    for name in "abc":
        (tmp_path / name).mkdir()
        sink = sink_in(tmp_path / name)
        rows(sink, 1, 2, 3)
        kept.table(tmp_path / name)
    for name in "cb":
        kept.table(tmp_path / name)
    assert [path.parent.name for path in counted] == ["a", "b", "c"]
    kept.table(tmp_path / "a")
    assert [path.parent.name for path in counted] == ["a", "b", "c", "a"]
