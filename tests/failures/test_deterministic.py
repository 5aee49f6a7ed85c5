"""One process, one seed: the same numbers to the last bit, also across a kill and a checkpoint."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distrl.data_store.checkpoints import load_newest
from distrl.metrics.snapshot import TIMED
from distrl.runs.directories import Manifest, open_run

pytestmark = pytest.mark.slow

ARGUMENTS = ["--preset", "cartpole-impala", "--actors", "0", "--seed", "1"]
SMALL = ["stop.mean_return=null", "stop.env_steps=null", "actors.environments=4", "algorithm.minibatches=1"]
SMALL += ["checkpoint.every_updates=10"]
ARGUMENTS += [argument for value in SMALL for argument in ("--set", value)]
THREADS = """
import json, sys, threading
from pathlib import Path
import distrl
from distrl.terminal.console import QuietView

class Watching(QuietView):
    threads = set()
    def update(self, snapshot, roles, config):
        self.threads |= {thread.name for thread in threading.enumerate()}

view = Watching(write=lambda text: None)
sets = [*sys.argv[2:], "stop.updates=40"]
loaded = distrl.load("cartpole-impala", flags={"--actors": 0, "--seed": 1}, sets=sets)
summary = distrl.train(loaded, run_dir=sys.argv[1], view=view)
print(json.dumps([summary.exit_code, sorted(view.threads)]))
"""


def train(distrl_command, run_dir: Path, updates: int, *more: str) -> None:
    done = distrl_command(
        "train", *ARGUMENTS, "--set", f"stop.updates={updates}", "--run-dir", str(run_dir), "--plain", *more
    )
    told = [line for line in done.stderr.splitlines() if not line.startswith("trying out ")]  # on a busy machine
    assert (done.returncode, told) == (0, [])  # also nothing of what TensorFlow has to say


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
    apart = {"wall_s", "run_id", "launch", "applied", "trained_unrolls"}
    meta = [{name: value for name, value in each.meta.items() if name not in apart} for each in (first, second)]
    assert len(meta[0]) >= 8
    assert meta[0] == meta[1]


def train_from_python(run_dir: Path) -> None:
    """The same 40 updates, looking for threads meanwhile."""
    done = subprocess.run(
        [sys.executable, "-c", THREADS, str(run_dir), *SMALL], capture_output=True, text=True, timeout=200, check=True
    )
    assert done.stdout.splitlines()[-1] == '[0, ["MainThread"]]'


@pytest.mark.row("D45")
def test_two_runs_by_the_command_and_by_python_are_equal(distrl_command, tmp_path):
    train(distrl_command, tmp_path / "one", 40)
    train_from_python(tmp_path / "other")
    assert rows(tmp_path / "one") == rows(tmp_path / "other")
    assert len(rows(tmp_path / "one")) == 4
    assert_bit_equal(tmp_path / "one", tmp_path / "other")
    run, manifest = open_run(tmp_path / "one"), Manifest.read(tmp_path / "one" / "manifest.json")
    assert (run.state, run.record.run_id, manifest.seed) == ("ended", manifest.run_id, 1)
    assert manifest.command[:2] == ("distrl", "train")

    saved = load_newest(tmp_path / "one" / "checkpoints")
    assert saved is not None
    assert all(np.isfinite(array).all() for arrays in saved.arrays.values() for array in arrays.values())


@pytest.mark.long
@pytest.mark.row("Q03")
def test_a_run_that_was_killed_and_resumed_is_equal_to_one_that_was_not(start_run, distrl_command, tmp_path):
    """kill -9 at whatever update it is, most likely between two checkpoints."""
    arguments = [*ARGUMENTS, "--set", "stop.updates=120"]
    run = start_run(*arguments)

    def saved() -> int:
        names = (path.name for path in (run.run_dir / "checkpoints").glob("ckpt-*"))
        return max((int(name.removeprefix("ckpt-")) for name in names), default=0)

    run.wait_until(lambda: saved() >= 20 or run.process.poll() is not None, "a checkpoint")
    run.process.kill()
    assert (run.process.wait(), 20 <= saved() < 120) == (-9, True), run.told
    again = start_run(*arguments, "--resume", "auto")
    assert again.process.wait(timeout=200) == 0, again.told
    assert "resuming from ckpt-" in again.told
    train(distrl_command, tmp_path / "whole", 120)
    assert_bit_equal(run.run_dir, tmp_path / "whole")
    # So is what was told on the way, but for a row that the kill may have come before.
    told, whole = rows(run.run_dir), rows(tmp_path / "whole")
    assert told == [row for row in whole if row in told]
    assert len(told) >= len(whole) - 1


@pytest.mark.long
def test_another_seed_is_another_run(distrl_command, tmp_path):
    """So that what is equal above is not equal whatever happens."""
    for seed in (1, 2):
        train(distrl_command, tmp_path / str(seed), 10, "--seed", str(seed))
    one, other = (load_newest(tmp_path / str(seed) / "checkpoints") for seed in (1, 2))
    assert one is not None
    assert other is not None
    weights = [saved.arrays["main.online"] for saved in (one, other)]
    assert weights[0].keys() == weights[1].keys()
    assert any(array.tobytes() != weights[1][name].tobytes() for name, array in weights[0].items())
