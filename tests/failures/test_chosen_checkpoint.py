"""A run goes back to a chosen checkpoint, and a new one begins with its state or with its weights, all by processes."""

import csv
import json
from pathlib import Path

import pytest

from distrl.data_store.checkpoints import load_newest, newest_first, step_of

pytestmark = [pytest.mark.long, pytest.mark.redis]


def steps(run_dir: Path) -> list[int]:
    return [step_of(path) for path in newest_first(run_dir / "checkpoints")]


def rows(run_dir: Path) -> list[tuple[int, int]]:
    """(updates, environment steps) of each row of metrics.csv."""
    with (run_dir / "metrics.csv").open() as file:
        return [(int(row["updates"]), int(row["env_steps"])) for row in csv.DictReader(file)]


@pytest.mark.parametrize("launcher", ["process", pytest.param("ray", marks=pytest.mark.ray)])
def test_a_run_goes_back_branches_and_lends_its_weights(start_run, unhurried, distrl_command, tmp_path, launcher):
    settings = (
        *unhurried,
        "--launcher",
        launcher,
        "--set",
        "checkpoint.every_updates=20",
        "--set",
        "checkpoint.every_s=null",
        "--actors",
        "1",
    )
    first = start_run(*settings, "--set", "stop.updates=80").finish()
    run_dir = tmp_path / "run"
    assert (first.exit_code, first.updates) == (0, 80)
    known = sorted(steps(run_dir))
    chosen, later = known[0], known[1:]  # about 20; saving beside the training takes some updates

    unknown = distrl_command("train", "--resume", f"{run_dir}@7")
    listed = ", ".join(map(str, known))
    assert unknown.returncode == 2
    assert unknown.stderr.endswith(f"distrl: error: {run_dir} has no checkpoint of update 7; there are {listed}\n")

    # In its own directory. A learner that is restarted finds nothing of the later updates.
    run = start_run(*settings, "--set", "checkpoint.every_updates=10", "--set", "stop.updates=70", "--resume",
                    f"{run_dir}@{chosen}")  # fmt: skip
    run.wait_until(lambda: first.launch not in (run_dir / "run.json").read_text(), "the new launch has begun")
    run.wait_for_updates(chosen + 15)
    run.kill("learner")
    second = run.finish()
    aside = run_dir / f"after-{chosen}"
    assert (second.exit_code, second.stop_reason, second.updates, second.run_id) == (0, "updates", 70, first.run_id)
    assert f"resuming from ckpt-{chosen:012} (update {chosen})" in run.told
    assert f"set aside: distrl train --resume {aside} goes on from update 80" in run.told
    assert sorted(steps(aside)) == later
    assert (second.trained - second.rolled_back, second.imbalance, second.restarts) == (70 - chosen, 0, 1)
    assert (second.resumed_updates, max(steps(run_dir))) == (chosen, 70)
    assert rows(run_dir) == sorted(rows(run_dir))
    assert rows(run_dir)[-1] == (70, second.env_steps)
    assert rows(aside)[-1] == (80, first.env_steps)

    # The state that was set aside begins a run of its own, and goes on from 80.
    name = f"{aside}@80"
    branch = start_run(*settings, "--set", "stop.updates=90", "--resume", name, name="branch")
    third = branch.finish()
    assert (third.exit_code, third.updates, third.trained, third.imbalance) == (0, 90, 10, 0)
    assert (third.resumed_updates, third.resumed_env_steps) == (80, first.env_steps)
    assert third.run_id != first.run_id
    assert sorted(steps(aside)) == later
    assert steps(tmp_path / "branch") == [90, 80]
    assert rows(tmp_path / "branch")[-1] == (90, third.env_steps)
    again = distrl_command("train", *settings, "--run-dir", str(tmp_path / "branch"), "--resume", name)
    assert again.returncode == 2
    assert "branch already holds a run; add --resume auto to go on" in again.stderr

    # Its weights begin another one, whose counts are its own.
    begun = start_run(*settings, "--set", "stop.updates=3", "--init-from", str(tmp_path / "branch"), name="warm")
    fourth = begun.finish()
    taken = f"begins with the weights of {tmp_path / 'branch'}@90: took 8 of 8"
    assert (fourth.exit_code, fourth.updates, fourth.trained, fourth.imbalance) == (0, 3, 3, 0)
    assert f"the learner {taken}" in begun.told
    assert f"the learner {taken}" in (tmp_path / "warm" / "logs" / "learner.log").read_text()
    saved = load_newest(tmp_path / "warm" / "checkpoints")
    assert saved is not None
    assert int(saved.arrays["main.optimizer"]["optimizer/iteration"]) < 100
    assert json.loads((tmp_path / "warm" / "run.json").read_text())["run_id"] == fourth.run_id
