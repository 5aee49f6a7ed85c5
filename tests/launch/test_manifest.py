import subprocess
import sys

import pytest

import distrl
from distrl.config import RunConfig
from distrl.launch import manifest
from distrl.launch.manifest import commit, make_manifest, write_manifest
from distrl.runs.directories import Manifest


def git(folder, *arguments):
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/own.py").write_text("x = 1\n")
    git(tmp_path / "code", "init")
    git(tmp_path / "code", "add", ".")
    git(tmp_path / "code", "commit", "-m", "first")
    return tmp_path / "code"


def test_a_commit_and_whether_files_differ_from_it(checkout):
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=True).stdout
    assert commit(checkout) == head[:12]
    (checkout / "runs").mkdir()
    (checkout / "runs/a").touch()  # not tracked
    assert commit(checkout) == head[:12]
    (checkout / "own.py").write_text("x = 2\n")
    assert commit(checkout) == f"{head[:12]}+"


def test_the_index_of_a_repository_is_neither_locked_nor_written(checkout):
    """A lock would stay behind where git is killed, as by a limit on the size of files, and keep its user from it."""
    (checkout / "own.py").touch()  # git would note the new time
    (checkout / ".git/index.lock").touch()
    before = (checkout / ".git/index").stat().st_mtime_ns
    assert commit(checkout) is not None
    (checkout / ".git/index.lock").unlink()
    assert not commit(checkout).endswith("+")
    assert (checkout / ".git/index").stat().st_mtime_ns == before


def test_there_is_none_outside_of_a_repository_without_git_or_when_it_hangs(checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit(tmp_path) is None
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert commit(checkout) is None
    (tmp_path / "bin/git").write_text("#!/bin/sh\nexec /bin/sleep 30\n")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setattr(manifest, "GIT_S", 0.05)
    assert commit(checkout) is None


def test_what_a_run_was_started_with(tmp_path, monkeypatch, checkout):
    monkeypatch.chdir(checkout)
    arguments = ["/x/bin/distrl", "train", "--redis-url", "redis://me:pw@host"]
    monkeypatch.setattr(sys, "argv", arguments)
    write_manifest(tmp_path, "r1", RunConfig(seed=5))
    found = Manifest.read(tmp_path / "manifest.json")
    assert (found.run_id, found.environment, found.algorithm, found.seed) == ("r1", "CartPole-v1", "impala", 5)
    assert found.command == ("distrl", "train", "--redis-url", "redis://•••@host")
    assert (found.directory, found.commit) == (str(checkout), commit(checkout))
    assert (found.distrl, found.packages["numpy"].split(".")[0]) == (distrl.__version__, "2")
    assert found.cores >= 1
    assert (tmp_path / "manifest.json").stat().st_mode & 0o777 == 0o600


def test_a_script_is_told_by_its_name(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/home/me/train.py"])
    assert make_manifest("r1", RunConfig()).command == ("/home/me/train.py",)


def test_an_installed_distrl_is_not_of_the_repository_around_it(checkout, monkeypatch):
    package = checkout / "venv/distrl"
    package.mkdir(parents=True)
    monkeypatch.setattr(manifest, "__file__", str(package / "launch/manifest.py"))
    assert make_manifest("r1", RunConfig()).distrl_commit is None
    monkeypatch.setattr(manifest, "__file__", str(checkout / "distrl/launch/manifest.py"))
    (checkout / "distrl").mkdir()
    assert make_manifest("r1", RunConfig()).distrl_commit == commit(checkout)
