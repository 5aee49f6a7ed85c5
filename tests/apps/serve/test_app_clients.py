"""The clients of examples/clients/ act as the policy does, end to end."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from distrl.serving.run_policy import policy_of_run
from tests.waiting import PATIENCE_S

CLIENTS = Path(__file__).parents[3] / "examples" / "clients"
NAMES = ["client.py", "client.mjs", "client.c", "Client.cs"]
LIBRARIES = "System.Net.Http,System.Runtime.Serialization,System.Xml,System.Xml.Linq"
SHOWN = [[0.1 * step, -0.2, 0.05 * step, 0.3] for step in range(-3, 6)]


@pytest.fixture(scope="module")
def expected(trained):
    policy, state, actions = policy_of_run(trained("lstm")), None, []
    for observation in SHOWN:
        action, state = policy.act(observation, state)
        actions.append(int(action))
    return actions


def program(name, folder):
    """Return the words that start a client; its compiler or interpreter is that of this machine."""
    if name == "client.py":
        return [sys.executable, str(CLIENTS / name)]
    needed = {"client.mjs": "node", "client.c": "cc", "Client.cs": "mcs"}[name]
    if (found := shutil.which(needed)) is None:
        pytest.skip(f"{needed} is not installed")
    if needed == "node":
        return [found, str(CLIENTS / name)]
    if needed == "mcs":
        made = [f"-out:{folder / 'Client.exe'}", f"-r:{LIBRARIES}", CLIENTS / name]
        subprocess.run([found, "-warnaserror", *made], check=True, timeout=PATIENCE_S)
        return ["mono", str(folder / "Client.exe")]
    subprocess.run(
        [found, "-O2", "-Wall", "-Wextra", "-Werror", "-o", folder / "client", CLIENTS / name],
        check=True,
        timeout=PATIENCE_S,
    )
    return [str(folder / "client")]


@pytest.mark.parametrize("name", NAMES)
def test_a_client_plays_an_episode(lstm, expected, name, tmp_path):
    place = ["127.0.0.1", str(lstm.port)] if name == "client.c" else [f"http://127.0.0.1:{lstm.port}"]
    words = [*program(name, tmp_path), *place, *map(str, SHOWN)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if name == "client.c":
        found = [line.partition('"action":')[2].partition(",")[0] for line in done.stdout.splitlines()]
    else:
        found = [line.split()[0] for line in done.stdout.splitlines()]
    assert [int(action) for action in found] == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_client_reports_what_is_refused(lstm, name, tmp_path):
    place = ["127.0.0.1", str(lstm.port)] if name == "client.c" else [f"http://127.0.0.1:{lstm.port}"]
    words = [*program(name, tmp_path), *place, "[1, 2]"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert "the policy takes (4,)" in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_a_client_says_how_it_is_used(name, tmp_path):
    done = subprocess.run(program(name, tmp_path), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1
    assert "usage" in done.stderr


def test_they_are_short():
    lines = {path.name: len(path.read_text().splitlines()) for path in CLIENTS.iterdir() if path.is_file()}
    assert sorted(lines) == sorted(NAMES)
    assert max(lines.values()) <= 80, lines
