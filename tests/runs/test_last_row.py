import pytest

from distrl.errors import ConfigError
from distrl.runs import last_row as module
from distrl.runs.last_row import last_row
from tests.run_folders import make_run


def written(tmp_path, text):
    path = tmp_path / "metrics.csv"
    path.write_bytes(text)
    return path


def test_the_newest_row_of_a_run(tmp_path):
    row = last_row(make_run(tmp_path / "a") / "metrics.csv")
    assert (row["env_steps"], row["mean_return_100"], row["bottleneck"]) == (3000.0, 20.0, "actors")
    assert row["loss"] is None


@pytest.mark.parametrize("tail", [1, 7, 16384])
@pytest.mark.parametrize(
    ("text", "row"),
    [
        (b"", {}),
        (b"updates,loss", {}),
        (b"updates,loss\n", {}),
        (b"updates,loss\n1,0.", {}),
        (b"updates,loss\n1,0.5\n", {"updates": 1.0, "loss": 0.5}),
        (b"updates,loss\n1,0.5\n2,", {"updates": 1.0, "loss": 0.5}),
        (b"updates,loss\n1,0.5\n22222222222222,\n", {"updates": 22222222222222.0, "loss": None}),
    ],
)
def test_however_little_is_read_at_once(tmp_path, monkeypatch, tail, text, row):
    monkeypatch.setattr(module, "TAIL_BYTES", tail)
    assert last_row(written(tmp_path, text)) == row


def test_not_more_than_the_tail_is_read(tmp_path):
    # What would be an error is far from the end.
    path = written(tmp_path, b"updates,loss\n" + b"nonsense\n" * 10_000 + b"1,0.5\n" * 4000)
    assert last_row(path) == {"updates": 1.0, "loss": 0.5}


def test_a_run_without_the_file_has_no_row(tmp_path):
    assert last_row(tmp_path / "metrics.csv") == {}


@pytest.mark.parametrize("text", [b"1\n", b"1,two\n", b"1,\xff\n", b"1\r2,3\n", b"1,%s\n" % (200_000 * b"2")])
def test_a_damaged_row_is_told_in_one_line(tmp_path, text):
    with pytest.raises(ConfigError, match=r"metrics.csv is damaged: its last row does not fit its header") as caught:
        last_row(written(tmp_path, b"updates,loss\n" + text))
    assert "\n" not in str(caught.value)


def test_a_folder_of_that_name(tmp_path):
    (tmp_path / "metrics.csv").mkdir()
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        last_row(tmp_path / "metrics.csv")
