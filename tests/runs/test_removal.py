import fcntl
import os

import pytest

from distrl.errors import ConfigError
from distrl.runs import removal
from distrl.runs.directories import run_directories
from distrl.runs.removal import remove_run_directory


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "sweep" / "a"
    (folder / "logs").mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    return folder


def test_a_run_is_removed_and_what_it_links_to_is_not(tmp_path, run):
    other = tmp_path / "other"
    other.mkdir()
    (other / "kept").write_text("x")
    (run / "logs" / "linked").symlink_to(other)
    (run.parent / "beside").write_text("x")
    remove_run_directory(tmp_path, run)
    assert [path.name for path in run.parent.iterdir()] == ["beside"]
    assert (other / "kept").exists()


def test_a_run_that_has_not_ended_stays(tmp_path, run):
    descriptor = os.open(run, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(ConfigError, match="has not ended"):
        remove_run_directory(tmp_path, run)
    os.close(descriptor)
    assert (run / "run.json").exists()


def test_links_are_refused(tmp_path, run):
    outside = tmp_path / "outside"
    (outside / "b").mkdir(parents=True)
    (outside / "b" / "run.json").write_text("{}")
    root = run.parent
    (root / "by link").symlink_to(outside)
    (root / "itself").symlink_to(outside / "b")
    for folder in (root / "by link" / "b", root / "itself"):
        with pytest.raises(ConfigError):
            remove_run_directory(root, folder)
    assert (outside / "b" / "run.json").exists()


@pytest.mark.parametrize("folder", [".", "../elsewhere", "not there"])
def test_what_is_no_run_below_the_folder_is_refused(tmp_path, run, folder):
    with pytest.raises(ConfigError):
        remove_run_directory(run.parent, run.parent / folder if folder != "." else run.parent)
    assert run.exists()


def test_what_is_left_of_an_interrupted_removal_is_no_run(tmp_path, run, monkeypatch):
    def fail(*_, **__):
        raise PermissionError(1, "not permitted", "logs")

    monkeypatch.setattr(removal.shutil, "rmtree", fail)
    with pytest.raises(ConfigError, match="cannot be removed whole: logs: not permitted"):
        remove_run_directory(tmp_path, run)
    assert [*run_directories(tmp_path, pytest.fail)] == []


def test_a_run_that_holds_another_one_stays(tmp_path, run):
    inner = run / "inner"
    inner.mkdir()
    (inner / "run.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"holds another run, .*inner"):
        remove_run_directory(tmp_path, run)
    assert (inner / "run.json").exists()


def test_a_run_that_holds_a_mounted_file_system_stays(tmp_path, run, monkeypatch):
    monkeypatch.setattr(removal, "_mounts", lambda: {str((run / "logs").resolve())})
    with pytest.raises(ConfigError, match=r"logs is a mounted file system; unmount it first"):
        remove_run_directory(tmp_path, run)
    assert (run / "logs").exists()


def test_mounted_file_systems_are_known_where_the_kernel_tells_them():
    assert "/" in removal._mounts()


def test_a_run_with_a_thousand_folders_in_each_other_is_removed_not_at_all(tmp_path, run):
    deepest = run / "/".join(["d"] * (removal.MOST_DEPTH + 1))
    deepest.mkdir(parents=True)
    with pytest.raises(ConfigError, match="by hand"):
        remove_run_directory(tmp_path, run)
    assert deepest.exists()
