"""Names appear last and vanish first. Crashes between the steps are in test_checkpoints.py."""

import os

import pytest

from distrl.data_store import atomic


def tree(directory):
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


def test_put_directory(tmp_path):
    atomic.put_directory(tmp_path / "a", {"x": b"1", "y": b"2"})
    assert tree(tmp_path) == {"a/x": "1", "a/y": "2"}


def test_the_directory_that_was_there_steps_aside_until_it_is_removed(tmp_path):
    for content in (b"1", b"2", b"3"):
        atomic.put_directory(tmp_path / "a", {"x": content})
    assert tree(tmp_path) == {"a/x": "3", "a.replaced/x": "2"}
    atomic.remove_directory(atomic.replaced(tmp_path / "a"))
    assert tree(tmp_path) == {"a/x": "3"}
    atomic.remove_directory(tmp_path / "missing")


def test_put_file_replaces(tmp_path):
    atomic.put_file(tmp_path / "best", b"1")
    atomic.put_file(tmp_path / "best", b"2")
    assert tree(tmp_path) == {"best": "2"}


def test_a_file_whose_writing_raises_is_not_put(tmp_path):
    atomic.put_file(tmp_path / "a", b"old")

    def torn():
        with atomic.file(tmp_path / "a") as opened:
            opened.write(b"ne")
            raise ValueError("torn")

    with pytest.raises(ValueError, match="torn"):
        torn()
    assert tree(tmp_path) == {"a": "old"}
    with atomic.file(tmp_path / "a") as opened:
        opened.write(b"new")
    assert tree(tmp_path)["a"] == "new"


def test_ctrl_c_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    for put in (
        lambda: atomic.put_file(tmp_path / "a", b"1"),
        lambda: atomic.put_directory(tmp_path / "b", {"x": b"2"}),
    ):
        with pytest.raises(KeyboardInterrupt):
            put()
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_replaced_leaves_nothing_behind(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        atomic.put_file(tmp_path / "a", b"1")
    assert os.listdir(tmp_path) == ["a"]


def test_a_private_file_is_its_owners(tmp_path):
    atomic.put_file(tmp_path / "key", b"1", private=True)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_leaves_the_old_and_nothing_else(tmp_path, monkeypatch):
    atomic.put_directory(tmp_path / "a", {"x": b"1"})

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        atomic.put_directory(tmp_path / "b", {"x": b"2"})
    with pytest.raises(OSError, match="No space left"):
        atomic.put_file(tmp_path / "c", b"3")
    assert os.listdir(tmp_path) == ["a"]
    assert tree(tmp_path) == {"a/x": "1"}


def test_temporaries_of_a_crash_are_removed(tmp_path):
    (tmp_path / ".tmp-b").mkdir()
    (tmp_path / ".tmp-b" / "x").write_text("2")
    (tmp_path / ".tmp-c").write_text("3")
    (tmp_path / ".tmp-d").write_text("4")
    atomic.remove_temporaries(tmp_path, spare="d")
    assert os.listdir(tmp_path) == [".tmp-d"]
    atomic.remove_temporaries(tmp_path)
    assert os.listdir(tmp_path) == []
