import re
import subprocess

import pytest

from benchmarks.peers import environments
from benchmarks.peers.environments import NAMES, is_made, make, requirements


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """Stands for pip, which fails for `broken`; both have a requirements file."""
    kept = []

    def pretended(command, **_):
        kept.append(command)
        failed = "broken" in command[-1] and "pip" in command
        if "venv" in command:
            environments.Path(command[-1]).mkdir(parents=True)
        return subprocess.CompletedProcess(command, int(failed), "", "trying\nERROR: no matching version\n")

    monkeypatch.setattr(environments.subprocess, "run", pretended)
    monkeypatch.setattr(environments, "REQUIREMENTS", tmp_path)
    for name in ("good", "broken"):
        (tmp_path / f"{name}.txt").write_text(f"{name}==1.0\n")
    return kept


def test_an_environment_is_made_once_and_anew_for_other_versions(commands, tmp_path):
    told, folder = [], tmp_path / "made"
    assert make(["good"], folder, told.append) == {}
    python = str(folder / "good" / "bin" / "python")
    assert commands[0][1:] == ["-m", "venv", str(folder / "good")]
    assert commands[1][:4] == [python, "-m", "pip", "install"]
    assert commands[1][-2:] == ["--requirement", str(tmp_path / "good.txt")]
    assert len(told) == 1
    assert is_made("good", folder)
    make(["good"], folder, told.append)
    assert len(commands) == 2
    (tmp_path / "good.txt").write_text("good==2.0\n")
    assert not is_made("good", folder)
    make(["good"], folder, told.append)
    assert len(commands) == 4


def test_what_does_not_install_says_why_and_the_others_are_made(commands, tmp_path):
    told = []
    assert make(["broken", "good"], tmp_path / "made", told.append) == {"broken": "ERROR: no matching version"}
    assert told[1] == "broken cannot be installed: ERROR: no matching version"
    assert not is_made("broken", tmp_path / "made")
    assert is_made("good", tmp_path / "made")


def test_every_version_is_exact():
    assert NAMES == ("cleanrl", "rllib", "sb3", "sf")
    for name in NAMES:
        for line in requirements(name).read_text("utf-8").splitlines():
            assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), f"{name}: {line}"
