"""Training goes on where it was saved: counters, best and versions, with more or fewer actors, past damaged files."""

import csv
import json
from pathlib import Path

import pytest

from distrl.data_store.checkpoints import load_newest
from distrl.runs.summary import Summary

pytestmark = [pytest.mark.slow, pytest.mark.redis]


def newest(run_dir: Path) -> Path:
    return max((run_dir / "checkpoints").glob("ckpt-*"))


def damage(checkpoint: Path) -> None:
    """As a disk would: one file has lost its end."""
    file = checkpoint / "main.online.npz"
    file.write_bytes(file.read_bytes()[:-10])


@pytest.mark.row("Q02", "D42")
def test_a_run_goes_on_with_more_actors_and_never_over_damaged_checkpoints(
    start_run, unhurried, command_here, assert_ended_cleanly
):
    run = start_run(*unhurried, "--set", "checkpoint.every_updates=20")
    run.wait_for_updates(30)
    run_dir = run.run_dir

    # No other command may train in the directory of a live run.
    taken = command_here("train", "--run-dir", str(run_dir), "--resume", "auto")
    assert (taken.returncode, taken.stderr.count("\n")) == (2, 1)
    assert f"the run in {run_dir} has not ended; stop it first" in taken.stderr

    pids = run.pids
    run.process.terminate()
    first = run.finish()
    assert (run.process.returncode, first.exit_code, first.stop_reason, first.imbalance) == (0, 0, "SIGTERM", 0)
    assert_ended_cleanly(run, pids, first)

    # More actors, and an end 30 updates on.
    end = ("--set", f"stop.updates={first.updates + 30}")
    run = start_run(*unhurried, "--set", "checkpoint.every_updates=20", *end, "--resume", "auto", "--actors", "3")
    second = run.finish()
    assert (second.exit_code, second.stop_reason, second.updates) == (0, "updates", first.updates + 30)
    assert f"resuming from ckpt-{first.updates:012} (update {first.updates})" in run.told
    assert second.run_id == first.run_id
    assert second.launch != first.launch
    assert second.trained == 30  # the ledger is the launch's own, and exact
    assert second.imbalance == 0
    assert second.env_steps > first.env_steps
    # A good policy ends no episode within 30 updates; that the count goes on, and is not begun anew, is what matters.
    assert second.episodes >= first.episodes > 0
    assert second.weights_version == first.weights_version + 30
    assert (second.best_mean_return_100 or 0.0) >= (first.best_mean_return_100 or 0.0)
    with (run_dir / "metrics.csv").open() as file:
        rows = [(int(row["updates"]), int(row["env_steps"]), float(row["wall_s"])) for row in csv.DictReader(file)]
    assert rows == sorted(rows)
    assert rows[-1][:2] == (second.updates, second.env_steps)

    # All are damaged: nothing starts anew over files that a user may still repair.
    for checkpoint in (run_dir / "checkpoints").glob("ckpt-*"):
        damage(checkpoint)
    for resume in (("--resume", str(run_dir)), ("--run-dir", str(run_dir), "--resume", "auto")):
        refused = command_here("train", *resume)
        assert refused.returncode == 2
        (line,) = [line for line in refused.stderr.splitlines() if "distrl: error: " in line]
        assert f"{run_dir} holds checkpoints and none is valid" in line
    assert Summary.read(run_dir / "summary.json").run_id == second.run_id


@pytest.mark.long
@pytest.mark.row("Q02", "D42")
def test_a_run_goes_on_past_a_damaged_checkpoint_with_fewer_actors(start_run, unhurried):
    often = ("--set", "checkpoint.every_updates=20")
    first = start_run(*unhurried, *often, "--set", "stop.updates=60")
    before, folder = first.finish(), first.run_dir / "checkpoints"
    damaged = newest(first.run_dir)
    damage(damaged)
    loaded = load_newest(folder)
    assert loaded is not None
    run = start_run(*unhurried, *often, "--set", "stop.updates=90", "--resume", "auto", "--actors", "1")
    after = run.finish()
    assert f"passed over {damaged.name}: " in run.told
    assert f"resuming from {loaded.path.name} (update {loaded.step})" in run.told
    assert loaded.step < before.updates
    assert (after.exit_code, after.updates, after.run_id) == (0, 90, before.run_id)
    assert after.trained == after.updates - loaded.step


@pytest.mark.long
def test_auto_begins_in_an_empty_directory_and_leaves_no_trace_of_an_earlier_launch(start_run, endless, tmp_path):
    # An earlier launch that was killed before its first checkpoint, over one that ended.
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({"run_id": "old", "redis_url": None, "pid": 1}))
    (tmp_path / "run" / "summary.json").write_text("{}")
    run = start_run(*endless, "--set", "stop.updates=3", "--resume", "auto", "--actors", "1")
    run.wait_until(lambda: '"pid": 1,' not in (run.run_dir / "run.json").read_text(), "the new launch has begun")
    summary = run.finish()
    assert "starting from the beginning" in run.told
    assert (summary.exit_code, summary.updates, summary.run_id) == (0, 3, "old")
