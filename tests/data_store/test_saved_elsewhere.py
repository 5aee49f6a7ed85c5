import json
import os
from pathlib import Path

import pytest

from distrl.data_store.saved_elsewhere import new_folder, newest_resumable


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The temporary directory; there is no home."""
    folder = tmp_path / "place"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    return folder


def holding(folder: Path, *updates: int, run_id: str = "r1", at: int = 1000) -> Path:
    """A directory of a run with checkpoints, written at a time."""
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps({"run_id": run_id}))
    for update in updates:
        checkpoint = folder / "checkpoints" / f"ckpt-{update:012}"
        checkpoint.mkdir(parents=True)
        os.utime(checkpoint, (at, at))
    return folder


@pytest.fixture
def run_dir(tmp_path, place):
    return holding(tmp_path / "my [run]", 5)


def test_without_folders_a_run_goes_on_in_its_own_directory(run_dir):
    assert newest_resumable(run_dir) == run_dir


def test_a_run_without_a_checkpoint_cannot_go_on(tmp_path, place):
    assert newest_resumable(holding(tmp_path / "run")) is None
    assert newest_resumable(tmp_path / "none") is None


def test_a_folder_with_later_updates_comes_before_the_runs_own_directory(run_dir, place):
    older = holding(new_folder(place, run_dir), 7, at=2000)
    newer = holding(new_folder(place, run_dir), 9, at=3000)
    assert newest_resumable(run_dir) == newer != older


def test_a_folder_is_enough_where_the_run_has_saved_nothing(tmp_path, place):
    run_dir = holding(tmp_path / "run")
    folder = holding(new_folder(place, run_dir), 7)
    assert newest_resumable(run_dir) == folder


@pytest.mark.parametrize(
    ("updates", "about"),
    [
        (4, {}),  # earlier updates
        (9, {"at": 10}),  # written before: the run has gone on without it
        (9, {"run_id": "r2"}),  # of another run in a directory of the same name
    ],
)
def test_other_folders_are_passed_over(run_dir, place, updates, about):
    holding(new_folder(place, run_dir), updates, **{"at": 2000, **about})
    assert newest_resumable(run_dir) == run_dir


def test_links_and_folders_of_other_users_are_passed_over(run_dir, place, tmp_path, monkeypatch):
    holding(tmp_path / "aside", 9, at=2000)
    (place / f"saved-by-distrl-{run_dir.name}-link").symlink_to(tmp_path / "aside")
    assert newest_resumable(run_dir) == run_dir
    holding(new_folder(place, run_dir), 9, at=2000)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    assert newest_resumable(run_dir) == run_dir


def test_a_damaged_manifest_names_no_folder(run_dir, place):
    folder = holding(new_folder(place, run_dir), 9, at=2000)
    (folder / "manifest.json").write_text("[]")
    assert newest_resumable(run_dir) == run_dir


def test_a_place_or_a_folder_that_does_not_answer_hides_no_other(run_dir, place, tmp_path, monkeypatch):
    folder = holding(new_folder(place, run_dir), 9, at=3000)
    gone = holding(new_folder(place, run_dir), 10, at=4000)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    glob = Path.glob

    def stale(path, pattern):
        if path in (home, gone / "checkpoints"):
            raise OSError(116, "Stale file handle")
        return glob(path, pattern)

    monkeypatch.setattr(Path, "glob", stale)
    assert newest_resumable(run_dir) == folder
