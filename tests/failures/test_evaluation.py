"""Greedy episodes beside a real training: its results everywhere, an evaluator that is killed, a directory in use."""

import csv
import json
import os
import signal

import pytest

from distrl.learner.policy_files import read_policy
from distrl.runs import trial
from tests.faults.arguments import sets

pytestmark = [pytest.mark.slow, pytest.mark.redis]

EVALUATING = ["--set", "evaluation.every_env_steps=10000", "--set", "stop.evaluation_return=60"]
# The best checkpoint is saved when an evaluation says so.
SAVING = ["--set", "checkpoint.every_s=1"]


def evaluations(run):
    return run.backend.registry.evaluations("0")


def assert_told_everywhere(run, summary):
    assert (summary.exit_code, summary.stop_reason, summary.imbalance) == (0, "evaluation_return", 0)
    assert summary.evaluation_mean_return >= 60.0
    assert summary.best_evaluation_return >= summary.evaluation_mean_return
    with (run.run_dir / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["evaluation_env_steps"]]
    assert float(rows[-1]["evaluation_mean_return"]) == summary.evaluation_mean_return
    assert int(rows[-1]["evaluation_env_steps"]) == summary.evaluation_env_steps
    assert 10_000 <= summary.evaluation_env_steps <= summary.env_steps
    assert f"evaluation at {summary.evaluation_env_steps:,} steps: return" in run.told
    assert "evaluator" in summary.peak_rss_mb
    assert (run.run_dir / "checkpoints" / "best").exists()


@pytest.mark.row("D43")
def test_evaluations_go_on_although_the_evaluator_is_killed_and_ctrl_c_ends_all(
    start_run, unhurried, assert_ended_cleanly
):
    few = sets(
        "evaluation.every_env_steps=200",
        "evaluation.episodes=4",
        "stop.evaluation_return=1e9",
        "launch.role_rows_s=0.1",
    )
    run = start_run(*unhurried, *few, *SAVING, "--actors", "1")
    run.wait_until(lambda: evaluations(run), "a first evaluation")
    roles = sorted(f"{role.role} {role.id}" for role in run.backend.registry.roles())
    assert roles == ["actor 0", "evaluator 0", "learner 0"]
    first = evaluations(run)[0][1]
    run.kill("evaluator")
    run.wait_until(lambda: run.role("evaluator").incarnation == 2, "another evaluator")
    known = len(evaluations(run))
    run.wait_until(lambda: len(evaluations(run)) > known, "it evaluates")
    for checkpoint in ("newest", "best"):  # while it trains
        saved = read_policy(run.run_dir, checkpoint)
        assert saved.weights.version > 1
    pids = run.pids
    run.process.send_signal(signal.SIGINT)
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (130, 130, "Ctrl-C")
    assert (summary.restarts, summary.imbalance) == (1, 0)
    assert_ended_cleanly(run, pids, summary, "best.msgpack")
    assert set(run.run_dir.rglob("*")) == set(trial._written(run.run_dir))  # so that a refused launch can take it back
    assert summary.trained_steps == summary.env_steps  # of actors alone: the evaluator's are nowhere
    assert first.episodes == 4
    assert 200 <= first.env_steps < summary.evaluation_env_steps
    assert "evaluator ended (signal 9)" in run.told


@pytest.mark.row("D50")
@pytest.mark.long
@pytest.mark.parametrize("launcher", ["process", pytest.param("ray", marks=pytest.mark.ray)])
def test_an_evaluation_that_is_good_enough_ends_the_run(start_run, endless, launcher):
    if launcher == "ray":
        pytest.importorskip("ray")
    run = start_run(*endless, *EVALUATING, *SAVING, "--launcher", launcher)
    assert_told_everywhere(run, run.finish())


@pytest.mark.long
def test_the_last_weights_are_evaluated_before_the_run_ends(start_run):
    options = ("--set", "stop.updates=3", "--set", "evaluation.every_env_steps=1000000")
    run = start_run("--preset", "cartpole-ppo", "--actors", "2", *options)
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.imbalance) == (0, "updates", 0)
    assert summary.evaluation_env_steps == summary.env_steps
    assert run.told.count(" steps: return ") == 1
    assert read_policy(run.run_dir, "best").env_steps == summary.env_steps


@pytest.mark.long
def test_a_run_is_evaluated_in_several_environments(start_run, slow_steps, distrl_command):
    """Step t of an episode pays t, so that its length is its return: 5 steps pay 15, three 6, eight 36."""
    world = "distrl.environments.worlds.toy:StepCounter"
    short, long = ({"kwargs": {"terminate_at_steps": steps}} for steps in (3, 8))
    others = json.dumps({"short": short, "long": {"id": world, **long}})
    run = start_run(
        *slow_steps,
        *("--env", world, "--set", "environment.kwargs={terminate_at_steps: 5}"),
        *sets("evaluation.every_env_steps=200", "evaluation.episodes=4", f"evaluation.other_environments={others}"),
        *sets("stop.evaluation_return=15", "learner.stall_timeout_s=120"),
    )
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.imbalance) == (0, "evaluation_return", 0)
    assert (summary.evaluation_mean_return, summary.best_evaluation_return) == (15.0, 15.0)  # the own one decides
    assert summary.other_evaluation_returns == {"short": 6.0, "long": 36.0}
    with (run.run_dir / "metrics.csv").open() as file:
        last = [*csv.DictReader(file)][-1]
    columns = ("evaluation_mean_return", "evaluation_in_short_mean_return", "evaluation_in_long_mean_return")
    assert [last[name] for name in columns] == ["15.0", "6.0", "36.0"]
    told = [f"return {mean} ± 0.00 over 4 episodes" for mean in ("15.0", "6.00", "36.0")]
    assert f"steps: {told[0]}; in short: {told[1]}; in long: {told[2]}\n" in run.told
    assert "others   short 6.00 · long 36.0, means of that evaluation in other environments\n" in run.told
    played = distrl_command("evaluate", str(run.run_dir), "--in", "long", "--episodes", "3", "--json")
    assert (played.returncode, json.loads(played.stdout)["returns"]) == (0, [36.0] * 3)


def filming(slow_steps, steps, render_s):
    world = ("--env", "tests.filmed:Filmed", *sets(f"environment.kwargs={{steps: {steps}, render_s: {render_s}}}"))
    return [*slow_steps, *world, *sets("evaluation.every_env_steps=10", "evaluation.films={every: 1}")]


def films_of(run):
    return sorted(path.name for path in (run.run_dir / "films").glob("*"))


@pytest.mark.long
def test_a_film_of_the_last_evaluation_is_complete_when_the_run_ends(start_run, slow_steps):
    pytest.importorskip("cv2")
    run = start_run(*filming(slow_steps, 20, 0.1), *sets("stop.updates=30"))
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason) == (0, "updates")
    assert summary.evaluation_env_steps == summary.env_steps
    assert films_of(run)[-1] == f"steps-{summary.env_steps:09d}.webm"
    assert not [name for name in films_of(run) if not name.startswith("steps-")]


@pytest.mark.long
def test_an_evaluator_that_has_to_be_killed_leaves_no_unfinished_film(start_run, slow_steps):
    pytest.importorskip("cv2")
    run = start_run(*filming(slow_steps, 1000, 0.05))
    run.wait_until(lambda: any(name.startswith(".tmp-") for name in films_of(run)), "a film is under way")
    os.kill(run.role("evaluator").pid, signal.SIGSTOP)  # it does not follow SIGTERM
    run.process.send_signal(signal.SIGINT)
    summary = run.finish()
    assert (summary.exit_code, summary.imbalance) == (130, 0)
    assert films_of(run) == []
