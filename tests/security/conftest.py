"""Fixtures of this folder: the payload generator, and processes with an audit hook."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture
def generator(monkeypatch):
    """The module `payload_generator`, which is in no package."""
    monkeypatch.syspath_prepend(str(HERE))
    yield importlib.import_module("payload_generator")
    sys.modules.pop("payload_generator", None)


@pytest.fixture
def watched(tmp_path):
    """watched(script, *arguments): what a script of this folder prints as JSON, in a process of its own."""

    def run(script, *arguments):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}
        for trap in ("TRAP", "DISTRL_TRAP_SPRUNG"):
            environment.pop(trap, None)
        command = [sys.executable, str(HERE / script), *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run
