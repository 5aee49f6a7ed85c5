import threading

import numpy as np
import pytest

from distrl.apps.dashboard import metrics_cache
from distrl.apps.dashboard.metrics_cache import Tables
from distrl.errors import ConfigError
from distrl.observers.metrics_csv import CsvSink

NAMES = ("updates", "env_steps", "loss", "bottleneck", "none_such")


@pytest.fixture
def read(monkeypatch):
    """(name of the run, bytes) of every stretch of a file that was read."""
    stretches = []
    real = metrics_cache.extend_columns

    def counting(file, path, header, columns, begin, end):
        stretches.append((path.parent.name, end - begin))
        return real(file, path, header, columns, begin, end)

    monkeypatch.setattr(metrics_cache, "extend_columns", counting)
    return stretches


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


def test_a_table_grows_without_being_read_again(tmp_path, read, sink_in):
    kept, sink = Tables(), sink_in(tmp_path)
    rows(sink, 1, 2)
    size = (tmp_path / "metrics.csv").stat().st_size
    assert kept.table(tmp_path, NAMES)["env_steps"].tolist() == [10.0, 20.0]
    rows(sink, 3, 4, 5)
    table = kept.table(tmp_path, NAMES)
    assert [*table] == ["updates", "env_steps", "loss"]
    assert table["env_steps"].tolist() == [10.0, 20.0, 30.0, 40.0, 50.0]
    assert np.isnan(table["loss"]).tolist() == [True] * 5
    kept.table(tmp_path, NAMES)
    assert [length for _, length in read[1:]] == [(tmp_path / "metrics.csv").stat().st_size - size]


def test_only_what_was_asked_for_is_held(tmp_path, sink_in):
    kept, sink = Tables(), sink_in(tmp_path)
    rows(sink, *range(100))
    kept.table(tmp_path, ["updates"])
    assert kept.nbytes == 8 * 100
    assert kept.table(tmp_path, ["env_steps"])["env_steps"].tolist() == [10.0 * row for row in range(100)]
    assert kept.nbytes == 2 * 8 * 100


def test_a_row_that_is_being_written_waits(tmp_path, sink_in):
    kept, sink = Tables(), sink_in(tmp_path)
    rows(sink, 1)
    kept.table(tmp_path, NAMES)
    path = tmp_path / "metrics.csv"
    whole = path.read_bytes()
    row = whole.splitlines(keepends=True)[1].replace(b"1,10", b"2,20", 1)
    path.write_bytes(whole + row[:3])
    assert kept.table(tmp_path, NAMES)["updates"].tolist() == [1.0]
    path.write_bytes(whole + row)
    assert kept.table(tmp_path, NAMES)["updates"].tolist() == [1.0, 2.0]


def test_rows_that_are_taken_back_on_resuming(tmp_path, sink_in):
    kept, sink = Tables(), sink_in(tmp_path)
    rows(sink, 1, 2, 3)
    kept.table(tmp_path, NAMES)
    rows(sink, 2, 3, 4, 5)  # replaces
    assert kept.table(tmp_path, NAMES)["updates"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    sink.write({"updates": 5, "env_steps": 999})
    assert kept.table(tmp_path, NAMES)["env_steps"].tolist() == [10.0, 20.0, 30.0, 40.0, 999.0]


def test_the_edition_stays_while_rows_are_appended(tmp_path, sink_in, monkeypatch):
    kept, sink = Tables(), sink_in(tmp_path)
    rows(sink, 1, 2)
    first = kept.edition(tmp_path, NAMES).number
    rows(sink, 3, 4)
    assert kept.edition(tmp_path, NAMES).number == kept.edition(tmp_path, ["updates"]).number == first > 0
    sink.write({"updates": 3, "env_steps": 999})  # takes rows back
    rows(sink, 4, 5)
    second = kept.edition(tmp_path, NAMES).number
    assert second not in (0, first)
    monkeypatch.setattr(kept._files[tmp_path.resolve() / "metrics.csv"]._columns["updates"], "_stretch", 4)
    assert kept.edition(tmp_path, NAMES).number == 0  # thinned: earlier rows change
    assert kept.edition(tmp_path / "none", NAMES) == (0, {})


def test_the_newest_row_and_the_names(tmp_path, sink_in, read):
    kept, sink = Tables(), sink_in(tmp_path)
    assert kept.last(tmp_path) == {}
    assert kept.names(tmp_path) == []
    rows(sink, 1, 2)
    assert kept.last(tmp_path) == {"updates": 2.0, "env_steps": 20.0, "bottleneck": "b2"}
    assert {"updates", "loss"} < {*kept.names(tmp_path)}
    assert "bottleneck" not in kept.names(tmp_path)
    assert read == []


def test_no_table_and_a_damaged_one(tmp_path, read):
    kept = Tables()
    assert len(kept.table(tmp_path, NAMES)) == 0
    path = tmp_path / "metrics.csv"
    path.write_text("updates,b\n1\n")
    for _ in range(3):
        with pytest.raises(ConfigError, match="not a table of metrics"):
            kept.table(tmp_path, NAMES)
    assert len(read) == 1  # not again before it changes
    path.write_text("updates,b\n1,2\n")
    assert kept.table(tmp_path, NAMES)["updates"].tolist() == [1.0]


def test_damage_behind_what_was_read_is_told(tmp_path):
    kept = Tables()
    path = tmp_path / "metrics.csv"
    path.write_text("updates,env_steps\n1,2\n")
    kept.table(tmp_path, NAMES)
    path.write_text("updates,env_steps\n1,2\n3\n")
    with pytest.raises(ConfigError, match="row '3' has 1 cell, not 2"):
        kept.table(tmp_path, NAMES)


def test_what_was_not_asked_for_lately_goes_first(tmp_path, monkeypatch, read, sink_in):
    one = 8 * 3 * 3  # bytes of three rows of three columns
    monkeypatch.setattr(metrics_cache, "MOST_BYTES", int(2.5 * one))
    kept = Tables()
    for name in "abc":
        (tmp_path / name).mkdir()
        sink = sink_in(tmp_path / name)
        rows(sink, 1, 2, 3)
        kept.table(tmp_path / name, NAMES)
    for name in "cb":
        kept.table(tmp_path / name, NAMES)
    assert [name for name, _ in read] == ["a", "b", "c"]
    kept.table(tmp_path / "a", NAMES)
    assert [name for name, _ in read] == ["a", "b", "c", "a"]
    assert kept.nbytes <= 2.5 * one


def test_columns_of_one_large_file_give_way_to_others(tmp_path, monkeypatch, sink_in):
    monkeypatch.setattr(metrics_cache, "MOST_BYTES", 8 * 50 * 3)
    kept, sink = Tables(), sink_in(tmp_path)
    rows(sink, *range(50))
    for name in ("updates", "env_steps", "loss", "entropy", "updates"):
        assert len(kept.table(tmp_path, [name])[name]) == 50
        assert kept.nbytes <= 8 * 50 * 3


def test_a_file_that_takes_long_keeps_only_its_own_page_waiting(tmp_path, monkeypatch, sink_in):
    for name in "ab":
        (tmp_path / name).mkdir()
        rows(sink_in(tmp_path / name), 1)
    began, go_on = threading.Event(), threading.Event()
    real = metrics_cache.extend_columns

    def slow(file, path, *rest):
        if path.parent.name == "a":
            began.set()
            assert go_on.wait(60)
        return real(file, path, *rest)

    monkeypatch.setattr(metrics_cache, "extend_columns", slow)
    kept = Tables()
    waiting = threading.Thread(target=kept.table, args=(tmp_path / "a", NAMES))
    waiting.start()
    try:
        assert began.wait(60)
        assert kept.table(tmp_path / "b", NAMES)["updates"].tolist() == [1.0]
    finally:
        go_on.set()
        waiting.join()
