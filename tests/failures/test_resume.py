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
def test_a_run_goes_on_with_more_or_fewer_actors_and_past_a_damaged_checkpoint(
    start_run, unhurried, distrl_command, assert_ended_cleanly
):
    run = start_run(*unhurried, "--set", "checkpoint.every_updates=20")
    run.wait_for_updates(60)
    run_dir = run.run_dir

    # No other command may train in the directory of a live run.
    taken = distrl_command("train", "--run-dir", str(run_dir), "--resume", "auto")
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

    # The newest is damaged: the one before it, and one actor.
    damaged = newest(run_dir)
    damage(damaged)
    loaded = load_newest(run_dir / "checkpoints")
    assert loaded is not None
    end = ("--set", f"stop.updates={second.updates + 30}")
    run = start_run(*unhurried, *end, "--resume", "auto", "--actors", "1")
    third = run.finish()
    assert f"passed over {damaged.name}: " in run.told
    assert f"resuming from {loaded.path.name} (update {loaded.step})" in run.told
    assert loaded.step < second.updates
    assert (third.exit_code, third.updates) == (0, second.updates + 30)
    assert third.trained == third.updates - loaded.step

    # All are damaged: nothing starts anew over files that a user may still repair.
    for checkpoint in (run_dir / "checkpoints").glob("ckpt-*"):
        damage(checkpoint)
    for resume in (("--resume", str(run_dir)), ("--run-dir", str(run_dir), "--resume", "auto")):
        refused = distrl_command("train", *resume)
        assert refused.returncode == 2
        (line,) = [line for line in refused.stderr.splitlines() if "distrl: error: " in line]
        assert f"{run_dir} holds checkpoints and none is valid" in line
    assert Summary.read(run_dir / "summary.json").run_id == third.run_id


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
