"""A curriculum in a real run: stages by success, over a kill of everything; operators' values; refused ones."""

import csv
import json
import os
import signal

import pytest

from distrl.data_store.checkpoints import load_newest

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.redis]

STAGE = "environment.curriculum.level.stage"


@pytest.fixture
def leveled(endless, tmp_path):
    """Arguments of a training in an environment with levels, which logs the level of every episode."""

    def arguments(curriculum, *, step_s=0.004):
        kwargs = {"level": 0, "step_s": step_s, "log": str(tmp_path / "levels.txt")}
        settings = [
            f"environment.kwargs={json.dumps(kwargs)}",
            f"environment.curriculum={json.dumps(curriculum)}",
            *("actors.environments=2", "actors.unroll_length_steps=8", "learner.batch_size=1"),
            *("algorithm.minibatches=1", "checkpoint.every_updates=4"),
        ]
        sets = [argument for setting in settings for argument in ("--set", setting)]
        return [*endless, "--env", "tests.faults.leveled:Leveled", "--actors", "2", *sets]

    return arguments


def levels(tmp_path):
    """Process -> the levels of its episodes, in order."""
    found = {}
    for line in (tmp_path / "levels.txt").read_text().splitlines():
        process, level = map(int, line.split())
        found.setdefault(process, []).append(level)
    return found


@pytest.mark.timeout(300)
def test_stages_by_success_go_on_after_everything_was_killed_and_never_back(start_run, leveled, tmp_path):
    rule = {"kind": "by_metric", "values": [0, 1, 2, 3, 4, 5], "metric": "success", "above": 0.9, "episodes": 150}
    shared = leveled({"level": rule})
    run = start_run(*shared)

    def saved():
        found = load_newest(run.run_dir / "checkpoints")
        return 0 if found is None else found.meta["settings"].get(STAGE, [0, 0])[1]

    run.wait_until(lambda: saved() >= 2, "a checkpoint holds the third level")
    pids = run.pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    run.wait_until(lambda: not any(map(run.alive, pids)), "the roles have ended")
    stage, before = saved(), levels(tmp_path)
    assert 2 <= stage < 5
    for sequence in before.values():
        assert sequence == sorted(sequence)
    events = (run.run_dir / "logs" / "events.log").read_text()
    assert f"asked: {STAGE} 1: level is 1 after mean success 1 over 150 episodes (by curriculum)" in events

    again = start_run(*shared, "--resume", "auto", "--set", "stop.updates=100000")
    again.wait_until(lambda: again.record["pid"] == again.process.pid, "the new launch has begun")
    again.wait_until(lambda: again.snapshot.get("curriculum_level") == 5, "the last level")
    count = again.updates + 5
    again.wait_for_updates(count)
    again.process.terminate()
    summary = again.finish()
    assert (summary.exit_code, summary.imbalance, summary.foreign, summary.lost) == (0, 0, 0, 0)
    acting = [sequence for process, sequence in levels(tmp_path).items() if process not in before]
    acting = [sequence for sequence in acting if len(sequence) > 5]  # without the trial before the launch
    assert len(acting) == 2
    for sequence in acting:
        assert sequence == sorted(sequence)
        assert (sequence[0] >= stage, sequence[-1]) == (True, 5)
    with (again.run_dir / "metrics.csv").open() as file:
        shown = [float(row["curriculum_level"]) for row in csv.DictReader(file)]
    assert shown == sorted(shown)
    assert {*shown} >= {stage, 5.0}


@pytest.mark.timeout(300)
def test_operators_change_the_environment_and_are_refused_what_it_cannot(start_run, leveled, distrl_command, tmp_path):
    schedule = {"kind": "stages", "values": [1, 2], "at_env_steps": [10**9]}
    run = start_run(*leveled({"level": schedule}), "--set", "evaluation.every_env_steps=1000000")
    run.wait_for_updates(3)
    where = ("--run", str(run.run_dir))
    assert run.snapshot["curriculum_level"] == 1
    assert "environment.kwargs.level = (by a schedule or a rule)" in distrl_command("set", *where).stdout
    told = distrl_command("set", "environment.kwargs.level=3", *where)
    assert (told.returncode, told.stderr) == (0, "")
    assert "environment.kwargs.level = 3" in told.stdout
    run.wait_until(lambda: run.snapshot["curriculum_level"] == 3, "the learner reports the level")
    run.wait_until(lambda: sum(seen[-1] == 3 for seen in levels(tmp_path).values()) == 2, "both actors play it")
    assert distrl_command("evaluate-now", *where).returncode == 0
    run.wait_until(lambda: sum(seen[-1] == 3 for seen in levels(tmp_path).values()) == 3, "the evaluator, too")
    for setting, message in (
        ("environment.kwargs.level=3.5", "environment.kwargs.level: 3.5 must be a whole number"),
        ("environment.kwargs.step_s=0", "environment.kwargs.step_s: environment tests.faults.leveled:Leveled cannot"),
        ("environment.kwargs.lvl=3", "environment.kwargs.lvl cannot change while the run goes on"),
        (f"{STAGE}=1", f"{STAGE} cannot change while the run goes on"),
    ):
        refused = distrl_command("set", setting, *where)
        assert (refused.returncode, refused.stderr.count("\n"), message in refused.stderr) == (2, 1, True), setting
    run.process.terminate()
    assert run.finish().imbalance == 0
