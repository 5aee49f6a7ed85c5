"""A module of the user's that stands in for a library or a part of Python is named, in one line."""

import os
import subprocess
import sys

import pytest

from distrl.shadows import shadow


def test_nothing_stands_in_for_a_library_here():
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
