"""An installation of another version of distrl, and its commands for a run."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import distrl
from distrl.memory_backend.keys import PROTOCOL_VERSION
from tests.faults.training import Run

OURS, THEIRS = distrl.__version__, "9.9"
OLDER, NEWER = PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1


def change(root: Path, file: str, pattern: str, by: str) -> None:
    """Edits one line of an installation."""
    path = root / "distrl" / file
    text, count = re.subn(pattern, by, path.read_text(), flags=re.MULTILINE)
    assert count == 1
    path.write_text(text)


def install(root: Path, protocol: int = PROTOCOL_VERSION) -> Path:
    """A copy of distrl that may differ, as another version would be installed on another host."""
    shutil.copytree(Path(distrl.__file__).parent, root / "distrl", ignore=shutil.ignore_patterns("__pycache__"))
    change(root, "memory_backend/keys.py", r"^PROTOCOL_VERSION = \d+$", f"PROTOCOL_VERSION = {protocol}")
    change(root, "version.py", r"^__version__ = .*$", f'__version__ = "{THEIRS}"')
    return root


def command(run: Run, kind: str, root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """One command of the distrl in `root`, for the run."""
    record = json.loads((run.run_dir / "run.json").read_text())
    where = ["--redis-url", record["redis_url"], "--run-id", record["run_id"]]
    return subprocess.run(
        [sys.executable, "-m", "distrl", kind, *where, *more],
        cwd=run.run_dir.parent,
        env={**os.environ, "PYTHONPATH": str(root), **run.key},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one error that a user reads; a role's own log may have its traceback above."""
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if "distrl: error: " in line]
    return line.partition("distrl: error: ")[2]
