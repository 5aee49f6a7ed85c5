"""Trainings by the command line, and within the test's own process.

There everything but Redis and processes is the real path, and bit-equal.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import distrl
from distrl.actors.policy import Policy
from distrl.memory_backend.codec import decode_weights
from distrl.runs.summary import Summary
from distrl.terminal.console import QuietView
from distrl.types import PolicyBundle


@pytest.fixture
def train_here(tmp_path: Path) -> Callable[..., Policy]:
    """Trains by `actors.count: 0` with the given settings, and returns the policy that its files hold."""

    def train(*sets: str) -> Policy:
        run_dir = tmp_path / "run"
        loaded = distrl.load(sets=["actors.count=0", *sets])
        summary = distrl.train(loaded, run_dir=run_dir, view=QuietView(run_dir, lambda text: None))
        assert (summary.exit_code, summary.imbalance) == (0, 0)
        assert summary.updates == loaded.config.stop.updates
        files = run_dir / "policy"
        policy = Policy(PolicyBundle((files / "graph.onnx").read_bytes(), (files / "description.json").read_text()))
        policy.set_weights(decode_weights((files / "weights.msgpack").read_bytes()))
        return policy

    return train


@pytest.fixture
def train_preset(tmp_path: Path) -> Callable[..., Summary]:
    """Trains by the command line, in `tmp_path / "run"`; returns what it came to. Nothing is said on standard error."""

    def train(preset: str, *arguments: str) -> Summary:
        command = [sys.executable, "-m", "distrl", "train", "--preset", preset, *arguments]
        command += ["--plain", "--run-dir", str(tmp_path / "run")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        told = [line for line in done.stderr.splitlines() if not line.startswith("trying out ")]  # on a busy machine
        assert (done.returncode, told) == (0, [])
        return Summary.read(tmp_path / "run" / "summary.json")

    return train
