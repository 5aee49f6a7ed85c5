"""One process, one seed: the same numbers to the last bit, also across a checkpoint."""

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distrl.data_store.checkpoints import load_newest
from distrl.metrics.snapshot import TIMED

pytestmark = pytest.mark.slow

ARGUMENTS = ["--preset", "cartpole-impala", "--actors", "0", "--seed", "1", "--set", "checkpoint.every_updates=10"]
THREADS = """
import json, sys, threading
from pathlib import Path
import distrl
from distrl.metrics.console import QuietView

class Watching(QuietView):
    threads = set()
    def update(self, snapshot, roles, config):
        self.threads |= {thread.name for thread in threading.enumerate()}

view = Watching(write=lambda text: None)
sets = ["checkpoint.every_updates=10", "stop.updates=40"]
loaded = distrl.load("cartpole-impala", flags={"--actors": 0, "--seed": 1}, sets=sets)
summary = distrl.train(loaded, run_dir=sys.argv[1], view=view)
print(json.dumps([summary.exit_code, sorted(view.threads)]))
"""


def train(distrl_command, run_dir: Path, updates: int, *more: str) -> None:
    done = distrl_command(
        "train", *ARGUMENTS, "--set", f"stop.updates={updates}", "--run-dir", str(run_dir), "--plain", *more
    )
    assert (done.returncode, done.stderr) == (0, "")  # also nothing of what TensorFlow has to say


def rows(run_dir: Path) -> list[dict[str, str]]:
    with (run_dir / "metrics.csv").open() as file:
        return [{name: value for name, value in row.items() if name not in TIMED} for row in csv.DictReader(file)]


def assert_bit_equal(one: Path, other: Path) -> None:
    first, second = load_newest(one / "checkpoints"), load_newest(other / "checkpoints")
    assert first is not None
    assert second is not None
    assert first.step == second.step
    assert first.arrays.keys() == second.arrays.keys()
    for group, arrays in first.arrays.items():
        assert list(arrays) == list(second.arrays[group])
        for name, array in arrays.items():
            assert array.tobytes() == second.arrays[group][name].tobytes(), f"{group}/{name}"
    # The clock, and what speaks of one launch's own stream.
    apart = {"wall_s", "run_id", "applied", "trained_unrolls"}
    meta = [{name: value for name, value in each.meta.items() if name not in apart} for each in (first, second)]
    assert len(meta[0]) >= 8
    assert meta[0] == meta[1]


def train_from_python(run_dir: Path) -> None:
    """The same 40 updates, looking for threads meanwhile."""
    done = subprocess.run(
        [sys.executable, "-c", THREADS, str(run_dir)], capture_output=True, text=True, timeout=200, check=True
    )
    assert done.stdout.splitlines()[-1] == '[0, ["MainThread"]]'


@pytest.mark.row("Q03")
def test_two_runs_are_equal_and_so_is_one_that_was_resumed(distrl_command, tmp_path):
    train(distrl_command, tmp_path / "one", 40)
    train_from_python(tmp_path / "other")
    assert rows(tmp_path / "one") == rows(tmp_path / "other")
    assert len(rows(tmp_path / "one")) == 4
    assert_bit_equal(tmp_path / "one", tmp_path / "other")

    half = tmp_path / "half"  # where there is nothing but the checkpoint of update 20
    shutil.copytree(tmp_path / "one" / "checkpoints" / f"ckpt-{20:012}", half / "checkpoints" / f"ckpt-{20:012}")
    shutil.copy(tmp_path / "one" / "config.yaml", half)
    train(distrl_command, half, 40, "--resume", "auto")
    assert rows(half) == rows(tmp_path / "one")[2:]
    assert_bit_equal(half, tmp_path / "one")

    saved = load_newest(tmp_path / "one" / "checkpoints")
    assert saved is not None
    assert all(np.isfinite(array).all() for arrays in saved.arrays.values() for array in arrays.values())
