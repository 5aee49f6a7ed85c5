"""A test that fails once in CI is listed as flaky; nothing else that goes wrong is excused."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ONCE = """
import os
import pathlib
import pytest

def first_time(name):
    seen = pathlib.Path(name).exists()
    pathlib.Path(name).touch()
    return not seen

def test_passes(): ...

def test_is_skipped():
    pytest.skip("as always")

@pytest.mark.parametrize("text", ["one two", "a::b"])
def test_fails_once(text):
    assert not first_time(text.replace(":", ""))

def test_kills_its_worker_once():
    if first_time("killed"):
        os.kill(os.getpid(), 9)

@pytest.fixture
def clean():
    yield
    assert not first_time("cleaned")

def test_fails_once_in_its_fixture(clean): ...
"""
ONCE_ALONE = """
import pathlib

def test_fails_once():
    seen = pathlib.Path("seen").exists()
    pathlib.Path("seen").touch()
    assert seen
"""
TWICE = """
import pathlib
import pytest

def test_fails_always():
    assert False

def test_is_skipped_the_second_time():
    if pathlib.Path("failed").exists():
        pytest.skip("no reason to pass")
    pathlib.Path("failed").touch()
    assert False
"""


@pytest.fixture
def ci(tmp_path):
    """ci(...): runs `python -m tests.second_run` in a project of its own."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:valkey\nmarkers = long\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.second_run", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def after(text: str, heading: str) -> list[str]:
    """Return the lines below a heading, which are indented, in order of the alphabet."""
    lines = text.split(f"\n{heading}\n")[1].splitlines()
    return sorted(line.strip() for line in lines if line.startswith("  "))


@pytest.mark.slow
def test_tests_that_pass_alone_are_flaky_and_fail_nothing(ci, tmp_path):
    (tmp_path / "test_once.py").write_text(ONCE)
    noted = ci("note", "-n", "2")
    assert noted.returncode == 0, noted.stdout
    assert "to be run once more, alone, when all else is done: 4\n" in noted.stdout
    judged = ci("judge")
    assert judged.returncode == 0, judged.stdout
    assert after(judged.stdout, "flaky: failed among others, passed alone") == [
        "test_once.py::test_fails_once[a::b]",
        "test_once.py::test_fails_once[one two]",
        "test_once.py::test_fails_once_in_its_fixture",
        "test_once.py::test_kills_its_worker_once",
    ]
    assert "failed twice" not in judged.stdout
    closing = judged.stdout.splitlines()[-1]
    assert re.fullmatch(r"=+ 1 passed, 4 flaky, 1 skipped in [0-9.]+s =+", closing), closing
    rows = (tmp_path / "build/ci/01.durations.txt").read_text().splitlines()
    assert {row.split(maxsplit=2)[2] for row in rows if " call " in row} >= {"test_once.py::test_passes"}


@pytest.mark.slow
def test_a_test_that_does_not_pass_alone_fails_the_run(ci, tmp_path):
    (tmp_path / "test_once.py").write_text(ONCE_ALONE)
    (tmp_path / "test_twice.py").write_text(TWICE)
    assert ci("note", "test_once.py").returncode == 0
    assert ci("note", "test_twice.py").returncode == 0
    judged = ci("judge")
    assert judged.returncode == 1
    flaky, _, twice = judged.stdout.partition("\nfailed twice\n")
    assert after(flaky, "flaky: failed among others, passed alone") == ["test_once.py::test_fails_once"]
    assert sorted(line.strip() for line in twice.splitlines()[:-1]) == [
        "test_twice.py::test_fails_always",
        "test_twice.py::test_is_skipped_the_second_time",
    ]
    closing = judged.stdout.splitlines()[-1]
    assert re.fullmatch(r"=+ 2 failed, 1 flaky in [0-9.]+s =+", closing), closing


@pytest.mark.long
def test_a_test_that_kills_its_worker_twice_fails_the_run(ci, tmp_path):
    (tmp_path / "test_kills.py").write_text("import os\n\ndef test_kills_its_worker():\n    os.kill(os.getpid(), 9)\n")
    assert ci("note", "-n", "2", "test_kills.py").returncode == 0
    judged = ci("judge")
    assert judged.returncode == 1
    assert "test_kills.py::test_kills_its_worker" in judged.stdout.partition("\nfailed twice\n")[2]


def test_when_nothing_fails_nothing_is_run_again(ci, tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(): ...")
    assert ci("note").returncode == 0
    judged = ci("judge")
    assert judged.returncode == 0
    assert re.fullmatch(r"=+ 1 passed in [0-9.]+s =+\n", judged.stdout)


@pytest.mark.parametrize(
    ("sources", "arguments", "code"),
    [
        pytest.param(
            {"test_it.py": "import nothing_of_this_name"}, (), pytest.ExitCode.INTERRUPTED, marks=pytest.mark.long
        ),
        ({"test_it.py": "import nothing_of_this_name"}, ("-n", "2"), pytest.ExitCode.TESTS_FAILED),
        ({"conftest.py": "def pytest_runtest_protocol(): 1 / 0"}, (), pytest.ExitCode.INTERNAL_ERROR),
        ({}, ("--no-such-option",), pytest.ExitCode.USAGE_ERROR),
        ({"conftest.py": "import nothing_of_this_name"}, (), pytest.ExitCode.USAGE_ERROR),
        ({}, ("-k", "nothing"), pytest.ExitCode.NO_TESTS_COLLECTED),
        ({"test_it.py": "import os\ndef test_it(): os._exit(1)"}, (), pytest.ExitCode.TESTS_FAILED),
        ({"test_it.py": "import os\ndef test_it(): os.abort()"}, (), -6 % 256),
        (
            {"test_it.py": "import pytest\n@pytest.mark.parametrize('i', range(21))\ndef test_it(i): assert False"},
            (),
            pytest.ExitCode.TESTS_FAILED,
        ),
    ],
    ids=["collection", "collection by workers", "internal", "usage", "conftest", "none", "exit", "abort", "too many"],
)
def test_what_no_second_run_can_excuse_keeps_the_exit_code(ci, tmp_path, sources, arguments, code):
    (tmp_path / "test_passes.py").write_text("def test_passes(): ...\ndef test_fails(): assert False")
    for name, source in sources.items():
        (tmp_path / name).write_text(source)
    done = ci("note", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "to be run once more" not in done.stdout
