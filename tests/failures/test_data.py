"""A run that learns from recorded episodes, as processes: its learner is killed, and an evaluation ends it."""

import csv
import json
import re
import resource
from pathlib import Path

import pytest

from distrl.data_store.checkpoints import load
from distrl.metrics.snapshot import estimate_columns
from tests.faults.arguments import sets

pytestmark = [pytest.mark.slow, pytest.mark.redis]
LEARNER = ("--actors", "0", "--env", "CartPole-v1", "--algorithm", "dqn")
RECORDING = ("--record", "./all", "--set", "checkpoint.every_s=1000")
LEARNING = sets(
    "launch.mode=processes",
    "evaluation.every_env_steps=3200",
    "evaluation.episodes=2",
    "evaluation.off_policy.estimators=[fqe]",
    "checkpoint.every_s=0.5",
    "network.middleware_parameters.scheme=[8]",
    "stop.evaluation_return=1e9",
)


def test_a_killed_learner_reads_the_data_again_and_goes_on(start_run, command_here, monkeypatch, tmp_path):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    made = command_here("record", "random", "--env", "CartPole-v1", "--episodes", "20", "--output", "./recorded")
    assert made.returncode == 0
    store = sets(f"checkpoint.store={(tmp_path / 'store').as_uri()}")
    run = start_run(
        *LEARNING, *store, "--actors", "0", "--data", "./recorded-v0", "--env", "CartPole-v1", "--algorithm", "dqn"
    )
    run.wait_until(lambda: run.backend.registry.evaluations("0"), "a first evaluation")
    run.wait_until(lambda: [*(run.run_dir / "checkpoints").glob("ckpt-*")], "a checkpoint")
    assert sorted(role.role for role in run.backend.registry.roles()) == ["evaluator", "learner"]
    refused = command_here("actors", "--run-dir", str(run.run_dir))
    assert refused.returncode == 2
    assert " learns from data: nothing acts in it" in refused.stderr + refused.stdout
    before = run.backend.registry.evaluations("0")[-1][1].env_steps
    run.kill("learner")
    run.wait_until(lambda: run.role("learner").incarnation == 2, "another learner")
    run.wait_until(lambda: run.backend.registry.evaluations("0")[-1][1].env_steps > before + 6_400, "it learns on")
    assert command_here("stop", str(run.run_dir)).returncode == 0
    summary = run.finish()
    assert (run.process.returncode, summary.restarts, summary.imbalance) == (0, 1, 0)
    assert (summary.env_steps, summary.episodes) == (summary.trained_steps, 0)  # nothing has acted but evaluations
    assert "data: 20 episodes, " in run.told
    assert [*(tmp_path / "store").glob("*/checkpoints/*/manifest.json")]  # although no unroll was taken in
    # Nothing that has no meaning here is told.
    assert not [word for word in ("stall", "queue", "actors", "lag", "no episode", "produced") if word in run.told]
    with (run.run_dir / "metrics.csv").open() as file:
        last = [*csv.DictReader(file)][-1]
    assert int(last["replay_episodes"]) == 20
    assert int(last["env_steps"]) == 32 * int(last["updates"])
    bounds = [float(last[name]) for name in estimate_columns("fqe")]
    assert bounds[1] < bounds[0] < bounds[2]


@pytest.mark.row("G32")
def test_actors_beside_data_are_accounted_for_and_first_updates_are_made_once(start_run, command_here, tmp_path):
    """Its learner is killed among the first updates, which are of recorded steps alone."""
    made = command_here("record", "random", "--env", "CartPole-v1", "--episodes", "20", "--output", "./recorded")
    assert made.returncode == 0
    run = start_run(
        *("--env", "CartPole-v1", "--algorithm", "dqfd", "--actors", "1", "--data", "./recorded-v0"),
        *sets(
            "data.share=0.2",
            "data.pretrain_updates=2000",
            "algorithm.n_step_weight=0",
            "algorithm.replay.item={kind: transition}",
            "network.middleware_parameters.scheme=[8]",
            "checkpoint.every_updates=200",
            "stop.updates=2300",
        ),
    )
    run.wait_until(lambda: [*(run.run_dir / "checkpoints").glob("ckpt-*")], "a checkpoint")
    run.kill("learner")
    summary = run.finish()
    assert (run.process.returncode, summary.restarts, summary.updates) == (0, 1, 2300)
    assert (summary.imbalance, summary.foreign, summary.lost) == (0, 0, 0)
    assert "data: 20 episodes, " in run.told
    assert "stall" not in run.told
    with (run.run_dir / "metrics.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert {int(row["env_steps"]) for row in rows if int(row["updates"]) <= 2000} == {0}
    last = rows[-1]
    # 300 live batches of 32 steps are due from 1,200 steps over min_size_steps on.
    assert int(last["sampled_steps"]) == 300 * 32
    assert int(last["env_steps"]) == int(last["trained_steps"]) == int(last["replay_steps"]) >= 2200


def test_a_run_whose_data_has_gone_keeps_what_it_has_learned(start_run, command_here, tmp_path):
    assert (
        command_here("record", "random", "--env", "CartPole-v1", "--episodes", "5", "--output", "./gone").returncode
        == 0
    )
    run = start_run(*LEARNING, *LEARNER, "--data", "./gone-v0")
    run.wait_until(lambda: [*(run.run_dir / "checkpoints").glob("ckpt-*")], "a checkpoint")
    (tmp_path / "gone-v0").rename(tmp_path / "elsewhere")
    run.kill("learner")
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code) == (2, 2)
    assert "no data set" in summary.error
    assert [*(run.run_dir / "checkpoints").glob("ckpt-*")]


@pytest.mark.ray
def test_a_learner_alone_on_ray(distrl_command, tmp_path):
    made = distrl_command("record", "random", "--env", "CartPole-v1", "--episodes", "20", "--output", "./on-ray")
    assert made.returncode == 0
    ray = ("--launcher", "ray", "--data", "./on-ray-v0", "--run-dir", "ray")
    done = distrl_command(
        "train", *LEARNER, *ray, *sets("stop.updates=200", "network.middleware_parameters.scheme=[8]")
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "ray" / "summary.json").read_text())
    wanted = {"stop_reason": "updates", "updates": 200, "env_steps": 6400, "trained_steps": 6400, "episodes": 0}
    wanted |= {"produced": 0, "imbalance": 0, "restarts": 0, "exit_code": 0, "error": None}
    assert {name: summary[name] for name in wanted} == wanted


def test_a_training_is_recorded_beside_it(start_run, command_here, endless, tmp_path):
    run = start_run(*endless, *RECORDING, *sets("recording.most_steps=30000"))
    run.wait_until(lambda: (tmp_path / "all-v0").exists(), "the data set is complete")
    shown = json.loads(command_here("data", "show", "./all-v0", "--json").stdout)
    assert 20_000 < shown["steps"] <= 100_000  # of whole unrolls; episodes that have not ended are left out
    assert shown["episodes"] == shown["episodes_with_behaviour_probabilities"] > 500
    assert command_here("data", "check", "./all-v0").returncode == 0
    run.wait_for_updates(run.updates + 2)
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance) == (0, 0, 0)
    line = f"learner: {shown['episodes']:,} episodes are recorded: {tmp_path}/all-v0"
    assert run.told.count(line) == 1
    again = command_here("train", *endless, *RECORDING, "--run-dir", "again")
    assert (again.returncode, (tmp_path / "again").exists()) == (2, False)
    assert "there is a data set" in again.stderr


def test_a_recording_that_ends_with_its_training_is_told(start_run, endless, tmp_path):
    run = start_run(*endless, *RECORDING)
    run.wait_for_updates(2)
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance) == (0, 0, 0)
    assert re.search(rf"learner: [\d,]+ episodes are recorded: {tmp_path}/all-v0", run.told)


def recorder_of(run):
    """Return the number of the process that records."""
    (found,) = (
        int(child)
        for task in Path(f"/proc/{run.role('learner').pid}/task").iterdir()
        for child in (task / "children").read_text().split()
        if b"recording_process" in Path(f"/proc/{child}/cmdline").read_bytes()
    )
    return found


def test_a_full_disk_ends_the_recording_and_not_the_training(start_run, endless, tmp_path):
    run = start_run(*endless, *RECORDING)
    run.wait_for_updates(1)
    resource.prlimit(recorder_of(run), resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    line = "learner: nothing is recorded: data set "
    run.wait_until(lambda: line in run.told, "the user is told")
    run.wait_for_updates(run.updates + 5)
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance) == (0, 0, 0)
    assert (run.told.count(line), "cannot be written: [Errno 27] File too large" in run.told) == (1, True)
    assert not [*tmp_path.glob("*all*")]


def test_a_killed_learner_takes_its_recording_with_it_and_another_begins(start_run, endless, tmp_path):
    run = start_run(*endless, *RECORDING)
    run.wait_for_updates(2)
    recorder = recorder_of(run)
    run.wait_until(lambda: [*tmp_path.glob(".new/*/all-v0/data/main_data.hdf5")], "the recording has begun")
    (first,) = tmp_path.glob(".new/distrl-*")
    run.kill("learner")
    run.wait_until(lambda: not Path(f"/proc/{recorder}").exists(), "its process has ended")
    assert not first.exists()
    run.wait_until(lambda: run.role("learner").incarnation == 2, "another learner")
    run.wait_for_updates(run.updates + 2)
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance) == (0, 1, 0)
    assert len(re.findall(r"learner: [\d,]+ episodes are recorded: ", run.told)) == 1
    assert [path.name for path in tmp_path.glob("*all*")] == ["all-v0"]


def test_a_killed_learner_goes_on_with_the_row_that_follows(start_run, command_here, tmp_path):
    made = command_here("record", "random", "--env", "CartPole-v1", "--episodes", "40", "--output", "./recorded")
    assert made.returncode == 0
    streamed = sets("data.memory_steps=256", "data.samples_per_insert=8", "checkpoint.keep=1000")
    run = start_run(*LEARNING, *LEARNER, *streamed, "--data", "./recorded-v0")
    checkpoints = run.run_dir / "checkpoints"
    later = f"ckpt-{1_000:012}"
    run.wait_until(lambda: any(path.name >= later for path in checkpoints.glob("ckpt-*")), "a later checkpoint")
    run.kill("learner")
    run.wait_until(lambda: run.role("learner").incarnation == 2, "another learner")
    before = run.updates
    run.wait_for_updates(before + 500)
    assert command_here("stop", str(run.run_dir)).returncode == 0
    summary = run.finish()
    assert (run.process.returncode, summary.restarts) == (0, 1)
    found = re.findall(
        r"from unroll (\d+) of (\d+) in round (\d+) on, of (\d+) steps",
        (run.run_dir / "logs" / "learner.log").read_text(),
    )
    (first, *_), (unroll, count, number, steps) = [[*map(int, each)] for each in found]
    assert first == 0
    saved = [load(path).meta["trained_steps"] for path in (run.run_dir / "checkpoints").glob("ckpt-*")]
    assert number * count + unroll in {int(trained / (8 * steps / count)) for trained in saved} - {0}
    with (run.run_dir / "metrics.csv").open() as file:
        assert all(int(row["replay_steps"]) <= 256 for row in csv.DictReader(file))


def test_data_that_goes_while_it_is_read_ends_the_run(start_run, command_here, tmp_path):
    made = command_here("record", "random", "--env", "CartPole-v1", "--episodes", "40", "--output", "./going")
    assert made.returncode == 0
    run = start_run(*LEARNING, *LEARNER, *sets("data.memory_steps=256"), "--data", "./going-v0")
    run.wait_until(lambda: [*(run.run_dir / "checkpoints").glob("ckpt-*")], "a checkpoint")
    (tmp_path / "going-v0").rename(tmp_path / "elsewhere")
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.restarts) == (2, 2, 0)
    reason = rf"learner: data set {tmp_path}/going-v0(: episode \d+)? cannot be read: .+$"
    assert re.match(reason, summary.error), summary.error
