"""A module of the user's that stands in for a library or a part of Python is named, in one line."""

import os
import subprocess
import sys
from types import ModuleType

import pytest

from distrl import shadows
from distrl.shadows import require_no_shadow, shadow


def test_nothing_stands_in_for_a_library_here():
    assert shadow() is None


def test_a_library_that_is_installed_elsewhere_alone_stands_in_for_nothing(tmp_path, monkeypatch):
    """As `pip install --target` puts it there, or a checkout of its source; and a module without a place."""
    (tmp_path / "elsewhere.py").write_text("")
    monkeypatch.setattr(shadows, "LIBRARIES", frozenset({"elsewhere"}))
    monkeypatch.syspath_prepend(str(tmp_path))
    require_no_shadow()
    monkeypatch.setitem(sys.modules, "elsewhere", ModuleType("elsewhere"))
    require_no_shadow()
    assert shadow() is None


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("json.py", "", "module of Python json"),
        ("redis.py", "", "library redis"),
        ("pydantic.py", "VERSION = 1\n", "library pydantic"),
    ],
)
def test_the_file_that_stands_in_the_way_is_named(tmp_path, name, content, what):
    (tmp_path / name).write_text(content)
    command = [sys.executable, "-P", "-m", "distrl", "train", "--env", "CartPole-v1", "--actors", "1"]
    done = subprocess.run(
        [*command, "--run-dir", str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    told = f"distrl: error: {tmp_path / name} stands in for the {what}; rename it, or take its folder from PYTHONPATH\n"
    assert (done.returncode, done.stderr, done.stdout) == (2, told, "")
    assert not (tmp_path / "run").exists()
